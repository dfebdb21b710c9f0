"""One network on the pooled data of all silos, plain or with the conditional-independence penalty (CoInD): the bound.

Decentralized Compositional Flow Matching (DCFM), equations 5 to 8; CoInD is Gaudi et al. 2025.  No decentralised method
may pool, so on a task with silos this is a reference row.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from compbench.flow.independence import decentralised_loss
from compbench.flow.mixture import composition
from compbench.flow.nets import VelocityNet
from compbench.flow.silos import DecentralisedSettings, composed_velocity, network
from compbench.flow.solver import answer
from compbench.flow.train import train
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem, Request


class Settings(DecentralisedSettings):
    coind: bool = Field(False, description="add the conditional-independence penalty of CoInD (eq. 6) with weight ci_weight")


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching with masks on all training data."""
    net = network(settings, problem)
    loss = decentralised_loss(settings.masking, settings.ci_weight if settings.coind else 0.0)
    train(net, loss, problem.federation.pooled(), problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the composition around NULL."""
    members = composition(request.condition, settings.weight, settings.inference)
    return answer(composed_velocity(net, members, ctx), request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """NULL and each factor alone, or the whole condition, each step."""
    return problem.budget.sample_steps * settings.num_members(problem)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (Method(name="centralised", settings=Settings, fit=fit, sample=sample, build=network, evaluations=evaluations),)
