"""Swarms of weighted particles: the loop that samplers with different steps share.

    (x, log w) -> (x', log w + dlog w), resampled where few particles carry most of the weight

State in, state out; log-weights are float64, and the host does not wait for the device before the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench.flow.path import GaussianPath
from compbench.flow.resampling import ess, positions, resample, temper
from compbench.flow.smc import RESOLUTION, Swarm, Trace
from compbench.flow.solver import Known
from compbench.system.errors import CompbenchError

StepCount = Annotated[int, Field(ge=1, le=100_000)] | Literal["budget"]
"""A method's setting: number of steps of its samples; "budget" is the number in the task's budget."""


class Stepped(NamedTuple):
    """Particles after a step, (B, K, *D), and the increments of their log-weights, (B, K)."""

    x: Tensor
    log_weight: Tensor


Step = Callable[[Swarm, int], Stepped]
"""(swarm, number of the step) -> the swarm after the step, with its weights' increments."""


class Level(NamedTuple):
    """A time and the path's coefficients there, on the host."""

    time: float
    alpha: float
    sigma: float


def steps_of(own: StepCount, budget: int) -> int:
    """The number of steps of a setting, where "budget" means the budget's number."""
    return budget if own == "budget" else own


def levels(path: GaussianPath, count: int, edge: float) -> list[Level]:
    """The ends of `count` even steps from t = 0 to 1; times stay `edge` away from both."""
    times = (torch.arange(count + 1, dtype=torch.float64) / count).clamp(edge, 1 - edge)
    c = path.at(times)
    return [Level(*row) for row in zip(times.tolist(), c.alpha.tolist(), c.sigma.tolist(), strict=True)]


def start_swarm(x0: Tensor, num_particles: int, generator: Generator) -> Swarm:
    """Swarms of equal weights: x0 (B, *D) is the first particle, K - 1 more come from the generator."""
    others = torch.randn(len(x0), num_particles - 1, *x0.shape[1:], generator=generator, device=x0.device, dtype=x0.dtype)
    x = torch.cat([x0[:, None], others], dim=1)
    log_weights = torch.zeros(x.shape[:2], dtype=torch.float64, device=x.device)
    return Swarm(x, log_weights, torch.arange(num_particles, device=x.device).expand(log_weights.shape))


def beside(step: Step, known: Known, x0: Tensor, table: list[Level]) -> Step:
    """A step that puts given entries back on their path from the requests' noise x0 (B, *D), the same for all particles."""
    particles = known.with_particles()

    def kept(swarm: Swarm, number: int) -> Stepped:
        stepped, after = step(swarm, number), table[number + 1]
        ends = (1.0, 0.0) if number + 2 == len(table) else (after.alpha, after.sigma)
        return stepped._replace(x=particles.on_path(stepped.x, x0[:, None], *ends))

    return kept


def follow(
    swarm: Swarm, step: Step, num_steps: int, generator: Generator, *, resample_below: float, ess_floor: float = 0.0
) -> tuple[Swarm, Trace]:
    """Take all steps; resample a swarm, by systematic positions, where ESS < `resample_below` K.

    Tempered weights end at ESS = `ess_floor` K up to rounding, so there an ESS of `resample_below` K counts as below it.

    Args:
        swarm: the initial swarm.
        step: one step of all swarms.
        num_steps: number of steps.
        generator: generator for resampling, on the swarm's device.
        resample_below: share of K; with 0 swarms are never resampled, and only the final pick is by weight.
        ess_floor: each step's weights are tempered so that ESS >= this share of K, as in Feynman-Kac correction; 0: never.

    Raises:
        CompbenchError: particles or weights are not finite at the end.
    """
    num_particles = swarm.x.shape[1]
    trigger = resample_below * num_particles + (RESOLUTION if ess_floor > 0 else 0.0)
    sizes = []
    powers = torch.zeros((), dtype=torch.float64, device=swarm.x.device)
    for number in range(num_steps):
        stepped = step(swarm, number)
        gained = stepped.log_weight.double()
        if ess_floor > 0 and num_particles > 1:
            power = temper(swarm.log_weights, gained, ess_floor * num_particles)  # (B, 1)
            gained, powers = power * gained, powers + power.mean()
        swarm = swarm._replace(x=stepped.x, log_weights=swarm.log_weights + gained)
        if num_particles == 1:
            continue
        size = ess(swarm.log_weights)
        sizes.append(size.mean())
        if resample_below > 0:
            swarm = _resampled(swarm, size < trigger, generator)
    if not bool(swarm.x.isfinite().all() & swarm.log_weights.isfinite().all()):
        raise CompbenchError("the sampler diverged: particles or weights are not finite; take more steps (budget.sample_steps).")
    alive = torch.zeros_like(swarm.ancestors, dtype=torch.bool).scatter(1, swarm.ancestors, True)
    counts = torch.stack(sizes).tolist() if sizes else [1.0] * num_steps
    return swarm, Trace(
        clipped=0.0,
        distinct_ancestors=float(alive.sum(1).double().mean()),
        ess=tuple(counts),
        tempered=float(powers) / num_steps if ess_floor > 0 and num_particles > 1 else 1.0,
    )


def _resampled(swarm: Swarm, tired: Tensor, generator: Generator) -> Swarm:
    """Resample the swarms marked in `tired` (B,); the others do not change."""
    count, num_particles = swarm.log_weights.shape
    chosen = resample(swarm.log_weights, positions(count, num_particles, generator))  # (B, K)
    chosen = torch.where(tired[:, None], chosen, torch.arange(num_particles, device=chosen.device))
    flat = (chosen + torch.arange(count, device=chosen.device)[:, None] * num_particles).flatten()
    return Swarm(
        swarm.x.flatten(0, 1).index_select(0, flat).view_as(swarm.x),
        torch.where(tired[:, None], 0.0, swarm.log_weights),
        swarm.ancestors.gather(1, chosen),
    )
