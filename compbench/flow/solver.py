"""Solvers of dx/dt = v(x, t) from noise (t = 0) to data (t = 1) in a fixed number of steps, without host syncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from compbench.interfaces import Request

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(x (B, *D), t (B,)) -> velocity (B, *D)."""


class Known(NamedTuple):
    """Entries of a sample that are given: x_t there is alpha_t known + sigma_t x0, whatever the solver found (inpainting).

    Attributes:
        values: (B, *D).
        mask: which of them count, bool (B, *D).
    """

    values: Tensor
    mask: Tensor

    @classmethod
    def of(cls, request: Request) -> Known | None:
        """What a request gives; None if it gives nothing."""
        if request.known is None or request.known_mask is None:
            return None
        return cls(request.known, request.known_mask)

    def on_path(self, x: Tensor, x0: Tensor, alpha: float, sigma: float) -> Tensor:
        """x_t with its given entries on their path, from noise x0; both (B, *D)."""
        return torch.where(self.mask, alpha * self.values + sigma * x0, x)


def answer(velocity: Velocity, request: Request, *, num_steps: int) -> Tensor:
    """Samples for a request: `euler` from its noise, around what it gives, (B, *D)."""
    return euler(velocity, request.x0, num_steps=num_steps, known=Known.of(request))


def euler(velocity: Velocity, x0: Tensor, *, num_steps: int, known: Known | None = None) -> Tensor:
    """x <- x + h v(x, t), h = 1 / num_steps; one evaluation a step.

    Args:
        velocity: dx/dt.
        x0: noise, (B, *D).
        num_steps: steps from t = 0 to t = 1.
        known: entries that are given; they move along (1 - t) x0 + t known.

    Returns:
        x at t = 1, (B, *D).
    """
    x, h = x0, 1 / num_steps
    for step in range(num_steps):
        x = x + h * velocity(x, _times(x, step * h))
        if known is not None:
            t = (step + 1) / num_steps
            x = known.on_path(x, x0, t, 1 - t)
    return x


def heun(velocity: Velocity, x0: Tensor, *, num_steps: int) -> Tensor:
    """x <- x + h (v(x, t) + v(x', t + h)) / 2 with Euler's x'; second order, two evaluations a step.

    Args:
        velocity: dx/dt.
        x0: noise, (B, *D).
        num_steps: steps from t = 0 to t = 1.

    Returns:
        x at t = 1, (B, *D).
    """
    x, h = x0, 1 / num_steps
    for step in range(num_steps):
        first = velocity(x, _times(x, step * h))
        second = velocity(x + h * first, _times(x, (step + 1) * h))
        x = x + h / 2 * (first + second)
    return x


def _times(x: Tensor, t: float) -> Tensor:
    """The time t for each sample, (B,); filled on the device."""
    return x.new_full((len(x),), t)
