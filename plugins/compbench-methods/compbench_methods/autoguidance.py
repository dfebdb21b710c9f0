"""Guidance by a weaker network with the same condition, instead of guidance by NULL.

    v = v_weak(c) + w (v_good(c) - v_weak(c))

Autoguidance (Karras et al. 2024, arXiv 2406.02507): the good network makes smaller errors than the weak one, and samples
extrapolate from the weak network through the good one.

As in the paper, both networks get the same whole condition.  `how=composed` is ours and in no paper: each v is a composition of
slices around NULL, v(NULL) + sum_k w_k (v(c_k) - v(NULL)), with the weights that all composed rows have.

Theirs: w is 1.7 to 2.45 for networks of classes, chosen for each network.
Ours: w is 2.
Why: one weight serves all tasks.

Theirs: the weak network is smaller, has a sixteenth to a quarter of the training, and a longer moving average than the good one.
Ours: it has the same architecture and a tenth of the budget's steps, at the end of which its rate is 0; the good network has the
others.  Both have the budget's moving average.
Why: both together take one budget.

Figures: the authors' presets are for EDM2's networks, which no task here trains, and this project has no copy of the paper, so
none of its figures is reproduced.

Size: the good and the weak network are both as large as `mono`, so there are 2.0 times the parameters of `factored`.  Both are
trained within one budget, and a step evaluates each of them once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, Problem, Refused, Request, Weighted, hookimpl
from compbench.api.context import Steps
from compbench.flow import score_models
from compbench.flow.compose import GuidanceWeight, around_null, compose, guide
from compbench.flow.masking import DropoutSettings
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.silos import split
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


class Settings(DropoutSettings):
    weight: float = Field(2.0, ge=0, le=20, description="w: 0 is the weak network, 1 the good one; the paper has 1.7 to 2.45")
    weak_share: float = Field(0.1, gt=0, lt=1, description="share of the budget's steps for the weak network")
    how: Literal["joint", "composed"] = Field("joint", description="what is guided: the whole condition, or slices around NULL")
    slice_weight: GuidanceWeight = Field(
        "task", description="w_k of the holdout's factors in composed slices; 'task': as in all composed rows"
    )


class Pair(nn.Module):
    """Two networks of one architecture."""

    def __init__(self, good: VelocityNet, weak: VelocityNet) -> None:
        super().__init__()
        self.good, self.weak, self.sample_steps = good, weak, good.sample_steps


def build(settings: Settings, problem: Problem) -> Pair:
    """The untrained networks."""
    return Pair(monolithic_net(problem), monolithic_net(problem))


def fit(settings: Settings, problem: Problem, ctx: Context) -> Pair:
    """Both networks on all training data; they share the budget's steps."""
    if settings.how == "composed" and score_models.composes_around_base(problem):
        raise Refused("guidance needs a model of NULL, and this task composes around a base combination.")
    budgets = dict(zip(("good", "weak"), split(problem.budget, settings.weak_share), strict=True))
    count = Steps(ctx.progress, problem.budget.train_steps)
    nets = {
        name: _fitted(settings, replace(problem, budget=budget), ctx.part(name, progress=count.part()))
        for name, budget in budgets.items()
    }
    return Pair(nets["good"], nets["weak"])


def _fitted(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """One network, trained on whole conditions or by the fit that all slice-composing methods share."""
    if settings.how == "composed":
        own = score_models.ModelSettings(even_masks=settings.even_masks, factor_dropout=settings.factor_dropout)
        return score_models.fit(own, problem, ctx)
    net = monolithic_net(problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, nets: Pair, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the guided velocity."""
    asked = [Weighted(1.0, request.condition)]
    if settings.how == "composed":
        asked = around_null(request.condition, nets.good.guidance.weights(settings.slice_weight, notes=ctx.notes))

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            weak, good = (compose(net, x, t, asked) for net in (nets.weak, nets.good))
        return guide(weak, good, settings.weight)

    return answer(velocity, request, num_steps=nets.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """For both networks at each step: the whole condition, or NULL and one slice per factor."""
    members = score_models.num_members(problem) if settings.how == "composed" else 1
    return 2 * problem.budget.sample_steps * members


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="autoguidance",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            version=2,
        ),
    )
