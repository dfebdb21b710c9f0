"""Fourier features of the condition and of the pixel's place, into one function that all pixels share, by regression.

    x(p) = 2 mlp(W code(c) + V [cos 2 pi B p, sin 2 pi B p]) - 1,    B ~ N(0, scale^2)

Tancik et al. 2020 (Fourier Features Let Networks Learn High Frequency Functions), with a condition.  `pixel-decoder` is its
sibling with axis-aligned waves of falling frequency and a bump code.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, Problem, hookimpl
from compbench.flow.codes import Choice, CodeSettings
from compbench.flow.decoders import ConditionDecoder, RateSettings, condition_decoder, decoder_method
from compbench.flow.fourier import FourierDecoder


class Settings(CodeSettings, RateSettings):
    encoding: Choice = Field("positional", description="code of each factor; positional is sin and cos of pi 2^j v / n")
    depth: int = Field(2, ge=1, le=16, description="hidden layers after the first")
    width_factor: int = Field(1, ge=1, le=8, description="hidden units over the budget's width")
    num_waves: int = Field(64, ge=1, le=4096, description="random waves over the image, a cosine and a sine each")
    scale: float = Field(4.0, gt=0, le=100, description="standard deviation of the waves' frequencies, in cycles over the image")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    decoder = partial(
        FourierDecoder,
        width=settings.width_factor * problem.budget.width,
        depth=settings.depth,
        num_waves=settings.num_waves,
        scale=settings.scale,
    )
    return condition_decoder(problem, settings, decoder)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("fourier-decoder", Settings, build),)
