"""The common parts of score-composing methods: the model of each task, its fit, and samples from compositions of it.

Perturbation tasks (those with a base combination) are composed around the base: for vectors the model is a noise network of the
sources, for images a velocity network of the sources.  Every other task gets a velocity network that is trained on NULL, single
factors, whole conditions and everything in between (`masking`), and is composed around NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench.api.factors import Weighted
from compbench.api.interfaces import MethodSettings
from compbench.flow import scores
from compbench.flow.compose import Guidance, GuidanceWeight
from compbench.flow.expert_nets import MarginalExperts, SourcesNet, experts_loss
from compbench.flow.masking import DropoutSettings, masked
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.noise import NoiseNet, build_noise_net, fit_noise_net
from compbench.flow.path import (
    GaussianPath,
    LinearPath,
    VariancePreservingPath,
)
from compbench.flow.smc import ComposedScore, Drawn, Settings, Trace, chunk, draw, given, mean_trace, pick
from compbench.flow.solver import Known
from compbench.flow.swarms import Step, StepCount, beside, follow, levels, start_swarm, steps_of
from compbench.flow.train import flow_matching_loss, train
from compbench.system.devices import unrounded_products
from compbench.system.errors import Refused

if TYPE_CHECKING:
    from compbench.api.context import Batch, Context
    from compbench.api.interfaces import Problem, Request

FIT_VERSION = 1
"""Version of the fit; raise it when fits give other models."""

LONGEST_TRACE = 50
"""Largest number of effective sample sizes in a record, evenly spaced over the steps, so that records stay small."""

NOISE_EDGE = 1e-5
"""Distance of times from the ends of the variance-preserving path, because scores are divided by sigma."""

VELOCITY_EDGE = 1e-3
"""Distance of times from the ends of the linear path, because f is 1 / t and scores are divided by 1 - t."""


MOST_PILOTS = 16
"""Largest number of requests whose conditions pilots use, if requests have different conditions."""


TEMPERED = 0.5
"""Share of a swarm's particles that must stay effective after each step's weights, if scores come from velocities: a network's
errors grow with the dimension, and otherwise one particle would get all the weight (see fkc)."""


class OracleModel(NamedTuple):
    """A task's analytic scores in place of a trained model."""

    oracle: scores.Oracle
    base: tuple[int, ...]
    sample_steps: int
    guidance: Guidance


class WeightSettings(MethodSettings):
    """Settings that every composition needs; no others are needed with the task's own scores."""

    weight: GuidanceWeight = Field(
        "task",
        description="w of each perturbation of the base, or of each slice of the holdout's factors around NULL; "
        "'task': as all composed rows",
    )


class SwarmSettings(WeightSettings):
    """Further settings of samplers with weighted particles."""

    num_particles: int = Field(16, ge=1, le=1 << 16, description="K: particles of one sample's swarm")
    resample_below: float = Field(0.5, ge=0, le=1, description="resample where ESS < this share of K; 0: never")
    num_steps: StepCount = Field("budget", description="steps from noise to data; 'budget': as the task's budget has it")


class ModelSettings(DropoutSettings, WeightSettings):
    """Settings that the model of a task depends on."""

    experts: bool = Field(False, description="one model per source instead of one conditional model")


def build(settings: ModelSettings, problem: Problem) -> NoiseNet | VelocityNet | SourcesNet | MarginalExperts:
    """The untrained model of a task."""
    if has_noise_net(problem):
        return build_noise_net(problem, experts=settings.experts)
    if settings.experts:
        return MarginalExperts([monolithic_net(problem) for _ in range(len(problem.space) + 1)], problem.base)
    net = monolithic_net(problem)
    return SourcesNet(net, problem.base) if problem.base else net


