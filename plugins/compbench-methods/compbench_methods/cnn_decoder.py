"""Transposed convolutions from the code of a condition to its image, by regression.  Forced rendering, section 2."""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import CNNDecoder, ConditionDecoder, condition_decoder, regress
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, Problem, Request


class Settings(CodeSettings):
    num_hidden: int = Field(2, ge=2, le=16, description="layers between stem and output; the first two double the size")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    decoder = partial(CNNDecoder, channels=problem.budget.width, num_hidden=settings.num_hidden)
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
            name="cnn-decoder",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=lambda settings, problem: 1,
            kinds=("image",),
            regresses=True,
        ),
    )
