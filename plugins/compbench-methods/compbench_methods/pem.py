"""Parallel energy minimisation: particles denoised, chosen by their composed energy and noised again, round after round.

pem         Parallel energy minimisation with learnt energies: trips to the data, a choice by energy there, and back to noise.
pem-oracle  Parallel energy minimisation with the task's exact densities.

    E(x, s) = -sum_a w_a log p_a(x, s)              the energy of the composition at noise s = sigma / alpha
    z_k = trip from s_r to the data with -grad E    reverse steps of a few noise levels, s_r falls from round to round
    i_k ~ softmax(-E(z_., least s) / temperature)   P particles of one answer are resampled where E counts what is broken
    x_k = z_(i_k) + s_(r+1) n,  n ~ N(0, I)         noised again for the next round

Generalizable Reasoning through Compositional Energy Minimization (Oarga & Du 2025, arXiv 2510.20607).  PEM minimises and does
not sample: the answer is the particle with the least energy of all rounds.  A single source is sampled, with one particle.
Learnt energies are networks of (x, t, source) trained by denoising score matching through their gradients, one network for all
sources.

Without trips PEM fails on queens (docs/investigations/constraints-under-noise.md): the product of noised members is not the
noised product.  Above s = 0.7 its energy does not prefer valid boards, and below s = 0.5 no particle changes its board any more.

Theirs: in their public code, at each of 100 levels particles are resampled by softmax(-E) of that level, denoised through all
levels below it, noised back with the same noise and moved one level on.  Each of 128 particles takes 5,150 evaluations.
Ours: each particle takes as many evaluations as the budget has steps; a trip has 3 steps, and at the chosen levels a trip changes
an answer but keeps parts of it.
Why: a particle then costs what it costs in other methods.  An answer has 64 particles, so it takes four times the evaluations of
16 particles of fkc.

Theirs: energies of the noisy level choose, at temperature 1.
Ours: energies at the end of the trip choose, at the least temperature that leaves half of the particles effective.
Why: at noisy levels energies are wrong, and at temperature 1 exact energies leave one particle.

Size: an energy is a plain MLP of three hidden layers of the budget's width, one less than in the score network of the other
methods that sample with particles.  So it has 0.09 of the parameters of `factored` in the plane and 0.06 to 0.1 on
constraints; its training differentiates it twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from compbench import CompbenchError, Context, Method, Problem, Request, hookimpl, regressed
from compbench.api.factors import Weighted
from compbench.flow import score_models, scores
from compbench.flow.compose import Guidance
from compbench.flow.path import VariancePreservingPath, per_sample, point
from compbench.flow.resampling import positions, resample, temper
from compbench.flow.smc import chunk
from compbench.flow.swarms import StepCount, start_swarm, steps_of
from compbench.flow.train import train
from compbench.flow.transfer import numbers

if TYPE_CHECKING:
    from compbench.api.context import Batch

EDGE = score_models.NOISE_EDGE


class OracleSettings(score_models.WeightSettings):
    num_particles: int = Field(64, ge=2, le=1 << 16, description="P: particles of one answer")
    num_steps: StepCount = Field(
        "budget", description="evaluations of a particle (reverse steps and energies); 'budget': the task's number of steps"
    )
    trip_steps: int = Field(3, ge=1, le=1000, description="reverse steps of a trip from a noise level to the data")
    most_noise: float = Field(
        1.5, gt=0, le=100, description="s = sigma / alpha of the second round's trip; the first round starts from pure noise"
    )
    least_noise: float = Field(0.5, gt=0, le=100, description="s of the last round's trip; trips between are even in log s")
    end_noise: float = Field(0.05, gt=0, le=1, description="s at which trips end and energies are compared")
    effective: float = Field(
        0.5, ge=0, lt=1, description="each choice has the least temperature that keeps ESS at this share of P; 0: temperature 1"
    )

    @model_validator(mode="after")
    def _noise_falls(self) -> OracleSettings:
        if not self.most_noise >= self.least_noise > self.end_noise:
            raise ValueError(
                f"noise must not rise from round to round and must fall on a trip, got most_noise={self.most_noise:g}, "
                f"least_noise={self.least_noise:g} and end_noise={self.end_noise:g}"
            )
        return self


class Settings(OracleSettings):
    pass


class Composite(NamedTuple):
    """A composition at some points.

    Attributes:
        log_density: up to a constant, (x (N, D), t) -> (N,).
        score: its gradient, (x (N, D), t) -> (N, D).
    """

    log_density: Callable[[Tensor, float], Tensor]
    score: Callable[[Tensor, float], Tensor]


class EnergyNet(nn.Module):
    """log p(x_t | source) up to a constant: e = -|x|^2 / 2 + g(x, t, source), (B, D), (B,) and (B,) -> (B,)."""

    def __init__(self, dimension: int, sources: tuple[tuple[int, ...], ...], *, width: int, sample_steps: int) -> None:
        super().__init__()
        self.sources, self.sample_steps = sources, sample_steps
        self.guidance: Guidance | None = None  # the task's guidance, set by `build`
        sizes = [dimension + 1 + len(sources), width, width, width]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))
        self.table: Tensor
        self.register_buffer("table", torch.tensor(sources), persistent=False)

    def index(self, condition: Tensor) -> Tensor:
        """Positions of conditions (B, F) among the sources, (B,)."""
        return (condition[:, None] == self.table).all(-1).int().argmax(1)

    def forward(self, x: Tensor, t: Tensor, source: Tensor) -> Tensor:
        known = torch.cat([x, t[:, None], F.one_hot(source, len(self.sources)).to(x.dtype)], dim=1)
        return self.net(known)[:, 0] - x.square().sum(1) / 2


def build(settings: Settings, problem: Problem) -> EnergyNet:
    """The untrained energies of the task's sources."""
    sources = tuple(problem.holdout.seen_cells)
    net = EnergyNet(problem.event.shape[0], sources, width=problem.budget.width, sample_steps=problem.budget.sample_steps)
    net.guidance = Guidance.of(problem)
    return net


