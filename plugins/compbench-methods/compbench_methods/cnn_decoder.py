"""Transposed convolutions from the code of a condition to its image, by regression.  Forced rendering, section 2."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, Problem, hookimpl
from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import CNNDecoder, ConditionDecoder, condition_decoder, decoder_method


class Settings(CodeSettings):
    num_hidden: int = Field(2, ge=2, le=16, description="layers between stem and output; the first two double the size")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    decoder = partial(CNNDecoder, channels=problem.budget.width, num_hidden=settings.num_hidden)
    return condition_decoder(problem, settings, decoder)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("cnn-decoder", Settings, build),)
