"""Compositions one forward after the other: what the batched ones of `compbench.flow.compose` are tested and timed against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compbench.api.factors import Weighted
from compbench.flow.compose import ConditionalVelocity


def compose_plainly(velocity: ConditionalVelocity, x: Tensor, t: Tensor, composition: Sequence[Weighted]) -> Tensor:
    """sum_i w_i v(x, t | c_i), as `compose` gives it."""
    return sum((member.weight * velocity(x, t, member.condition) for member in composition), torch.zeros_like(x))
