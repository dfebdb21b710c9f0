"""Regression of each pixel on condition and position; all pixels share one function.

It comes from the repository of forced rendering, not from the paper.

Theirs: the repository has 256 hidden units for one bump.
Ours: deterministic tasks have 64; others have the largest width at which a step costs at most 3 times the FLOPs of the velocity
networks.
Why: 64 units learn all seen examples; equal numbers of parameters would cost 70 to 130 times as much, because each weight is used
at every pixel.

Theirs: the factors are places, and their code is the bump.
Ours: numbers have the bump, and values with names, as letters and shapes, are one-hot.
Why: names have no order.  Up to version 3 they had the bump, too, so neighbours in a list shared a code.

Figures: the repository's weights (two layers of 256 units, 2,000 epochs, 28 x 28 pixels) have a held-out error of 0.010 of the
blank level on a corner that begins at 14.  `bump-corner` holds out a larger corner, which begins at 11; our published runs at
`standard` have 0.10 (ten seeds).  Both put all held-out bumps in their places to within a pixel.  The command is
`compbench sweep --method pixel-decoder --task bump-corner --seed 0-9 --preset standard`.

Size: one function of the condition and the position serves all pixels.  It has 0.002 to 0.03 of the parameters of `factored`
because each weight is used at every pixel, so that equal numbers of parameters would cost far more.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, hookimpl
from compbench.flow.decoder_sizes import Make, SizeSettings, sized_decoder_method
from compbench.flow.decoders import PixelDecoder, RateSettings


class Settings(RateSettings, SizeSettings):
    depth: int = Field(2, ge=1, le=16, description="hidden layers")


def maker(settings: Settings) -> Make:
    """The decoder as a function of its width."""
    return lambda width: partial(PixelDecoder, width=width, depth=settings.depth)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (sized_decoder_method("pixel-decoder", Settings, maker, protocol=1, version=4),)
