"""Regression by self-attention over patches, each of which gets the code of the condition.  Forced rendering, section 2.

Theirs: there is one token per pixel, and pictures have one bump.
Ours: a token has 4 x 4 pixels, or 8 x 8 on images of more than 32 pixels.  On deterministic tasks the blocks have the paper's 128
channels, and 512 units in their MLPs instead of 2,048.  Elsewhere the network has as many parameters as the velocity networks (on
64 x 64 pixels, at twice their FLOPs), or as many as 3 times the FLOPs of those networks allow (0.4 of their parameters on 28 x
28).
Why: competing networks should have equal size, as far as the cost of their steps allows.

Theirs: the factors are places, and their code is the bump.
Ours: numbers have the bump, and values with names, as letters and shapes, are one-hot.
Why: names have no order.  Up to version 3 they had the bump, too, so neighbours in a list shared a code.

Size: on bumps the decoder has the paper's width in its blocks but a token for 4 x 4 pixels, and 0.05 of the parameters of
`factored`.  Version 2 had the budget's width on all tasks: 0.06 of them on Shapes3D and dSprites.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from compbench import Method, hookimpl
from compbench.flow.decoder_sizes import Make, SizeSettings, sized_decoder_method
from compbench.flow.decoders import RateSettings, TransformerDecoder


class Settings(RateSettings, SizeSettings):
    depth: int = Field(2, ge=1, le=12, description="blocks")
    num_heads: int = Field(4, ge=1, le=16, description="heads of self-attention")
    token: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = Field(
        "auto",
        description="pixels per side of a token; 'auto': 4, or 8 on images of more than 32 pixels; the paper has 1",
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout in the blocks during training")


def maker(settings: Settings) -> Make:
    """The decoder as a function of its width."""
    facts = {"depth": settings.depth, "num_heads": settings.num_heads, "dropout": settings.dropout}

    def made(inputs: int, shape: tuple[int, ...], *, width: int) -> TransformerDecoder:
        token = settings.token if settings.token != "auto" else 8 if max(shape) > 32 else 4
        return TransformerDecoder(inputs, shape, width=width, patch=token, **facts)

    return lambda width: partial(made, width=width)


def step_of(settings: Settings) -> int:
    """The step of the widths: positions and heads must divide a width."""
    return math.lcm(4, settings.num_heads)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (sized_decoder_method("transformer-decoder", Settings, maker, protocol=2, version=4, step=step_of),)
