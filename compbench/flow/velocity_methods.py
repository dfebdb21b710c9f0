"""Methods that consist of one velocity network: they train by flow matching on all data and sample by Euler steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from compbench.api.interfaces import EventKind, Method, MethodSettings
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Problem, Request


Own = TypeVar("Own", bound=MethodSettings)
"""The settings of one method."""


def velocity_method(
    name: str,
    settings: type[Own],
    build: Callable[[Own, Problem], nn.Module],
    *,
    kinds: tuple[EventKind, ...] = ("vector", "image", "trajectory"),
) -> Method:
    """A method that differs from others only in its network.

    Args:
        name: name of the method.
        settings: class of its settings.
        build: (settings, problem) -> untrained network, which maps (x_t (B, *D), t (B,), conditions (B, F)) to velocities
            (B, *D); its `sample_steps` is the number of solver steps.
        kinds: event kinds that it works on.
    """

    def fit(own: Own, problem: Problem, ctx: Context) -> nn.Module:
        return train(build(own, problem), flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)

    return Method(
        name=name,
        settings=settings,
        fit=fit,
        sample=sample_velocity,
        build=build,
        evaluations=lambda own, problem: problem.budget.sample_steps,
        kinds=kinds,
    )


@torch.no_grad()
def sample_velocity(settings: MethodSettings, net: Any, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Samples by Euler steps along v(x_t, t | c)."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return net(x, t, request.condition)

    return answer(velocity, request, num_steps=net.sample_steps)