def fit(settings: ModelSettings, problem: Problem, ctx: Context) -> NoiseNet | VelocityNet | SourcesNet | MarginalExperts:
    """Fit the model of a task; the fit does not depend on the sampler."""
    if has_noise_net(problem):
        return fit_noise_net(problem, ctx, experts=settings.experts)
    net = build(settings, problem)

    def loss(velocity: Callable[..., Any], batch: Batch, generator: Generator) -> Tensor:
        if isinstance(net, MarginalExperts):
            return experts_loss(velocity, batch, generator, base=problem.base)
        if isinstance(net, SourcesNet):
            return flow_matching_loss(velocity, batch, generator)
        return flow_matching_loss(velocity, batch._replace(condition=masked(batch.condition, settings.law, generator)), generator)

    train(net, loss, problem.federation.pooled(), problem.budget, ctx)
    return net


def fit_facts(settings: ModelSettings, problem: Problem) -> dict[str, object]:
    """What a fit depends on besides the problem; equal facts mean equal models (see `Method.shared_fit`)."""
    own = {} if composes_around_base(problem) or settings.experts else settings.law._asdict()
    return {"fit": "compbench.flow.score_models", "version": FIT_VERSION, "experts": settings.experts, **own}


def oracle_of(settings: WeightSettings, problem: Problem, ctx: Context) -> OracleModel:
    """The task's oracle as a model.  Raises Refused if the task has none."""
    if problem.oracle is None:
        raise Refused("this task has no analytic scores; run the method without '-oracle'.")
    return OracleModel(problem.oracle, problem.base, problem.budget.sample_steps, Guidance.of(problem))


Model = NoiseNet | VelocityNet | SourcesNet | MarginalExperts | OracleModel
"""A model whose members are composed."""


def composes_around_base(problem: Problem) -> bool:
    """Whether a task's compositions are around a base combination; its model then has no NULL."""
    return bool(problem.base)


def has_noise_net(problem: Problem) -> bool:
    """Whether a task's model is a noise network of its sources."""
    return composes_around_base(problem) and problem.event.kind == "vector"


def has_score_at_data(model: Model) -> bool:
    """Whether scores are finite where the noise ends: a velocity network's score is divided by sigma = 0, others are not."""
    return isinstance(model, NoiseNet | OracleModel)


class Composition(NamedTuple):
    """Some of a batch's requests, and their composition.

    Attributes:
        rows: their positions in the batch.
        members: scores of the composition at particles of these requests, from networks in the context's precision.
        exact: the same from networks in fp32 without rounded products, for differences of scores at near points.
        path: the path that the scores belong to.
        edge: smallest distance of times from 0 and 1.
        pilots: the same composition for a sampler's pilot points.
        alike: whether all requests have the same composition, from a noise network or an oracle.
        known: given entries of these requests.
        around_base: whether the members are perturbations of a base, so that no factor is left open.
    """

    rows: Tensor
    members: scores.Members
    exact: scores.Members
    path: GaussianPath
    edge: float
    pilots: scores.Pilots
    alike: bool
    known: Known | None = None
    around_base: bool = False

    @property
    def led(self) -> ComposedScore | None:
        """The composed score of swarms conditioned on given entries; None without given entries."""
        return None if self.known is None else given(self.members.composed, self.path, self.known.with_particles())


Compose = Callable[[Tensor, Sequence[int]], list[Weighted]]
"""(conditions (B, F), base) -> their composition."""


def perturbations(model: Model, weight: GuidanceWeight, ctx: Context, *, merge: bool = False) -> Compose:
    """Each factor's perturbation of the base, or its slice around NULL, with the setting's weight or the task's.

    The weight is added to the context's notes.  `merge` combines equal members around a base into one.
    """
    assert model.guidance is not None  # `build` and `oracle_of` give every model the task's guidance
    weights = model.guidance.weights(weight, notes=ctx.notes)

    def compose(condition: Tensor, base: Sequence[int]) -> list[Weighted]:
        members = scores.composition(condition, base, weights)
        return scores.merged(members) if merge and base else members

    return compose


