"""Monolithic conditioning: one FiLM head sees all factors at once, h + gamma(c) h + beta(c).

The parameter-matched baseline of Compositional Flow Matching with Factored Velocity Fields (FVF), section 3.1.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import euler
from compbench.flow.train import flow_matching_loss, train
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, MethodSettings, Problem, Request


class Settings(MethodSettings):
    hidden_per_factor: int = Field(
        256, gt=0, le=4096, description="hidden units of the head, times the number of factors (1536 on Shapes3D)"
    )


def build(settings: Settings, problem: Problem) -> VelocityNet:
    return monolithic_net(problem, hidden=settings.hidden_per_factor * len(problem.space))


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    net = build(settings, problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return net(x, t, request.condition)

    return euler(velocity, request.x0, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    return problem.budget.sample_steps


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="mono",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            kinds=("image", "vector"),
        ),
    )
