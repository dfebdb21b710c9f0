"""Self-attention over patches, each told the code of the condition, by regression.  Forced rendering, section 2."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, Problem, hookimpl
from compbench.flow.codes import CodeSettings
from compbench.flow.decoders import ConditionDecoder, RateSettings, TransformerDecoder, condition_decoder, decoder_method


class Settings(CodeSettings, RateSettings):
    depth: int = Field(2, ge=1, le=12, description="blocks, of 2 times the budget's width")
    num_heads: int = Field(4, ge=1, le=16, description="heads of self-attention")
    token: int = Field(4, ge=1, le=16, description="pixels of a token's side; 1 is the paper's, for GPUs")
    dropout: float = Field(0.1, ge=0, lt=1, description="in the blocks, while training")


def build(settings: Settings, problem: Problem) -> ConditionDecoder:
    """The untrained network, of the budget's width."""
    decoder = partial(
        TransformerDecoder,
        width=2 * problem.budget.width,
        depth=settings.depth,
        num_heads=settings.num_heads,
        patch=settings.token,
        dropout=settings.dropout,
    )
    return condition_decoder(problem, settings, decoder)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("transformer-decoder", Settings, build, version=2),)
