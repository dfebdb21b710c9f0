"""Solvers of dx/dt = v(x, t) from noise (t = 0) to data (t = 1) in a fixed number of steps, without host syncs."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(x (B, *D), t (B,)) -> velocity (B, *D)."""


def euler(velocity: Velocity, x0: Tensor, *, num_steps: int) -> Tensor:
    """x <- x + h v(x, t), h = 1 / num_steps; one evaluation a step.

    Args:
        velocity: dx/dt.
        x0: noise, (B, *D).
        num_steps: steps from t = 0 to t = 1.

    Returns:
        x at t = 1, (B, *D).
    """
    x, h = x0, 1 / num_steps
    for step in range(num_steps):
        x = x + h * velocity(x, _times(x, step * h))
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
