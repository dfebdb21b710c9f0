"""Factored velocity fields: one FiLM head for each factor, summed, v(x, t, c) = v_base(x, t) + sum_k delta_k(x, t, c_k).

Compositional Flow Matching with Factored Velocity Fields (FVF), equation 1: at the bottleneck each head gives
delta_k = gamma_k(c_k) h + beta_k(c_k).  A head for a new factor can be trained alone against a frozen model (section 3.3).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench.flow.encode import centred_one_hot
from compbench.flow.nets import VelocityNet, backbone, head
from compbench.flow.solver import euler
from compbench.flow.train import flow_matching_loss, train
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, MethodSettings, Problem, Request


class Settings(MethodSettings):
    hidden: int = Field(256, gt=0, le=4096, description="hidden units of each factor's head")


class FactorHead(nn.Module):
    """delta_k: one factor's values (B,), as a centred one-hot, to gamma_k and beta_k side by side, (B, 2 C)."""

    def __init__(self, frequencies: tuple[float, ...], *, hidden: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.tensor(frequencies))
        self.head = head(len(frequencies), hidden, channels)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(centred_one_hot(values, self.frequencies))


class FactoredConditioning(nn.Module):
    """sum_k delta_k: conditions (B, F) -> (B, 2 C).  Heads are kept by factor name, so that one can be added."""

    def __init__(self, names: tuple[str, ...], heads: dict[str, FactorHead]) -> None:
        super().__init__()
        self.names = names
        self.heads = nn.ModuleDict({_key(name): head for name, head in heads.items()})

    def forward(self, condition: Tensor) -> Tensor:
        deltas = [self.heads[_key(name)](condition[:, k]) for k, name in enumerate(self.names)]
        return torch.stack(deltas).sum(0)


def build(settings: Settings, problem: Problem) -> VelocityNet:
    trunk = backbone(problem.event, problem.budget)
    heads = {
        name: FactorHead(own, hidden=settings.hidden, channels=trunk.mid_channels)
        for name, own in zip(problem.space.names, problem.frequencies(), strict=True)
    }
    conditioning = FactoredConditioning(problem.space.names, heads)
    return VelocityNet(trunk, conditioning, sample_steps=problem.budget.sample_steps)


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    net = build(settings, problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


def extend(settings: Settings, net: VelocityNet, factor: str, problem: Problem, ctx: Context) -> VelocityNet:
    """Freeze a model, add a head for `factor`, train that alone on the larger problem.  FVF, section 3.3."""
    net.requires_grad_(False)
    position = problem.space.index(factor)
    new = FactorHead(
        problem.frequencies()[position], hidden=settings.hidden, channels=net.backbone.mid_channels
    )
    net.conditioning.heads[_key(factor)] = new
    net.conditioning.names = problem.space.names
    budget = problem.budget.model_copy(update={"train_steps": problem.budget.extend_steps})
    train(net, flow_matching_loss, problem.federation.pooled(), budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return net(x, t, request.condition)

    return euler(velocity, request.x0, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    return problem.budget.sample_steps


def _key(name: str) -> str:
    """A factor's name as a module's: no dots, no blanks."""
    return name.replace(" ", "_").replace(".", "_")


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="factored",
            settings=Settings,
            fit=fit,
            sample=sample,
            extend=extend,
            build=build,
            evaluations=evaluations,
            kinds=("image", "vector"),
        ),
    )
