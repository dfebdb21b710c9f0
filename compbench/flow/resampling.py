"""Weights of particles: effective sample size (ESS), choice of ancestors, and tempering of steps that would leave a small ESS.

    ESS = 1 / sum_k W_k^2,    E[copies of k] = K W_k

Log-weights are unnormalised, of any floating type; they become float64 here.  Douc & Cappe 2005 compare the schemes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Generator, Tensor

Scheme = Literal["systematic", "stratified", "multinomial"]

HALVINGS = 40
"""Number of bisection steps in the search for a tempering power."""


def ess(log_weights: Tensor) -> Tensor:
    """Effective sample size, 1 / sum_k W_k^2 for normalised W: K if weights are equal, 1 if one particle has all.

    Args:
        log_weights: unnormalised log-weights, (B, K).

    Returns:
        effective sample size, (B,), float64 in [1, K].
    """
    return ess_of(relative_weights(log_weights))


def temper(log_weights: Tensor, gained: Tensor, least: float) -> Tensor:
    """The largest power in [0, 1] of a step's weights that keeps ESS >= `least`, by bisection; 0 if no power does.

    Adaptive tempering (Jasra et al. 2011; Zhou, Johansen & Aston 2016) within a step: tempered weights are biased towards no
    correction, and weights that need no tempering stay exact.

    Args:
        log_weights: log-weights before the step, float64 (B, K).
        gained: their increments in the step, (B, K).
        least: effective sample size, in particles.

    Returns:
        power, float64 (B, 1).
    """
    low = torch.zeros(len(gained), 1, dtype=torch.float64, device=gained.device)
    high = torch.ones_like(low)
    whole = (ess(log_weights + gained) >= least)[:, None]
    for _ in range(HALVINGS):
        power = (low + high) / 2
        enough = (ess(log_weights + power * gained) >= least)[:, None]
        low, high = torch.where(enough, power, low), torch.where(enough, high, power)
    return torch.where(whole, 1.0, low)


def positions(count: int, num_particles: int, generator: Generator, scheme: Scheme = "systematic") -> Tensor:
    """Increasing positions in [0, 1) that resampling looks up in the cumulative weights.

    Systematic: (i + u) / K with one u per swarm; stratified: one u for each i; multinomial: K sorted uniforms.

    Args:
        count: number of swarms, B.
        num_particles: K.
        generator: generator on the device of the positions.
        scheme: one of the three schemes.

    Returns:
        float64 (B, K).
    """
    columns = 1 if scheme == "systematic" else num_particles
    u = torch.rand(count, columns, generator=generator, device=generator.device, dtype=torch.float64)
    if scheme == "multinomial":
        return u.sort(dim=-1).values
    return (torch.arange(num_particles, device=u.device) + u) / num_particles


def resample(log_weights: Tensor, at: Tensor) -> Tensor:
    """Ancestors at positions of the cumulative weights: E[copies of k] = K W_k; a particle of zero weight is never an ancestor.

    Args:
        log_weights: unnormalised, (B, K).
        at: increasing positions in [0, 1), float64 (B, J).

    Returns:
        indices 0 ... K - 1, (B, J).
    """
    return ancestors_at(relative_weights(log_weights), at)


def relative_weights(log_weights: Tensor) -> Tensor:
    """exp(log_weights) divided by each swarm's largest weight, float64 (B, K)."""
    return (log_weights.double() - log_weights.amax(dim=-1, keepdim=True)).exp_()


def ess_of(weights: Tensor) -> Tensor:
    """`ess` of weights, (B, K) -> (B,)."""
    return weights.sum(-1).square() / weights.square().sum(-1)


def ancestors_at(weights: Tensor, at: Tensor) -> Tensor:
    """`resample` of weights, (B, K) and positions (B, J) -> (B, J)."""
    cumulative = weights.cumsum(-1)  # (B, K); its last entry is the total, so no position lies beyond it
    return torch.searchsorted(cumulative, at * cumulative[:, -1:], right=True).clamp_(max=weights.shape[1] - 1)
