"""A decoder trained on single factors (stripes) and some combinations (bumps).  Forced rendering, section 4.2.

The task offers examples of one factor with all others open, called singles.  Each batch mixes singles and combinations in
proportion to their numbers.

Theirs: the absent coordinate of a stripe has a constant, which our copy of the paper lost and no code shows.
Ours: its code is the zero vector, or -1 with the ramp.
Why: in a trial the zero vector had an error of 0.60 of the blank level, and a bump at -1 of 3.7.

Theirs: all stripes are in the training set, with 0, 50 or 100 bumps; the paper states neither the steps nor the balance of the
two.
Ours: there are 100 bumps by default, batches mix both in proportion to their numbers, and the steps are the budget's.
Why: some values had to be chosen.

Size: the default decoder, `cnn`, has the paper's size, which is 0.04 of the parameters of `factored`.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, nn

from compbench import Batch, Context, Federation, Method, Problem, Refused, Silo, hookimpl
from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import (
    CNNDecoder,
    MLPDecoder,
    PixelDecoder,
    TransformerDecoder,
    condition_decoder,
    decoder_method,
    regress,
)
from compbench.flow.low_rank_maps import LowRankDecoder, RankSettings
from compbench.flow.transfer import send

MAX_DRAWS = 100
"""Number of draws after which the search for more distinct examples ends."""


class Settings(CodeSettings, RankSettings):
    decoder: Literal["cnn", "mlp", "transformer", "pixel", "low-rank"] = Field("cnn", description="the decoder to train")
    num_combinations: int = Field(100, ge=0, description="distinct combinations (bumps) in addition to singles (stripes)")


class Chosen:
    """A silo that holds the first distinct combinations drawn from another silo."""

    name = "chosen"

    def __init__(self, batch: Batch) -> None:
        self._batch, self.size = batch, len(batch.x1)

    def batch(self, size: int, generator: Generator) -> Batch:
        rows = send(torch.randint(self.size, (size,), generator=generator), self._batch.x1.device)
        return Batch(self._batch.x1[rows], self._batch.condition[rows])


def choose(silo: Silo, count: int, generator: Generator) -> Chosen:
    """`count` examples of distinct conditions, drawn one batch after another; fewer if there are no more."""
    count = min(count, silo.size)
    found = _distinct(silo.batch(count, generator))
    for _ in range(MAX_DRAWS):
        if len(found.x1) >= count:
            break
        more = silo.batch(count, generator)
        found = _distinct(Batch(torch.cat([found.x1, more.x1]), torch.cat([found.condition, more.condition])))
    return Chosen(Batch(found.x1[:count], found.condition[:count]))


def _distinct(batch: Batch) -> Batch:
    """The first example of each condition, in the batch's order."""
    _, group = batch.condition.unique(dim=0, return_inverse=True)
    place = torch.arange(len(group), device=group.device)
    first = torch.full_like(place, len(group)).scatter_reduce(0, group, place, "amin")
    kept = first[first < len(group)].sort().values
    return Batch(batch.x1[kept], batch.condition[kept])


def build(settings: Settings, problem: Problem) -> nn.Module:
    """The untrained decoder, in the sizes of its own method."""
    width = problem.budget.width
    if settings.decoder == "low-rank":
        return LowRankDecoder(problem.space.sizes, problem.event.shape, settings)
    decoder = {
        "cnn": partial(CNNDecoder, channels=width, num_hidden=2),
        "mlp": partial(MLPDecoder, width=4 * width, depth=3),
        "transformer": partial(TransformerDecoder, width=2 * width, depth=2, num_heads=4, patch=4, dropout=0.1),
        "pixel": partial(PixelDecoder, width=width, depth=2),
    }[settings.decoder]
    return condition_decoder(problem, settings, decoder)


def fit(settings: Settings, problem: Problem, ctx: Context) -> nn.Module:
    """Regression on all singles and `num_combinations` combinations.

    Raises:
        Refused: the task offers no singles.
    """
    if problem.singles is None:
        raise Refused("this task offers no examples of single factors; stripes works on bump-center and bump-corner.")
    net = build(settings, problem)
    silos: list[Silo] = [problem.singles]
    if settings.num_combinations:
        silos.append(choose(problem.federation.pooled(), settings.num_combinations, ctx.generator))
    regress(net, Federation(silos).pooled(), problem, ctx)
    return net


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("stripes", Settings, build, fit=fit, needs=("singles",)),)
