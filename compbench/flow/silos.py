"""What the decentralised methods share: settings, a budget split over silos, local experts, and what a silo tells.

Every method gets the task's number of optimiser steps in all, whatever the number of silos and stages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from compbench.flow.compose import compose
from compbench.flow.experts import Experts
from compbench.flow.independence import Masking, decentralised_loss
from compbench.flow.mixture import Inference, LabelRouter, Mixture, composition, label_counts, sample_mixture
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import Velocity, answer
from compbench.flow.train import Loss, Steps, train
from compbench.interfaces import MethodSettings

if TYPE_CHECKING:
    from compbench.factors import Weighted
    from compbench.interfaces import Budget, Context, Problem, Request

NUM_LABELS = 4096
"""Labels that a silo tells of its examples, drawn with replacement: what a student's conditions are drawn from."""


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
    weight: float = Field(1.0, ge=0, le=20, description="w_k of the composition around NULL (eq. 5)")
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
        """Conditions that a composition asks for at each step."""
        return len(problem.space) + 1 if self.inference == "composed" else 1

    @property
    def masking(self) -> Masking:
        return Masking(self.pi_full, self.pi_marginal, self.pi_unconditional)


class Told(NamedTuple):
    """What came back from the silos: networks' states, and what silos tell of their labels.

    Attributes:
        states: a network's state dict for each silo.
        counts: examples of each value of each factor, (n, sum of sizes).
        labels: conditions drawn from each silo, (n, NUM_LABELS, F).
    """

    states: list[dict[str, Tensor]]
    counts: Tensor
    labels: Tensor


def network(settings: DecentralisedSettings, problem: Problem) -> VelocityNet:
    """The untrained network that silos, students and servers start from."""
    return monolithic_net(problem, head_width=settings.head_width)


def share_of(budget: Budget, share: float, silos: int = 1, *, constant: float | None = None) -> Budget:
    """A part of a budget for each of some silos: `share` of its steps, at least one; warm-up shrinks alike.

    Args:
        budget: the task's.
        share: of the steps.
        silos: how many divide them.
        constant: a learning rate to keep throughout, without warm-up or average (rounds of a longer schedule).
    """
    part = share / silos
    steps = max(1, round(budget.train_steps * part))
    changes: dict[str, object] = {"train_steps": steps, "warmup_steps": min(round(budget.warmup_steps * share), steps // 2)}
    if constant is not None:
        changes |= {"learning_rate": constant, "final_learning_rate": constant, "warmup_steps": 0, "ema_decay": 0.0}
    return budget.model_copy(update=changes)


def local_experts(
    net: nn.Module,
    loss_of: Callable[[int], Loss],
    problem: Problem,
    ctx: Context,
    *,
    budget: Budget,
    stage: str,
    steps: Steps,
    recipients: int = 1,
    start: list[dict[str, Tensor]] | None = None,
) -> Told:
    """Train a copy of a network on every silo and bring the copies back, with what the silos tell of their labels.

    Args:
        net: where every copy starts; common knowledge, not sent.
        loss_of: index of a silo -> its loss.
        problem: its federation and space.
        ctx: the stage's context.
        budget: of one silo.
        stage: name of the stage.
        steps: counts the steps of all silos.
        recipients: who gets the copies: 1, a server, or n - 1, all peers.
        start: a state for each silo to go on from instead; the silo has it already.
    """
    sizes = problem.space.sizes
    order = {account.name: index for index, account in enumerate(problem.federation.accounts)}

    def work(silo, received, own):
        expert = copy.deepcopy(net)
        index = order[silo.name]
        if start is not None:
            expert.load_state_dict(start[index])
        train(expert, loss_of(index), silo, budget, own)
        labels = silo.labels()
        rows = torch.randint(len(labels), (NUM_LABELS,), generator=own.generator)
        return {**_named(expert.state_dict()), "counts": label_counts(labels, sizes), "labels": labels.cpu()[rows]}

    like = {
        **_named(net.state_dict()),
        "counts": torch.empty(sum(sizes)),
        "labels": torch.empty(NUM_LABELS, len(sizes), dtype=torch.long),
    }
    found = problem.federation.run(work, ctx, like=like, stage=stage, recipients=recipients, steps=steps)
    states = [{name.removeprefix("net."): value for name, value in state.items() if name.startswith("net.")} for state in found]
    return Told(states, torch.stack([state["counts"] for state in found]), torch.stack([state["labels"] for state in found]))


def first_stage(
    settings: DecentralisedSettings,
    problem: Problem,
    ctx: Context,
    *,
    budget: Budget,
    steps: Steps,
    local_ci: bool,
    recipients: int = 1,
) -> tuple[VelocityNet, Told]:
    """Stage I of DCFM, and all of DDM's training: experts that saw their own silo only.

    Returns:
        the untrained network, and what came back.
    """
    net = network(settings, problem)
    loss = decentralised_loss(settings.masking, settings.ci_weight if local_ci else 0.0)
    told = local_experts(net, lambda _: loss, problem, ctx, budget=budget, stage="local", steps=steps, recipients=recipients)
    return net, told


def label_router(told: Told, problem: Problem) -> LabelRouter:
    """The router that the silos' label counts give."""
    return LabelRouter(told.counts, problem.space.sizes)


def known_values(told: Told, sizes: Sequence[int]) -> Tensor:
    """Which silo has which value of which factor, bool (n, F, largest size)."""
    own = (told.counts > 0).split(list(sizes), dim=1)
    return torch.stack([nn.functional.pad(part, (0, max(sizes) - part.shape[1])) for part in own], dim=1)


def untrained_mixture(net: VelocityNet, problem: Problem) -> Mixture:
    """A mixture of the right shapes, for stored weights to be loaded into."""
    silos = len(problem.federation)
    experts = Experts(net, [net.state_dict()] * silos)
    router = LabelRouter(torch.ones(silos, sum(problem.space.sizes)), problem.space.sizes)
    return Mixture(experts, router, sample_steps=problem.budget.sample_steps)


def composed_velocity(net: VelocityNet, members: Sequence[Weighted], ctx: Context) -> Velocity:
    """The velocity of a composition under one network, as solvers take it."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return compose(net, x, t, members)

    return velocity


def _named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"net.{name}": value for name, value in state.items()}


@torch.no_grad()
def sample_network(settings: DecentralisedSettings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along one network's composition around NULL."""
    members = composition(request.condition, settings.weight, settings.inference)
    return answer(composed_velocity(net, members, ctx), request, num_steps=net.sample_steps)


@torch.no_grad()
def sample_experts(settings: DecentralisedSettings, mixture: Mixture, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the mixture's composition around NULL, all experts in one call."""
    members = composition(request.condition, settings.weight, settings.inference)
    return sample_mixture(mixture, members, request, ctx)


def evaluations_of_network(settings: DecentralisedSettings, problem: Problem) -> int:
    """NULL and each factor alone, or the whole condition, each step."""
    return problem.budget.sample_steps * settings.num_members(problem)


def evaluations_of_experts(settings: DecentralisedSettings, problem: Problem) -> int:
    """Those of one network, of every expert; routers are not counted."""
    return evaluations_of_network(settings, problem) * len(problem.federation)
