"""Networks of equal size: the width at which another architecture has as many parameters as the protocol's network."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from compbench.system.errors import CompbenchError

WIDEST = 1 << 16
"""Largest width that is tried."""


def parameters_of(build: Callable[[], nn.Module]) -> int:
    """Number of parameters of the network that `build` makes, without allocating them or drawing random numbers."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


def matched_width(build: Callable[[int], nn.Module], target: int, *, step: int) -> int:
    """The multiple of `step` at which a network's number of parameters is nearest to `target`, by bisection.

    Args:
        build: width -> network; a wider network has more parameters.
        target: number of parameters.
        step: step of the widths.

    Raises:
        CompbenchError: even the narrowest network is more than half too large.
    """
    low, high = 1, 2

    def count(steps: int) -> int:
        return parameters_of(lambda: build(steps * step))

    if count(low) > 1.5 * target:
        raise CompbenchError(
            f"no network of this shape has as few as {target} parameters: {count(low)} at width {step}; "
            "take a smaller depth or a larger budget.width."
        )
    while count(high) < target and high * step < WIDEST:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < target else (low, middle)
    return step * min((low, high), key=lambda steps: abs(math.log(count(steps) / target)))
