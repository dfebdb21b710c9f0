"""Self-attention over patches, each told the code of the condition, by regression.  Forced rendering, section 2.

The paper has a token a pixel and one bump.  A token is 4 x 4 pixels here.  On deterministic tasks the blocks have the paper's
width; elsewhere the network has as many parameters as the velocity networks beside it, or as many as 6 times their FLOPs pay for:
0.6 of them on 64 x 64 pixels, all but a tenth on 28 x 28.  With `token=8` it has all of them at twice their FLOPs.
"""

from __future__ import annotations

import math
from functools import partial

from pydantic import Field

from compbench import Method, hookimpl
from compbench.flow.decoder_sizes import Make, SizeSettings, sized_decoder_method
from compbench.flow.decoders import RateSettings, TransformerDecoder


class Settings(RateSettings, SizeSettings):
    depth: int = Field(2, ge=1, le=12, description="blocks")
    num_heads: int = Field(4, ge=1, le=16, description="heads of self-attention")
    token: int = Field(4, ge=1, le=16, description="pixels of a token's side; 1 is the paper's, for GPUs")
    dropout: float = Field(0.1, ge=0, lt=1, description="in the blocks, while training")


def maker(settings: Settings) -> Make:
    """The decoder as a function of its width."""
    return lambda width: partial(
        TransformerDecoder,
        width=width,
        depth=settings.depth,
        num_heads=settings.num_heads,
        patch=settings.token,
        dropout=settings.dropout,
    )


def step_of(settings: Settings) -> int:
    """Widths that places and heads divide."""
    return math.lcm(4, settings.num_heads)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (sized_decoder_method("transformer-decoder", Settings, maker, protocol=2, version=3, step=step_of),)
