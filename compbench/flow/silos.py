"""Common parts of the decentralised methods: settings, shares of a budget, local experts, and a silo's reports.

The budget is per party, because silos train in parallel: every silo takes `train_steps` optimiser steps over all stages and
rounds.  A server that trains a network of its own takes `train_steps` too.  `centralised`, whose data is pooled, takes the steps
of all silos together, so that it sees as many examples as they do.  Other methods on pooled data take one silo's steps, and
their rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from compbench.api.context import Steps
from compbench.api.interfaces import MethodSettings
from compbench.flow.compose import GuidanceWeight, compose
from compbench.flow.experts import Experts
from compbench.flow.independence import Ramp, decentralised_loss
from compbench.flow.masking import Dropout, Law, Masking
from compbench.flow.mixture import Inference, LabelRouter, Mixture, composition, label_counts, sample_mixture
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import Velocity, answer
from compbench.flow.train import train

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.factors import Weighted
    from compbench.api.federation import LentSilo
    from compbench.api.interfaces import Budget, Problem, Request

NUM_LABELS = 4096
"""Number of labels that a silo reports, drawn from its examples with replacement; a student's conditions are drawn from them."""

GLOBAL_GENERATOR = Lock()
"""A lock held while torch's global generator is in use, because silos may run in parallel threads."""


class DecentralisedSettings(MethodSettings):
    """Settings of every decentralised method: masks of equation 7, penalty, composition."""

    head_width: float = Field(
        1.0, gt=0, le=8, description="hidden units of the head over the protocol's 6 C (1536 at the paper's width)"
    )
    pi_full: float = Field(0.7, ge=0, le=1, description="share of training conditions that are whole (eq. 7; not in the paper)")
    pi_marginal: float = Field(0.2, ge=0, le=1, description="share that tells one factor alone (eq. 7; not in the paper)")
    pi_unconditional: float = Field(0.1, ge=0, le=1, description="share that tells nothing (eq. 7; not in the paper)")
    ci_weight: float = Field(
        1.0, ge=0, le=1000, description="lambda of the conditional-independence penalty, where it is on (not in the paper)"
    )
    weight: GuidanceWeight = Field(
        "task", description="w of the composition around NULL (eq. 5) on the holdout's factors; 'task': as all composed rows"
    )
    inference: Inference = Field(
        "composed", description="samples follow the composition around NULL (eq. 5), or the velocity of the whole condition"
    )

    @model_validator(mode="after")
    def _masks_sum_to_one(self) -> DecentralisedSettings:
        total = self.pi_full + self.pi_marginal + self.pi_unconditional
        if abs(total - 1) > 1e-6:
            raise ValueError(f"pi_full + pi_marginal + pi_unconditional must be 1, got {total:g}")
        return self

    def num_members(self, problem: Problem) -> int:
        """Number of conditions that a composition evaluates at each step."""
        return len(problem.space) + 1 if self.inference == "composed" else 1

    @property
    def masking(self) -> Masking:
        return Masking(self.pi_full, self.pi_marginal, self.pi_unconditional)


class PooledSettings(DecentralisedSettings):
    """Settings of CoInD on pooled data; its masks are those of the authors' code or of equation 7."""

    masks: Literal["independent", "shares"] = Field(
        "independent",
        description="'independent' masks each factor by itself with chance factor_dropout, as CoInD's code does; "
        "'shares' keeps all, one or none by pi_full, pi_marginal and pi_unconditional",
    )
    factor_dropout: float = Field(0.2, ge=0, lt=1, description="chance that a factor is masked where masks are independent")

    @property
    def law(self) -> Law:
        """The law of the masks of training conditions."""
        return Dropout(self.factor_dropout) if self.masks == "independent" else self.masking


class FirstStage(NamedTuple):
    """The silos' results: states of networks, and reports about their labels.

    Attributes:
        states: a network's state dict for each silo.
        counts: number of examples of each value of each factor, (n, sum of sizes).
        labels: conditions drawn from each silo, (n, number requested, F).
    """

    states: list[dict[str, Tensor]]
    counts: Tensor
    labels: Tensor


