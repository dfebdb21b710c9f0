"""Training examples that a method keeps, and the choice of an example for a request, for methods without a network.

    n(c) in argmax_n #{k given by c : c_nk = c_k}

A factor that c leaves open is not given: every value of it matches.  Among equally close examples the request's noise picks one,
so methods that pick from the same examples are paired.  If the request gives entries, the example nearest to them is picked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from compbench.api.factors import NULL
from compbench.api.interfaces import MethodSettings
from compbench.flow.solver import Known
from compbench.system.errors import Cancelled

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Problem, Request

LOOKS = 4
"""Largest number of kept examples divided by the size of the data; so many draws with replacement contain 98 % of the data."""

MOST_BYTES = 1 << 30
"""Largest size of the kept examples."""

LOOKED_AT = 4096
"""Most examples that `keep` draws in addition to those of the budget's steps: all of a small data set."""

DRAWN = 256
"""Number of examples that are drawn or compared at a time."""

PAIRS = 1 << 22
"""Number of (request, example) pairs that are compared at a time."""


class KeepingSettings(MethodSettings):
    """Settings of methods that keep examples."""

    num_examples: int = Field(
        65536,
        ge=1,
        le=10**7,
        description="training examples that are kept, at most: no more than the budget grants, four times the data, or 1 GiB",
    )


class Examples(NamedTuple):
    """Training examples on the device.

    Attributes:
        x1: samples (N, *D): uint8 for pictures with 256 levels (without loss), else float32.
        condition: conditions (N, F).
    """

    x1: Tensor
    condition: Tensor

    def take(self, rows: Tensor) -> Tensor:
        """The examples at some rows as samples, float32 (B, *D)."""
        return decoded(self.x1[rows])


def decoded(x1: Tensor) -> Tensor:
    """Samples in the form that tasks give: levels 0 to 255 become [-1, 1]."""
    return x1.float().div_(127.5).sub_(1) if x1.dtype == torch.uint8 else x1.float()


def keep(settings: KeepingSettings, problem: Problem, ctx: Context) -> Examples:
    """Examples of all silos together, drawn with replacement.

    Raises:
        Cancelled: the run was asked to stop.
    """
    silo, budget = problem.federation.pooled(), problem.budget
    granted = budget.train_steps * budget.batch_size + min(silo.size, LOOKED_AT)
    wanted = min(settings.num_examples, granted, LOOKS * silo.size)
    first = silo.batch(min(wanted, DRAWN), ctx.generator)
    levels = problem.event.kind == "image" and torch.equal(decoded(_levels(first.x1)), first.x1)
    wanted = min(wanted, max(1, MOST_BYTES // (first.x1[0].numel() * (1 if levels else 4))))
    kept = Examples(
        first.x1.new_empty(wanted, *first.x1.shape[1:], dtype=torch.uint8 if levels else torch.float32),
        first.condition.new_empty(wanted, *first.condition.shape[1:]),
    )
    for begin in range(0, wanted, DRAWN):
        if ctx.cancelled():
            raise Cancelled("stopped.")
        count = min(DRAWN, wanted - begin)
        x1, condition = silo.batch(count, ctx.generator) if begin else first
        kept.x1[begin : begin + count] = _levels(x1[:count]) if levels else x1[:count]
        kept.condition[begin : begin + count] = condition[:count]
    return kept


def closest(examples: Examples, request: Request) -> Tensor:
    """For each request, an example that shares the most given factors with it, LongTensor (B,)."""

    def fits(condition: Tensor) -> Tensor:  # (b, F) -> bool (b, N)
        shared = torch.zeros(len(condition), len(examples.condition), dtype=torch.int16, device=condition.device)
        for k in range(condition.shape[1]):
            shared += (condition[:, k, None] == examples.condition[None, :, k]) & (condition[:, k, None] != NULL)
        return shared == shared.amax(1, keepdim=True)

    return _picked(examples, request, fits)


def anyone(examples: Examples, request: Request) -> Tensor:
    """For each request, one of all examples, regardless of its condition, LongTensor (B,)."""
    return _picked(examples, request, lambda condition: condition.new_ones(len(condition), len(examples.x1), dtype=torch.bool))


def with_given(x: Tensor, request: Request) -> Tensor:
    """Samples with the request's given entries put in, (B, *D)."""
    known = Known.of(request)
    return x if known is None else torch.where(known.mask, known.values, x)


def _picked(examples: Examples, request: Request, fits: Callable[[Tensor], Tensor]) -> Tensor:
    """Among the examples that fit each request, bool (b, N), the nearest to the given entries, or the one picked by the noise."""
    known, size = Known.of(request), max(1, PAIRS // len(examples.x1))
    found = []
    for rows in torch.arange(len(request.x0), device=request.x0.device).split(size):
        able = fits(request.condition[rows])
        if known is None:
            found.append(_by_noise(able, request.x0[rows]))
            continue
        apart = _apart(examples, Known(known.values[rows], known.mask[rows]))
        found.append(apart.masked_fill(~able, torch.inf).argmin(1))
    return torch.cat(found)


def _by_noise(able: Tensor, x0: Tensor) -> Tensor:
    """One matching example per request, (b,), drawn uniformly: Phi of the noise's first number is its rank among all matches."""
    share = torch.special.ndtr(x0.flatten(1)[:, 0].double())
    counts = able.sum(1)
    number = torch.minimum((share * counts).long(), counts - 1)
    return (able.cumsum(1, dtype=torch.int32) > number[:, None]).int().argmax(1)


def _apart(examples: Examples, known: Known) -> Tensor:
    """Squared distances between given entries and those of all examples, up to a common term, (b, N)."""
    mask, values = known.mask.flatten(1).float(), known.values.flatten(1)
    parts = []
    for x1 in examples.x1.split(DRAWN):
        x = decoded(x1).flatten(1)
        parts.append(mask @ x.square().T - 2 * (mask * values) @ x.T)
    return torch.cat(parts, dim=1)


def _levels(x1: Tensor) -> Tensor:
    return ((x1 + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
