"""All pixels share one function of code and place, by regression.  In the repository of forced rendering, not in the paper."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, Problem, hookimpl
from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import ConditionDecoder, PixelDecoder, RateSettings, condition_decoder, decoder_method


class Settings(CodeSettings, RateSettings):
    depth: int = Field(2, ge=1, le=16, description="hidden layers")
    width_factor: int = Field(1, ge=1, le=8, description="hidden units over the budget's width; 4 gives the repository's 256")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    width = settings.width_factor * problem.budget.width
    decoder = partial(PixelDecoder, width=width, depth=settings.depth)
    return condition_decoder(problem, settings, decoder)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("pixel-decoder", Settings, build, version=2),)
