"""Dense layers from the code of a condition to its image, by regression.  Forced rendering, section 2."""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import ConditionDecoder, MLPDecoder, condition_decoder, regress
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem, Request


class Settings(CodeSettings):
    depth: int = Field(3, ge=1, le=16, description="hidden layers, each of 4 times the budget's width")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    decoder = partial(MLPDecoder, width=4 * problem.budget.width, depth=settings.depth)
    return condition_decoder(problem, settings, decoder)


def fit(settings: Settings, problem: Problem, ctx: Context) -> ConditionDecoder:
    """Regression on all training data."""
    net = build(settings, problem)
    regress(net, problem.federation.pooled(), problem, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: ConditionDecoder, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """The image of each condition; the noise is not used."""
    with ctx.autocast():
        return net(request.condition).float()


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="mlp-decoder",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=lambda settings, problem: 1,
            kinds=("image",),
            regresses=True,
        ),
    )
