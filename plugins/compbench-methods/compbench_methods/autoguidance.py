"""Slices guided by a weaker version of the same fit instead of by NULL.

    v = v_weak + w (v_good - v_weak),    each v = v(NULL) + sum_k (v(c_k) - v(NULL))

Autoguidance (Karras et al. 2024, arXiv 2406.02507): what the weak network gets wrong the good one gets less wrong, and the
difference is followed further.  Here both have one architecture, and the weak one a small part of the steps.  Their slices have
weight 1, so nothing is pushed away from what seen combinations have in common, as slice-cfg's weights push it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import Context, Method, MethodSettings, Problem, Refused, Request, hookimpl
from compbench.api.context import Steps
from compbench.flow import score_models
from compbench.flow.compose import around_null, compose, guide
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.silos import split
from compbench.flow.solver import answer


class Settings(MethodSettings):
    weight: float = Field(2.0, ge=0, le=20, description="w: 0 is the weak network, 1 the good one; the paper has 1.4 to 2.3")
    weak_share: float = Field(0.1, gt=0, lt=1, description="share of the budget's steps that the weak network has")
    factor_dropout: float = Field(0.1, ge=0, lt=1, description="chance that a factor is masked in training, each for itself")


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
    if score_models.composes_around_base(problem):
        raise Refused("guidance needs a model of NULL, and this task's compositions stand around a base combination.")
    own = score_models.ModelSettings(factor_dropout=settings.factor_dropout)
    budgets = dict(zip(("good", "weak"), split(problem.budget, settings.weak_share), strict=True))
    count = Steps(ctx.progress, problem.budget.train_steps)
    nets = {
        name: score_models.fit(own, replace(problem, budget=budget), ctx.part(name, progress=count.part()))
        for name, budget in budgets.items()
    }
    return Pair(nets["good"], nets["weak"])


@torch.no_grad()
def sample(settings: Settings, nets: Pair, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the guided slices."""
    slices = around_null(request.condition, [1.0] * request.condition.shape[1])

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            weak, good = (compose(net, x, t, slices) for net in (nets.weak, nets.good))
        return guide(weak, good, settings.weight)

    return answer(velocity, request, num_steps=nets.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """NULL and one slice a factor of both networks, each step."""
    return 2 * problem.budget.sample_steps * score_models.num_members(problem)


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
            needs=("null",),
        ),
    )