def compositions(
    model: Model, request: Request, ctx: Context, *, compose: Compose, num_particles: int = 1, least_rows: int = 1
) -> Iterator[Composition]:
    """Split the batch into parts with one composition each, small enough for K particles per request to fit in memory.

    Args:
        model: a model from `fit` or `oracle_of`.
        request: conditions, x0 and given entries.
        ctx: the stage's context, for its precision.
        compose: condition -> composition.
        num_particles: K.
        least_rows: smallest number of requests in a part of a velocity network, if there are so many with that composition.
    """
    size = chunk(request.x0, num_particles)
    if isinstance(model, NoiseNet | OracleModel):  # as in `has_score_at_data`
        path: GaussianPath = VariancePreservingPath()
        base = model.sources[0] if isinstance(model, NoiseNet) else model.base
        for alike in scores.like_conditions(request.condition):
            for rows in alike.split(size):
                weighted = [member for member in compose(request.condition[rows], base) if member.weight]
                if isinstance(model, NoiseNet):
                    plain = scores.of_noise_net(model, path, weighted)
                    members, exact = _computed(plain, ctx.autocast), _computed(plain, unrounded_products)
                else:
                    members = exact = scores.of_oracle(model.oracle, path, weighted)
                yield Composition(rows, members, exact, path, NOISE_EDGE, scores.Pilots(members, 1), True, around_base=True)
        return
    known, base = Known.of(request), () if isinstance(model, VelocityNet) else model.base
    everyone = [torch.arange(len(request.x0), device=request.x0.device)]
    for alike in scores.like_conditions(request.condition) if base else everyone:
        for rows in alike.split(size) if least_rows == 1 else _evenly(alike, size, least_rows):
            plain, few = (
                scores.of_velocity_net(model, compose(request.condition[some], base)) for some in (rows, rows[:MOST_PILOTS])
            )
            members, exact = _computed(plain, ctx.autocast), _computed(plain, unrounded_products)
            own = known and Known(known.values[rows], known.mask[rows])
            pilots = scores.Pilots(_computed(few, ctx.autocast), min(len(rows), MOST_PILOTS))
            yield Composition(rows, members, exact, LinearPath(), VELOCITY_EDGE, pilots, False, own, bool(base))


