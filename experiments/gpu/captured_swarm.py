"""A step of Feynman-Kac swarms as one captured CUDA graph; times and coefficients are in a table on the device.

`feynman_kac` has the same arguments and results as `compbench.flow.smc.feynman_kac`, up to rounding, for noise networks whose
members accept a time that is a tensor (`of_noise_net`).  On a CPU the same step runs uncaptured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest import mock

import torch
from torch import Generator, Tensor
from whole_step import Captured

from compbench.api.factors import Weighted
from compbench.flow import scores, smc
from compbench.flow.noise import NoiseNet
from compbench.flow.path import GaussianPath
from compbench.flow.resampling import ancestors_at, ess_of, positions, relative_weights, temper
from compbench.flow.smc import LARGEST_KICK, RESOLUTION, Composed, ComposedScore, Settings, Swarm, Trace
from compbench.flow.solver import Known
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError


@contextmanager
def swarms_captured() -> Iterator[None]:
    """While the block runs, swarms of noise networks take captured steps."""
    with mock.patch.object(scores, "of_noise_net", of_noise_net), mock.patch.object(smc, "feynman_kac", feynman_kac):
        yield


def of_noise_net(net: NoiseNet, path: GaussianPath, members: Sequence[Weighted]) -> scores.Members:
    """`scores.of_noise_net` at times that are numbers or tensors without dimensions."""
    sources = [net.position(tuple(member.condition[0].tolist())) for member in members]

    def at(x: Tensor, t: Any) -> Tensor:
        sigma = path.at(t.double()).sigma if isinstance(t, Tensor) else scores.sigma_at(path, t)
        return net.at_sources(x.flatten(1), t, sources).view(len(sources), *x.shape) / -sigma

    return scores.Members.of(at, [member.weight for member in members])


def coefficients(path: GaussianPath, settings: Settings, dimension: int) -> Tensor:
    """One row per step, float64 (num_steps, 7): time at the right end, 1 + f dt, (g^2 dt + e^2 dt) / 2, sqrt(e^2 dt), g^2 / 2,
    (sum_a w_a - 1) f d, and whether the step is weighted."""
    table, dt = smc.schedule(path, settings.num_steps, settings.edge), 1 / settings.num_steps
    rows = []
    for step, (left, right) in enumerate(pairwise(table)):
        last = step + 1 == settings.num_steps
        noisy = settings.noise and (settings.last_noise or not last)
        kick = min(left.squared * dt, LARGEST_KICK) if noisy else 0.0
        drawn = (left.squared * dt + kick) / 2
        rows.append(
            (
                right.time,
                1 + left.drift * dt,
                drawn,
                kick**0.5,
                right.squared / 2,
                settings.excess * right.drift * dimension,
                float(settings.last_weight or not last),
            )
        )
    return torch.tensor(rows, dtype=torch.float64)


class SwarmStep:
    """The state of swarms on the device, and the step that changes it in place."""

    def __init__(self, composed: ComposedScore, path: GaussianPath, x: Tensor, settings: Settings, generator: Generator) -> None:
        count, num_particles = x.shape[:2]
        self._composed, self._settings, self._generator = composed, settings, generator
        self._rows = send(coefficients(path, settings, math.prod(x.shape[2:])), x.device)
        self._place = torch.zeros(1, dtype=torch.long, device=x.device)
        self._own = torch.arange(num_particles, device=x.device)
        self._offset = (torch.arange(count, device=x.device) * num_particles)[:, None]
        start = torch.tensor(smc.schedule(path, settings.num_steps, settings.edge)[0].time, dtype=torch.float64)
        self.x, self.score = x.clone(), composed(x, send(start, x.device)).score.clone()
        self.log_weights = torch.zeros(count, num_particles, dtype=torch.float64, device=x.device)
        self.ancestors = self._own.expand(count, num_particles).clone()
        self.sizes = torch.full((settings.num_steps,), float(num_particles), dtype=torch.float64, device=x.device)
        self.clipped, self.powers = torch.zeros((2, 1), dtype=torch.float64, device=x.device)
        self.diverged = torch.full((1,), settings.num_steps + 1, device=x.device)

    def advance(self) -> None:
        """One step of `smc.feynman_kac`, whose results overwrite the state."""
        settings, count, num_particles = self._settings, *self.x.shape[:2]
        row = self._rows.index_select(0, self._place)[0]
        time, keep, towards, kick, half, excess, weighted = row.unbind()
        x = self.x * keep + self.score * towards
        if settings.noise:
            x = x + torch.randn(x.shape, generator=self._generator, device=x.device, dtype=x.dtype) * kick
        now: Composed = self._composed(x, time)
        rate = now.gap * half - excess
        if settings.clip < math.inf:
            self.clipped += (rate.abs() > settings.clip).sum()
            rate = rate.clamp(-settings.clip, settings.clip)
        gained = (rate * weighted).double() / settings.num_steps
        if settings.ess_floor > 0:
            power = temper(self.log_weights, gained, settings.ess_floor * num_particles)
            gained = power * gained
            self.powers += power.mean()
        log_weights = self.log_weights + gained
        self.diverged.copy_(torch.where(log_weights.sum().isfinite(), self.diverged, self.diverged.minimum(self._place)))
        weights = relative_weights(log_weights)
        size = ess_of(weights)
        self.sizes.index_copy_(0, self._place, size.mean()[None])
        score, ancestors = now.score, self.ancestors
        if settings.resample_below > 0:
            chosen = ancestors_at(weights, positions(count, num_particles, self._generator, settings.scheme))
            if settings.resample_below < 1:
                tired = (size <= settings.resample_below * num_particles + RESOLUTION)[:, None]
                chosen = torch.where(tired, chosen, self._own)
                log_weights = torch.where(tired, 0.0, log_weights)
            else:
                log_weights = torch.zeros_like(log_weights)
            flat = (chosen + self._offset).flatten()
            x, score = (part.flatten(0, 1).index_select(0, flat).view_as(part) for part in (x, score))
            ancestors = ancestors.gather(1, chosen)
        for kept, part in ((self.x, x), (self.score, score), (self.log_weights, log_weights), (self.ancestors, ancestors)):
            kept.copy_(part)
        self._place += 1


def feynman_kac(
    composed: ComposedScore,
    path: GaussianPath,
    x: Tensor,
    settings: Settings,
    generator: Generator,
    *,
    known: Known | None = None,
) -> tuple[Swarm, Trace]:
    """Swarms from noise to data by captured steps: the first ones run uncaptured, the next is captured, the rest replay it.

    Raises:
        CompbenchError: the swarms diverged, or the request has a single particle or given entries, which is not supported.
    """
    if known is not None or x.shape[1] == 1:
        raise CompbenchError("captured steps are for swarms of several particles without given entries.")
    step = SwarmStep(composed, path, x, settings, generator)
    advance = Captured(step.advance, generator, x.device)
    for _ in range(settings.num_steps):
        advance()
    if int(step.diverged) <= settings.num_steps:
        raise CompbenchError(f"the sampler diverged at step {int(step.diverged) + 1} of {settings.num_steps}.")
    alive = torch.zeros_like(step.ancestors, dtype=torch.bool).scatter(1, step.ancestors, True)
    trace = Trace(
        clipped=float(step.clipped) / (step.x.shape[0] * step.x.shape[1] * settings.num_steps),
        distinct_ancestors=float(alive.sum(1).double().mean()),
        ess=tuple(step.sizes.tolist()),
        tempered=float(step.powers) / settings.num_steps if settings.ess_floor > 0 else 1.0,
    )
    return Swarm(step.x, step.log_weights, step.ancestors), trace