def fit(settings: Settings, problem: Problem, ctx: Context) -> EnergyNet:
    """Denoising score matching of the energies' gradients, E |sigma grad e(x_t, t | c) + x0|^2, t uniform."""
    net, path = build(settings, problem), VariancePreservingPath()

    def loss(energy: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        regressed(batch.condition)
        x1 = batch.x1
        x0 = torch.randn(x1.shape, generator=generator, device=x1.device)
        t = torch.rand(len(x1), generator=generator, device=x1.device).clamp(EDGE, 1 - EDGE)
        x_t = point(path, x0, x1, t).requires_grad_(True)
        with torch.autocast(x1.device.type, enabled=False), torch.enable_grad():
            (score,) = torch.autograd.grad(energy(x_t, t, net.index(batch.condition)).sum(), x_t, create_graph=True)
        return (per_sample(path.at(t).sigma, x1) * score + x0).square().mean()

    train(net, loss, problem.federation.pooled(), problem.budget, ctx, twice=True)
    return net


def learnt(net: EnergyNet, members: Sequence[Weighted]) -> Composite:
    """The composition of a network's energies, and of their scores, which are its gradient."""
    cells = [tuple(member.condition[0].tolist()) for member in members]
    if unknown := [cell for cell in cells if cell not in net.sources]:
        raise CompbenchError(f"the energies know the sources {list(net.sources)}, not {unknown[0]}: compose it of those.")

    def log_density(x: Tensor, t: float) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            points, times = x.float(), x.new_full((len(x),), t, dtype=torch.float32)
            total = torch.zeros(len(x), device=x.device)
            for member, cell in zip(members, cells, strict=True):
                source = torch.full((len(x),), net.sources.index(cell), device=x.device)
                total = total + member.weight * net(points, times, source)
        return total

    def score(x: Tensor, t: float) -> Tensor:
        with torch.enable_grad():
            points = x.detach().float().requires_grad_(True)
            (found,) = torch.autograd.grad(log_density(points, t).sum(), points)
        return found.to(x.dtype)

    return Composite(log_density, score)


def exact(members: scores.Members) -> Composite:
    """The composition of a task's own densities."""
    assert members.log_densities is not None
    densities, weights = members.log_densities, members.weights

    def total(each: Tensor) -> Tensor:
        return torch.tensordot(numbers(weights, each.device, each.dtype), each, dims=1)

    return Composite(lambda x, t: total(densities(x, t)), lambda x, t: total(members.scores(x, t)))


def time_of(noise: float) -> float:
    """The time of the variance-preserving path at which sigma / alpha = `noise`, from log(1 + s^2) = -2 log alpha."""
    path = VariancePreservingPath()
    rise = path.beta_max - path.beta_min
    return 1 - (math.sqrt(path.beta_min**2 + 2 * rise * math.log1p(noise**2)) - path.beta_min) / rise


def noise_of(time: float) -> float:
    """s = sigma / alpha of the variance-preserving path at a time."""
    c = VariancePreservingPath().at(torch.tensor(time, dtype=torch.float64))
    return float(c.sigma / c.alpha)


def between(most: float, least: float, count: int) -> list[float]:
    """`count` noise levels from the largest to the smallest, even in their logarithm; only the largest if `count` is 1."""
    return [most * (least / most) ** (number / max(1, count - 1)) for number in range(count)]


def trip(composite: Composite, u: Tensor, noises: Sequence[float], generator: Generator, *, last_noise: bool = False) -> Tensor:
    """Points u = x / alpha from the first noise level to the last by the composition's reverse steps, (N, D).

        u' = d + r^2 (u - d) + s' sqrt(1 - r^2) n,    d = u + s^2 grad_u log p,    r = s' / s

    which draws u' given u and the clean point d (Ho et al. 2020, equation 7).  By default the last step adds no noise.
    """
    for place, (before, after) in enumerate(pairwise(noises)):
        scale = math.sqrt(1 + before**2)  # 1 / alpha
        denoised = u + before**2 / scale * composite.score(u / scale, time_of(before))
        ratio = (after / before) ** 2
        u = torch.lerp(denoised, u, ratio)
        if last_noise or place + 2 < len(noises):
            u = u + after * math.sqrt(1 - ratio) * torch.randn(u.shape, generator=generator, device=u.device, dtype=u.dtype)
    return u


def choose(log_density: Tensor, effective: float, generator: Generator) -> Tensor:
    """Particles drawn by softmax(-E / temperature), (B, P), at the least temperature that keeps ESS at `effective` P (0: 1)."""
    count, size = log_density.shape
    gained = log_density - log_density.amax(1, keepdim=True)
    power = temper(torch.zeros_like(gained), gained, effective * size)
    return resample(power * gained, positions(count, size, generator))


def minimise(composite: Composite, x0: Tensor, settings: OracleSettings, num_steps: int, generator: Generator) -> Tensor:
    """The particle with the least energy of all rounds and all P of each answer, (B, D).

    Args:
        composite: the composition's log density and score.
        x0: each answer's first particle, (B, D).
        num_steps: evaluations of a particle; at least one round is made.
        generator: draws the other particles, the choices and the noise.
    """
    count, size, end = len(x0), settings.num_particles, settings.end_noise
    first, rows = noise_of(EDGE), torch.arange(count, device=x0.device)
    u = start_swarm(x0, size, generator).x.flatten(0, 1) * math.sqrt(1 + first**2)  # (B P, D)
    best, least = x0, torch.full((count,), -math.inf, dtype=torch.float64, device=x0.device)
    levels = [first, *between(settings.most_noise, settings.least_noise, num_rounds(settings, num_steps) - 1)]
    scale, time = math.sqrt(1 + end**2), time_of(end)
    for number, level in enumerate(levels):
        if number:
            u = u + level * torch.randn(u.shape, generator=generator, device=u.device, dtype=u.dtype)
        u = trip(composite, u, between(level, end, settings.trip_steps + 1), generator)
        log_density = composite.log_density(u / scale, time).double().view(count, size)
        found, place = log_density.max(1)
        own = u.view(count, size, -1)
        best, least = torch.where((found > least)[:, None], own[rows, place], best), least.maximum(found)
        chosen = choose(log_density, settings.effective, generator)
        u = own[rows[:, None], chosen].flatten(0, 1)
    return best


def num_rounds(settings: OracleSettings, num_steps: int) -> int:
    """Number of rounds, each of a trip and an energy, that `num_steps` evaluations allow; at least one."""
    return max(1, num_steps // (settings.trip_steps + 1))


def draw(composite: Composite, x0: Tensor, settings: OracleSettings, num_steps: int, generator: Generator) -> Tensor:
    """Samples of a single source, (B, D), by its probability flow from x0, at even times.

    u' = d + r (u - d), r = s' / s (Song et al. 2021, DDIM).  Here an answer is one particle and not P, so it can take 1 +
    `trip_steps` times the steps; with too few steps samples are narrower than their law.
    """
    count = num_steps * (1 + settings.trip_steps)
    noises = [noise_of(EDGE + (time_of(settings.end_noise) - EDGE) * step / count) for step in range(count + 1)]
    u = x0 * math.sqrt(1 + noises[0] ** 2)
    for before, after in pairwise(noises):
        scale = math.sqrt(1 + before**2)  # 1 / alpha
        u = torch.lerp(u + before**2 / scale * composite.score(u / scale, time_of(before)), u, after / before)
    return u


@torch.no_grad()
def sample(
    settings: OracleSettings, model: EnergyNet | score_models.OracleModel, request: Request, ctx: Context
) -> Tensor:  # (B, D)
    """The best particle of each answer's P."""
    generator = score_models.on_device(ctx.generator, request.x0.device)
    num_steps, samples = steps_of(settings.num_steps, model.sample_steps), torch.empty_like(request.x0)
    assert model.guidance is not None
    weights = model.guidance.weights(settings.weight, notes=ctx.notes)
    base = model.sources[0] if isinstance(model, EnergyNet) else model.base
    for alike in scores.like_conditions(request.condition):
        members = scores.merged([one for one in scores.composition(request.condition[alike], base, weights) if one.weight])
        if isinstance(model, EnergyNet):
            composite = learnt(model, members)
        else:
            composite = exact(scores.of_oracle(model.oracle, VariancePreservingPath(), members))
        find = minimise if len(members) > 1 else draw
        for rows in alike.split(chunk(request.x0, settings.num_particles)):
            samples[rows] = find(composite, request.x0[rows], settings, num_steps, generator)
    if not bool(samples.isfinite().all()):
        raise CompbenchError("the sampler diverged: particles are not finite; take more steps (budget.sample_steps).")
    return samples


def evaluations(settings: OracleSettings, problem: Problem) -> int:
    """Every member of the composition for every particle, at each step of each trip and once at its end."""
    rounds = num_rounds(settings, steps_of(settings.num_steps, problem.budget.sample_steps))
    return settings.num_particles * score_models.num_members(problem) * rounds * (settings.trip_steps + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(Method, sample=sample, evaluations=evaluations, kinds=("vector",), version=3)
    return (
        both(name="pem", settings=Settings, fit=fit, build=build, needs=("base",)),
        both(name="pem-oracle", settings=OracleSettings, fit=score_models.oracle_of, needs=("base",), oracle=True),
    )
