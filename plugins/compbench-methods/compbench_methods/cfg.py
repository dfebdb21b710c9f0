"""Classifier-free guidance of the whole condition: v = v(NULL) + w (v(c) - v(NULL)).

Ho & Salimans 2022 (arXiv 2207.12598), on mono's network; our w is the paper's 1 + w.  Nothing is composed, so this is the
baseline that every composing row has to beat, with two evaluations per step instead of F + 1.  A condition with open factors goes
to the network unchanged, although no training example has one.

Theirs: the whole condition is dropped from 10 to 20 % of the training examples, and the weight is chosen for each network.
Ours: it is dropped from 10 % of them, and the weight is the task's.
Why: all rows of a task have one weight, so that they differ only in their idea.  On coloured digits, Shapes3D,
plans and emoji it was chosen on seen combinations.

Figures: this project has no copy of the paper, so none of its figures is reproduced.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench import NULL, Batch, Context, Method, MethodSettings, Problem, Request, Weighted, hookimpl
from compbench.flow.compose import GuidanceWeight, compose
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


class Settings(MethodSettings):
    weight: GuidanceWeight = Field("task", description="w: 0 ignores the condition, 1 is mono; 'task': as in all composed rows")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability of masking an example's whole condition in training")


def build(settings: Settings, problem: Problem) -> VelocityNet:
    """The untrained network."""
    return monolithic_net(problem)


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching on all training data, with whole conditions masked at random."""

    def loss(net: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        dropped = torch.rand(len(batch.x1), 1, generator=generator, device=generator.device) < settings.dropout  # (B, 1)
        return flow_matching_loss(net, batch._replace(condition=batch.condition.masked_fill(dropped, NULL)), generator)

    net = build(settings, problem)
    train(net, loss, problem.federation.pooled(), problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the guided velocity."""
    weight = net.guidance.weight if settings.weight == "task" else settings.weight
    ctx.notes["guidance_weight"] = weight
    nothing = torch.full_like(request.condition, NULL)
    guided = [Weighted(1 - weight, nothing), Weighted(weight, request.condition)]

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return compose(net, x, t, guided)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """NULL and the whole condition at each step."""
    return 2 * problem.budget.sample_steps


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (Method(name="cfg", settings=Settings, fit=fit, sample=sample, build=build, evaluations=evaluations),)
