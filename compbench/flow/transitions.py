"""Weights from transition densities: each member's own reverse kernel weights a step.

    k(x' | x) = N(m, v I),    p_a(x' | x) = N(m_a, v I),    m_a = (x + q s_a) / c,    m = (x + q S) / c
    dlog w = sum_a w_a log p_a(x' | x) - log k(x' | x) = (q / c)^2 / (2 v) (|S|^2 - sum_a w_a |s_a|^2)    where sum_a w_a = 1

    dlog w = log p'(x') - log p(x) + log q(x | x') - log k(x' | x)    where p = prod_a p_a^w_a is known at both levels

with c = alpha / alpha' and q = sigma^2 - c^2 sigma'^2 of the noising kernel q(x | x') = N(c x', q I), which cancels above, and
v the variance of x' given x for data from N(0, I).  There is no divergence and no rate to clip: coarse steps have finite weights,
which converge to the Feynman-Kac weights as steps shrink.  He et al. 2025 (RNE, arXiv 2506.05668), for kernels of one variance.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from compbench.flow.path import GaussianPath
from compbench.flow.scores import Members
from compbench.flow.smc import ComposedScore, Swarm
from compbench.flow.swarms import Level, Step, Stepped, levels
from compbench.flow.transfer import numbers

LogDensity = Callable[[Tensor, float], Tensor]
"""(x (B, K, *D), t) -> sum_a w_a log p_a up to a constant, float64 (B, K)."""


def transition_step(
    composed: ComposedScore,
    path: GaussianPath,
    num_steps: int,
    edge: float,
    generator: Generator,
    *,
    log_density: LogDensity | None = None,
    last_noise: bool = True,
) -> Step:
    """A step by S's own kernel, weighted by the members' kernels or by their densities, which are exact for any step size.

    Args:
        composed: S and its gap, for a composition whose weights sum to one.
        path: path of its scores.
        num_steps: number of even steps from noise to data.
        edge: times stay this far from 0 and 1.
        generator: draws the steps' noise, on the swarm's device.
        log_density: log p up to a constant, if it is known.
        last_noise: whether the last step draws from its kernel too; otherwise it ends at the kernel's mean.  Weights by kernels
            do not depend on x' and do not change; weights by densities need the draw.
    """
    table = levels(path, num_steps, edge)

    def step(swarm: Swarm, number: int) -> Stepped:
        before, after = table[number], table[number + 1]
        pull, variance = kernel(before, after)
        found = composed(swarm.x, before.time)
        mean = swarm.x * (after.alpha / before.alpha) + pull * found.score
        if not last_noise and number + 1 == num_steps:
            return Stepped(mean, found.gap * (pull**2 / (2 * variance)))
        noise = torch.randn(swarm.x.shape, generator=generator, device=swarm.x.device, dtype=swarm.x.dtype)
        moved = mean + variance**0.5 * noise
        if log_density is None:
            return Stepped(moved, found.gap * (pull**2 / (2 * variance)))
        c = before.alpha / after.alpha
        back = _squares(swarm.x - c * moved) / (2 * c * pull)  # -log q(x | x'); q = c pull
        gain = log_density(moved, after.time) - log_density(swarm.x, before.time)
        return Stepped(moved, gain - back + _squares(noise) / 2)

    return step


def kernel(before: Level, after: Level) -> tuple[float, float]:
    """q / c, which multiplies the score in a reverse kernel's mean, and v = V q / (q + c^2 V) with V = alpha'^2 + sigma'^2."""
    c = before.alpha / after.alpha
    q = before.sigma**2 - c**2 * after.sigma**2
    spread = after.alpha**2 + after.sigma**2
    return q / c, spread * q / (q + c**2 * spread)


def log_density_of(members: Members) -> LogDensity | None:
    """The composition's own log density, if its members' densities are known."""
    each = members.log_densities
    if each is None:
        return None

    def log_density(x: Tensor, t: float) -> Tensor:
        found = each(x.flatten(0, 1), t)  # (C, B K)
        return (numbers(members.weights, x.device, torch.float64) @ found).view(x.shape[:2])

    return log_density


def _squares(x: Tensor) -> Tensor:
    """|x|^2 of each particle, float64 (B, K)."""
    return x.double().square().flatten(2).sum(-1)