def network(settings: DecentralisedSettings, problem: Problem) -> VelocityNet:
    """The untrained network that silos, students and servers start from."""
    return monolithic_net(problem, head_width=settings.head_width)


def split(budget: Budget, share: float) -> tuple[Budget, Budget]:
    """A party's budget split in two: the second part gets `share` of its steps and warm-up; each part has at least one step.

    A part's warm-up is at most half of it.
    """
    second = min(max(1, round(budget.train_steps * share)), max(1, budget.train_steps - 1))
    first = max(1, budget.train_steps - second)

    def part(steps: int, share: float) -> Budget:
        warmup = min(round(budget.warmup_steps * share), steps // 2)
        return budget.model_copy(update={"train_steps": steps, "warmup_steps": warmup})

    return part(first, 1 - share), part(second, share)


@dataclass(frozen=True)
class Recipe:
    """An untrained model that every party builds itself, so that it need not be sent: code, plain facts and a seed.

    Attributes:
        build: () -> model, its initial weights from torch's global generator; it carries no tensors.
        seed: seed of that generator.
    """

    build: Callable[[], nn.Module]
    seed: int

    def __call__(self) -> nn.Module:
        """The model, the same at each call; torch's global generator is not changed."""
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return self.build()


def recipe(build: Callable[..., nn.Module], settings: MethodSettings, problem: Problem) -> Recipe:
    """The recipe of a method's `build(settings, problem)`, with the part of the problem that every party knows: no data."""
    known = replace(problem, federation=None, extension=None, oracle=None, singles=None)  # type: ignore[arg-type]
    return Recipe(partial(build, settings, known), torch.initial_seed())


def local_experts(
    make: Recipe,
    fit: Callable[[nn.Module, LentSilo, dict[str, Tensor], Context], object],
    problem: Problem,
    ctx: Context,
    *,
    stage: str,
    steps: Steps,
    recipients: int = 1,
    goes_on: bool = False,
    num_labels: int = 0,
) -> FirstStage:
    """Train a network on every silo and collect them, with the silos' reports about their labels.

    Args:
        make: every network's initial state; each party builds it itself, so it is not sent.
        fit: (network, silo, received state, context) trains the network in place; it carries no tensors.
        problem: the problem with its federation and space.
        ctx: the stage's context.
        stage: name of the stage.
        steps: counter for the steps of all silos.
        recipients: number of receivers of each network: 1 for a server, n - 1 for all peers.
        goes_on: whether every silo first receives its peers' networks of the last stage, and continues from its own network.
        num_labels: number of conditions that each silo reports.
    """
    sizes = problem.space.sizes
    small = torch.uint8 if max(sizes) <= torch.iinfo(torch.uint8).max + 1 else torch.int16

    def work(silo: LentSilo, received: dict[str, Tensor], own: Context) -> dict[str, Tensor]:
        expert = make()
        if goes_on:
            expert.load_state_dict(network_of(received, silo.number))
        fit(expert, silo, received, own)
        labels = silo.labels()
        rows = torch.randint(len(labels), (num_labels,), generator=own.generator)
        return {**_named(expert.state_dict()), "counts": label_counts(labels, sizes), "labels": labels.cpu()[rows].to(small)}

    like = {
        **_named(make().state_dict()),
        "counts": torch.empty(sum(sizes)),
        "labels": torch.empty(num_labels, len(sizes), dtype=small),
    }
    found = problem.federation.run(work, ctx, like=like, stage=stage, gather=goes_on, recipients=recipients, steps=steps)
    states = [part_of(state, "net.") for state in found]
    return FirstStage(
        states, torch.stack([state["counts"] for state in found]), torch.stack([state["labels"] for state in found]).long()
    )


def first_stage(
    settings: DecentralisedSettings,
    problem: Problem,
    ctx: Context,
    *,
    budget: Budget,
    steps: Steps,
    local_ci: bool,
    ramp: float = 0.0,
    recipients: int = 1,
    num_labels: int = 0,
) -> tuple[Recipe, FirstStage]:
    """Stage I of DCFM, and all of DDM's training: experts that see only their own silo.

    Args:
        settings: masks, lambda, network.
        problem: the problem with its federation and space.
        ctx: the stage's context.
        budget: budget of one silo.
        steps: counter for the steps of all silos.
        local_ci: whether to add the penalty of equation 9.
        ramp: share of the steps over which lambda grows from 0.
        recipients, num_labels: as in `local_experts`.

    Returns:
        the untrained network's recipe, and the silos' results.
    """
    make = recipe(network, settings, problem)

    def fit(expert: nn.Module, silo: LentSilo, received: dict[str, Tensor], own: Context) -> None:
        source = Ramp(silo, round(ramp * budget.train_steps))
        loss = decentralised_loss(settings.masking, settings.ci_weight if local_ci else 0.0, source.share)
        train(expert, loss, source, budget, own)

    found = local_experts(make, fit, problem, ctx, stage="local", steps=steps, recipients=recipients, num_labels=num_labels)
    return make, found


def part_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries of a state whose names begin with a prefix, under their names without the prefix."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def network_of(received: Mapping[str, Tensor], silo: int) -> dict[str, Tensor]:
    """A silo's network among the states that were gathered from all silos."""
    return part_of(received, f"{silo}.net.")


def label_router(trained: FirstStage, problem: Problem) -> LabelRouter:
    """The router from the silos' label counts."""
    return LabelRouter(trained.counts, problem.space.sizes)


def known_values(counts: Tensor, sizes: Sequence[int]) -> Tensor:
    """Which silo has which value of which factor: label counts (n, sum of sizes) -> bool (n, F, largest size)."""
    own = (counts > 0).split(list(sizes), dim=1)
    return torch.stack([nn.functional.pad(part, (0, max(sizes) - part.shape[1])) for part in own], dim=1)


def untrained_mixture(net: VelocityNet, problem: Problem) -> Mixture:
    """A mixture of the right shapes, into which stored weights can be loaded."""
    silos = len(problem.federation)
    experts = Experts(net, [net.state_dict()] * silos)
    router = LabelRouter(torch.ones(silos, sum(problem.space.sizes)), problem.space.sizes)
    return Mixture(experts, router, sample_steps=problem.budget.sample_steps)


def composed_velocity(net: VelocityNet, members: Sequence[Weighted], ctx: Context) -> Velocity:
    """The velocity of a composition by one network, in the form that solvers need."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return compose(net, x, t, members)

    return velocity


def _named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"net.{name}": value for name, value in state.items()}


@torch.no_grad()
def sample_network(settings: DecentralisedSettings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Samples by Euler steps along one network's composition around NULL."""
    members = _members(settings, net, request, ctx)
    return answer(composed_velocity(net, members, ctx), request, num_steps=net.sample_steps)


@torch.no_grad()
def sample_experts(settings: DecentralisedSettings, mixture: Mixture, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Samples by Euler steps along the mixture's composition around NULL, with all experts in one call."""
    members = _members(settings, mixture.experts.template, request, ctx)
    return sample_mixture(mixture, members, request, ctx)


def _members(settings: DecentralisedSettings, net: VelocityNet, request: Request, ctx: Context) -> list[Weighted]:
    """The composition of a request's conditions, with the method's weight or the task's."""
    assert net.guidance is not None  # `recipe` gives every network the task's guidance
    weights = net.guidance.weights(settings.weight, notes=ctx.notes if settings.inference == "composed" else None)
    return composition(request.condition, weights, settings.inference)


def evaluations_of_network(settings: DecentralisedSettings, problem: Problem) -> int:
    """Evaluations per sample: NULL and each factor alone, or the whole condition, at each step."""
    return problem.budget.sample_steps * settings.num_members(problem)


def evaluations_of_experts(settings: DecentralisedSettings, problem: Problem) -> int:
    """Evaluations per sample: those of one network for every expert; routers are not counted."""
    return evaluations_of_network(settings, problem) * len(problem.federation)
