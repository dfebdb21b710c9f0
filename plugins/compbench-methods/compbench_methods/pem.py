"""Parallel energy minimisation: particles that follow the composed score and are resampled by their composed energy.

pem         Parallel energy minimisation with learnt energies: particles resampled by softmax(-E) at every noise level.
pem-oracle  Parallel energy minimisation with the task's exact densities.

    E(x, t) = -sum_a w_a log p_a(x, t)         the energy of the composition at noise level t
    i_k ~ softmax(-E(x_., t) / temperature)    P particles of one answer resampled at each level
    x <- reverse step of the diffusion with the composed score -grad E, noise included

Generalizable Reasoning through Compositional Energy Minimization (2025), whose algorithm this follows as others describe it: the
whole energy chooses at each level, and not its change, as the weights of Feynman-Kac correctors do.  So PEM minimises and does
not sample: answers gather where the energy is least, and the answer is the particle with the least energy after the last step.
A source alone is sampled, with one particle.  Learnt energies are networks of (x, t, source) trained by denoising score matching
through their gradients, one network for all sources; P, the temperature and the schedule are ours.  At temperature 1 one particle
has all the weight from the first level on: on `queens-8` with exact densities and 64 particles, none of 40 answers is valid; at
the dimension's 64, 9 of 40 are, and 17 of 40 with 256 particles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from compbench import CompbenchError, Context, Method, Problem, Request, hookimpl
from compbench.api.factors import Weighted
from compbench.flow import score_models, scores
from compbench.flow.compose import Guidance
from compbench.flow.path import VariancePreservingPath, per_sample, point
from compbench.flow.resampling import positions, resample
from compbench.flow.smc import Coefficient, move, schedule
from compbench.flow.swarms import StepCount, start_swarm, steps_of
from compbench.flow.train import train

if TYPE_CHECKING:
    from compbench.api.context import Batch

EDGE = score_models.NOISE_EDGE


class OracleSettings(score_models.WeightSettings):
    num_particles: int = Field(64, ge=2, le=1 << 16, description="P: particles of one answer")
    temperature: Annotated[float, Field(gt=0, le=1e6)] | Literal["dimension"] = Field(
        "dimension", description="divides the energies that choose particles; 'dimension': D, so that it is an energy per number"
    )
    num_steps: StepCount = Field("budget", description="noise levels; 'budget': as the task's budget has it")


class Settings(OracleSettings):
    pass


Composite = Callable[[Tensor, float], tuple[Tensor, Tensor]]
"""A composition's log density, up to a constant, and its score: (x (N, D), t) -> ((N,), (N, D))."""


class EnergyNet(nn.Module):
    """log p(x_t | source) up to a constant: e = -|x|^2 / 2 + g(x, t, source), (B, D), (B,) and (B,) -> (B,)."""

    def __init__(self, dimension: int, sources: tuple[tuple[int, ...], ...], *, width: int, sample_steps: int) -> None:
        super().__init__()
        self.sources, self.sample_steps = sources, sample_steps
        self.guidance: Guidance | None = None  # of the task; `build` gives it
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
        x1 = batch.x1
        x0 = torch.randn(x1.shape, generator=generator, device=x1.device)
        t = torch.rand(len(x1), generator=generator, device=x1.device).clamp(EDGE, 1 - EDGE)
        x_t = point(path, x0, x1, t).requires_grad_(True)
        with torch.autocast(x1.device.type, enabled=False), torch.enable_grad():
            (score,) = torch.autograd.grad(energy(x_t, t, net.index(batch.condition)).sum(), x_t, create_graph=True)
        return (per_sample(path.at(t).sigma, x1) * score + x0).square().mean()

    train(net, loss, problem.federation.pooled(), problem.budget, ctx)
    return net


def learnt(net: EnergyNet, members: Sequence[Weighted]) -> Composite:
    """The composition of a network's energies and, by its gradient, of their scores."""
    cells = [tuple(member.condition[0].tolist()) for member in members]
    if unknown := [cell for cell in cells if cell not in net.sources]:
        raise CompbenchError(f"the energies know the sources {list(net.sources)}, not {unknown[0]}: compose it of those.")

    def values(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            point_, times = x.detach().float().requires_grad_(True), x.new_full((len(x),), t, dtype=torch.float32)
            total = torch.zeros(len(x), device=x.device)
            for member, cell in zip(members, cells, strict=True):
                source = torch.full((len(x),), net.sources.index(cell), device=x.device)
                total = total + member.weight * net(point_, times, source)
            (score,) = torch.autograd.grad(total.sum(), point_)
        return total.detach(), score.to(x.dtype)

    return values


def exact(members: scores.Members) -> Composite:
    """The composition of a task's own densities."""
    assert members.log_densities is not None
    densities, weights = members.log_densities, members.weights

    def values(x: Tensor, t: float) -> tuple[Tensor, Tensor]:
        logs, each = densities(x, t), members.scores(x, t)
        total, score = torch.zeros_like(logs[0]), torch.zeros_like(each[0])
        for weight, log, own in zip(weights, logs, each, strict=True):
            total, score = total.add(log, alpha=weight), score.add(own, alpha=weight)
        return total, score

    return values


def minimise(
    composite: Composite, x0: Tensor, settings: OracleSettings, num_steps: int, generator: Generator, *, composed: bool
) -> Tensor:
    """P particles of each answer down all noise levels; the one with the least energy of each, (B, D).

    Args:
        composite: the composition's log density and score.
        x0: each answer's first particle, (B, D).
        num_steps: noise levels.
        generator: of the other particles, the resampling and the steps' noise.
        composed: whether there is more than one member; a source alone is sampled with one particle, and nothing is minimised.
    """
    count, size = len(x0), settings.num_particles if composed else 1
    temperature = x0.shape[1] if settings.temperature == "dimension" else settings.temperature
    x = start_swarm(x0, size, generator).x  # (B, P, D)
    levels: list[Coefficient] = schedule(VariancePreservingPath(), num_steps, EDGE)
    for number, at in enumerate(levels[:num_steps]):
        log_density, score = composite(x.flatten(0, 1), at.time)
        chosen = resample(log_density.view(count, size).double() / temperature, positions(count, size, generator))
        rows = (chosen + torch.arange(count, device=x.device)[:, None] * size).flatten()
        x, score = x.flatten(0, 1)[rows].view_as(x), score[rows].view_as(x)
        last = number + 1 == num_steps
        x = move(x, score, at, 1 / num_steps, None if last else generator)
    final, _ = composite(x.flatten(0, 1), 1 - EDGE)
    best = final.view(count, size).argmax(1)
    return x[torch.arange(count, device=x.device), best]


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
        samples[alike] = minimise(composite, request.x0[alike], settings, num_steps, generator, composed=len(members) > 1)
    if not bool(samples.isfinite().all()):
        raise CompbenchError("the sampler diverged: particles are not finite; take more steps (budget.sample_steps).")
    return samples


def evaluations(settings: OracleSettings, problem: Problem) -> int:
    """Every member of the composition for every particle, at each level and once at the end."""
    steps = steps_of(settings.num_steps, problem.budget.sample_steps)
    return settings.num_particles * score_models.num_members(problem) * (steps + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    both = partial(Method, sample=sample, evaluations=evaluations, kinds=("vector",))
    return (
        both(name="pem", settings=Settings, fit=fit, build=build, needs=("base",)),
        both(name="pem-oracle", settings=OracleSettings, fit=score_models.oracle_of, needs=("base",), oracle=True),
    )
