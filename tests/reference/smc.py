"""Feynman-Kac correction written the obvious way: what the fast sampler is tested and timed against.

Each condition's score by a forward of its own, the schedule evaluated for each particle, a random permutation of the slots
after each resampling.  The same law as `compbench.flow.smc.feynman_kac`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from compbench.flow.path import GaussianPath, diffusion, per_sample
from compbench.flow.smc import Settings

Score = Callable[[Tensor, Tensor], Tensor]
"""(x (N, *D), t (N,)) -> score (N, *D)."""


def feynman_kac_plainly(
    scores: Sequence[Score], weights: Sequence[float], path: GaussianPath, x: Tensor, settings: Settings, generator: Generator
) -> Tensor:
    """Samples, one a swarm, (B, *D): resampling at every step, a uniform pick at the end.

    Args:
        scores: one function a condition.
        weights: w_a.
        path: the path that the scores belong to.
        x: particles at t = 0, (B, K, *D).
        settings: steps and clip; the trigger and the scheme are not looked at.
        generator: of noise, resampling and permutation.
    """
    count, num_particles = x.shape[:2]
    flat = x.flatten(0, 1)  # (B K, *D)
    dt, dimension = 1 / settings.num_steps, math.prod(x.shape[2:])
    rows = torch.arange(count)[:, None]
    parts = [score(flat, _times(flat, 0.0, settings)) for score in scores]
    for step in range(settings.num_steps):
        at = diffusion(path, _times(flat, step * dt, settings))
        drift, squared = per_sample(at.drift, flat), per_sample(at.squared, flat)
        total = sum((w * part for w, part in zip(weights, parts, strict=True)), torch.zeros_like(flat))
        noise = torch.randn(flat.shape, generator=generator, dtype=flat.dtype)
        flat = flat + (drift * flat + squared * total) * dt + (squared * dt).sqrt() * noise
        right = _times(flat, (step + 1) * dt, settings)
        parts = [score(flat, right) for score in scores]
        total = sum((w * part for w, part in zip(weights, parts, strict=True)), torch.zeros_like(flat))
        squares = sum(
            (w * part.flatten(1).square().sum(1) for w, part in zip(weights, parts, strict=True)), torch.zeros(len(flat))
        )
        after = diffusion(path, right)
        rate = after.squared / 2 * (total.flatten(1).square().sum(1) - squares) - settings.excess * after.drift * dimension
        log_weights = (rate.clamp(-settings.clip, settings.clip) * dt).view(count, num_particles)
        cumulative = log_weights.double().softmax(1).cumsum(1)
        u = torch.rand(count, 1, generator=generator, dtype=torch.float64)
        chosen = torch.searchsorted(cumulative, (torch.arange(num_particles) + u) / num_particles, right=True)
        chosen = chosen.clamp(max=num_particles - 1)
        slots = torch.rand(count, num_particles, generator=generator).argsort(1)
        chosen = chosen.gather(1, slots)
        flat = flat.unflatten(0, (count, num_particles))[rows, chosen].flatten(0, 1)
        parts = [part.unflatten(0, (count, num_particles))[rows, chosen].flatten(0, 1) for part in parts]
    picked = torch.randint(num_particles, (count,), generator=generator)
    return flat.unflatten(0, (count, num_particles))[torch.arange(count), picked]


def _times(x: Tensor, t: float, settings: Settings) -> Tensor:
    return torch.full((len(x),), t, dtype=x.dtype).clamp(settings.edge, 1 - settings.edge)
