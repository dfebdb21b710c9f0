"""Count the conditions that networks are called with, for losses that do not report what they regress on.

An argument counts as conditions if it is an integer tensor (..., F) of two dimensions or more, whatever its name.  Modules inside
of other modules are counted too, so the counts show which kinds of conditions occur, but not how often.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from compbench.system.condition_counts import ConditionCounts


@contextlib.contextmanager
def called_conditions(num_factors: int, *, graded: bool = False) -> Iterator[ConditionCounts]:
    """Count the conditions of all calls of modules while the block runs.

    Args:
        num_factors: F.
        graded: whether to leave out calls without gradients, which train nothing in a fit.
    """
    counts, plain = ConditionCounts(), nn.Module.__call__

    def call(module: nn.Module, *arguments: object, **options: object) -> object:
        if torch.is_grad_enabled() or not graded:
            for given in (*arguments, *options.values()):
                if isinstance(given, Tensor) and _are_conditions(given, num_factors):
                    counts.add(given)
        return plain(module, *arguments, **options)

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        nn.Module.__call__ = plain  # type: ignore[method-assign]


def _are_conditions(given: Tensor, num_factors: int) -> bool:
    """Whether a tensor may be conditions with readable values; torch.func's batched tensors are not readable."""
    if given.dtype != torch.long or given.ndim < 2 or given.shape[-1] != num_factors:
        return False
    return not torch._C._functorch.is_batchedtensor(given)
