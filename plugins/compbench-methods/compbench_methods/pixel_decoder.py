"""All pixels share one function of code and place, by regression.  In the repository of forced rendering, not in the paper."""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import ConditionDecoder, PixelDecoder, RateSettings, condition_decoder, regress
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem, Request


class Settings(CodeSettings, RateSettings):
    depth: int = Field(2, ge=1, le=16, description="hidden layers")
    width_factor: int = Field(1, ge=1, le=8, description="hidden units over the budget's width; 4 gives the repository's 256")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    width = settings.width_factor * problem.budget.width
    decoder = partial(PixelDecoder, width=width, depth=settings.depth)
    return condition_decoder(problem, settings, decoder)


def fit(settings: Settings, problem: Problem, ctx: Context) -> ConditionDecoder:
    """Regression on all training data."""
    net = build(settings, problem)
    regress(net, problem.federation.pooled(), problem, ctx, rate_factor=settings.rate_factor)
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
            name="pixel-decoder",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=lambda settings, problem: 1,
            kinds=("image",),
            regresses=True,
            version=2,
        ),
    )
