"""The usual model, conditioned on all factors at once: h <- h + (gamma(c) * h + beta(c)) at its middle.

The parameter-matched baseline of Compositional Flow Matching with Factored Velocity Fields (FVF), section 5.

Theirs: the fit has 25,600,000 examples, and the UNet has 64 channels on pixels and predicts velocities.
Ours: at `standard` the fit has 211,200 on Shapes3D, and the UNet has 32 channels on patches of 4 pixels and predicts the denoised
picture; `--preset paper` has the paper's network and number of examples.
Why: `standard` is limited to half an hour on two cores.

Theirs: samples are images.
Ours: on vectors the backbone is an MLP, and on trajectories a UNet along time, with the same head at the middle.
Why: each method should run on every kind of task.

Size: on sat-20 the network has 0.66 of the parameters of `factored`, each of whose 12 heads has as many hidden units as each
of the paper's six; mono's one head has the paper's number on every task.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from compbench import Context, Method, MethodSettings, Problem, Request, hookimpl
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


class Settings(MethodSettings):
    head_width: float = Field(
        1.0, gt=0, le=8, description="hidden units of the head, in multiples of the protocol's 6 C (1536 at the paper's width)"
    )


def build(settings: Settings, problem: Problem) -> VelocityNet:
    """The untrained network."""
    return monolithic_net(problem, head_width=settings.head_width)


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching on all training data."""
    net = build(settings, problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along v(x_t, t | c)."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return net(x, t, request.condition)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """One evaluation per step."""
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
        ),
    )