def _evenly(rows: Tensor, size: int, least: int) -> tuple[Tensor, ...]:
    """Rows in parts of nearly equal lengths: at least `least`, if there are so many, and at most `size`, if `least` allows."""
    return rows.tensor_split(max(1, min(-(-len(rows) // size), len(rows) // least)))


def _of_all_rows(composed: ComposedScore) -> Callable[[slice], ComposedScore]:
    """The same composed score for any requests."""
    return lambda rows: composed


def draw_composition(
    model: Model,
    request: Request,
    ctx: Context,
    *,
    settings: Settings,
    num_particles: int,
    weight: GuidanceWeight,
) -> Drawn:
    """One sample per request from the composition of its condition, (B, *D).

    Args:
        model: a model from `fit` or `oracle_of`.
        request: conditions and x0, which is each swarm's first particle.
        ctx: the stage's context; its notes receive the swarms' traces.
        settings: clip, resampling and noise; the number of steps is the model's, the edge the composition's.
        num_particles: K.
        weight: w of each factor's perturbation (or slice), or "task".

    Raises:
        CompbenchError: the sampler diverged, or the composition is not a distribution.
    """
    generator = on_device(ctx.generator, request.x0.device)
    settings = settings._replace(num_steps=model.sample_steps)
    samples = torch.empty_like(request.x0)
    traces, shares = [], []
    for part in compositions(model, request, ctx, compose=perturbations(model, weight, ctx), num_particles=num_particles):
        own = settings._replace(edge=part.edge, last_noise=part.alike)
        start = request.x0[part.rows]
        drawn = draw(_of_all_rows(part.members.composed), part.path, start, num_particles, own, generator, known=part.known)
        samples[part.rows] = drawn.x
        traces.append(drawn.trace)
        shares.append(len(part.rows) / len(samples))
    drawn = Drawn(samples, mean_trace(traces, shares))
    if num_particles > 1:
        note(drawn.trace, ctx)
    return drawn


def draw_swarms(
    model: Model,
    request: Request,
    ctx: Context,
    step_of: Callable[[Composition, int, Generator], Step],
    *,
    settings: SwarmSettings,
    num_pilots: int = 0,
    least_rows: int = 1,
) -> Tensor:
    """One sample per request by steps that change particles' weights, (B, *D); the context's notes receive the swarms' trace.

    Args:
        model: a model from `fit` or `oracle_of`.
        request: conditions and x0, which is each swarm's first particle.
        ctx: the stage's context.
        step_of: (composition, number of steps, generator of its noise) -> its step.
        settings: particles, steps, resampling and weight.
        num_pilots: extra swarms that join if all requests share one composition; their samples are discarded.
        least_rows: smallest number of requests that take a step together, as in `compositions`.
    """
    generator = on_device(ctx.generator, request.x0.device)
    num_particles, num_steps = settings.num_particles, steps_of(settings.num_steps, model.sample_steps)
    samples, traces, shares = torch.empty_like(request.x0), [], []
    compose = perturbations(model, settings.weight, ctx, merge=True)
    parts = compositions(model, request, ctx, compose=compose, num_particles=num_particles, least_rows=least_rows)
    for part in parts:
        x0 = request.x0[part.rows]
        if part.alike and num_pilots:
            own = torch.randn(num_pilots, *x0.shape[1:], generator=generator, device=x0.device, dtype=x0.dtype)
            x0 = torch.cat([x0, own])
        swarm = start_swarm(x0, num_particles, generator)
        step = step_of(part, num_steps, generator)
        if part.known is not None:
            step = beside(step, part.known, x0, levels(part.path, num_steps, part.edge))
        ess_floor = 0.0 if part.alike else TEMPERED
        swarm, trace = follow(swarm, step, num_steps, generator, resample_below=settings.resample_below, ess_floor=ess_floor)
        samples[part.rows] = pick(swarm, generator)[: len(part.rows)]
        traces.append(trace)
        shares.append(len(part.rows) / len(samples))
    if num_particles > 1:
        note(mean_trace(traces, shares), ctx)
    return samples


def note(trace: Trace, ctx: Context) -> None:
    """Write a thinned trace into the context's notes, which the record keeps."""
    every = -(-len(trace.ess) // LONGEST_TRACE)
    ctx.notes |= trace._replace(ess=tuple(round(size, 4) for size in trace.ess[::every]))._asdict()


def path_of(problem: Problem) -> tuple[GaussianPath, float]:
    """The path of a task's model, and the smallest distance of times from its ends."""
    return (VariancePreservingPath(), NOISE_EDGE) if has_noise_net(problem) else (LinearPath(), VELOCITY_EDGE)


def num_members(problem: Problem) -> int:
    """Network evaluations of one composition: NULL or the base, and one per factor."""
    return len(problem.space) + 1


def _computed(members: scores.Members, precision: Callable[[], AbstractContextManager[object]]) -> scores.Members:
    """Members whose networks run in a precision; S and its gap are sums of their scores in fp32.

    Under autocast the sums would be bf16, and in high dimension their rounding would be larger than an acceptance's log ratio.
    """

    def within(x: Tensor, t: float) -> Tensor:
        with precision():
            return members.scores(x, t).float()

    return members._replace(scores=within, composed=scores.of_members(within, members.weights))


def on_device(generator: Generator, device: torch.device) -> Generator:
    """The generator itself on a CPU; on a GPU, a new generator that it seeds."""
    if device.type == "cpu":
        return generator
    return Generator(device).manual_seed(int(torch.randint(2**62, (), generator=generator)))
