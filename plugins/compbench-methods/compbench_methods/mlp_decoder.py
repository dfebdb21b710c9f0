"""Dense layers from the code of a condition to its image, by regression.  Forced rendering, section 2."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, Problem, hookimpl
from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import ConditionDecoder, MLPDecoder, condition_decoder, decoder_method


class Settings(CodeSettings):
    depth: int = Field(3, ge=1, le=16, description="hidden layers, each of 4 times the budget's width")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    decoder = partial(MLPDecoder, width=4 * problem.budget.width, depth=settings.depth)
    return condition_decoder(problem, settings, decoder)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("mlp-decoder", Settings, build),)
