"""Regression by dense layers: from the code of a condition to its image.  Forced rendering, section 2.

Theirs: there is one width, for pictures of one bump.
Ours: deterministic tasks have the paper's width; elsewhere there are as many parameters as in the velocity networks.
Why: competing networks should have equal size.

Theirs: the factors are places, and their code is the bump.
Ours: numbers have the bump, and values with names, as letters and shapes, are one-hot.
Why: names have no order.  Up to version 2 they had the bump, too, so neighbours in a list shared a code.

Size: on bumps the decoder has the paper's width, which is 0.05 of the parameters of `factored`.  Version 1 had the budget's width
everywhere: 0.3 of them on dSprites.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, hookimpl
from compbench.flow.decoder_sizes import Make, SizeSettings, sized_decoder_method
from compbench.flow.decoders import MLPDecoder


class Settings(SizeSettings):
    depth: int = Field(3, ge=1, le=16, description="hidden layers")


def maker(settings: Settings) -> Make:
    """The decoder as a function of its width."""
    return lambda width: partial(MLPDecoder, width=width, depth=settings.depth)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (sized_decoder_method("mlp-decoder", Settings, maker, protocol=4, version=3),)
