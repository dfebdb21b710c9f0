"""Regression of each pixel on Fourier features of the condition and the pixel's position; all pixels share one function.

    x(p) = 2 mlp(W code(c) + V [cos 2 pi B p, sin 2 pi B p]) - 1,    B ~ N(0, scale^2)

Tancik et al. 2020 (Fourier Features Let Networks Learn High Frequency Functions), with a condition.  `pixel-decoder` is similar,
with axis-aligned waves of falling frequency and a bump code.

Theirs: there are 256 hidden units and no condition.
Ours: deterministic tasks have the budget's width; others have the largest width at which a step costs at most 3 times the FLOPs
of the velocity networks.
Why: the budget's width learns all seen examples, and a wider network would cost too much, as each weight is used at every pixel.

Theirs: there are 256 waves, whose scale is chosen for each kind of picture.
Ours: there are 64 waves of scale 4.
Why: pictures have 16 to 64 pixels a side.

The condition's numbers have sines and cosines of pi 2^j v / n as their code, and values with names are one-hot, since names have
no order.  Up to version 2 they had the same waves as numbers.

Figures: this project has no copy of the paper, so none of its figures is reproduced.

Size: one function of the condition and the position serves all pixels, and each of its weights is used at every pixel.  Equal
numbers of parameters would cost far more, so it has 0.002 to 0.04 of the parameters of `factored`.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, hookimpl
from compbench.flow.codes import Choice
from compbench.flow.decoder_sizes import Make, SizeSettings, sized_decoder_method
from compbench.flow.decoders import RateSettings
from compbench.flow.fourier import FourierDecoder


class Settings(RateSettings, SizeSettings):
    encoding: Choice = Field(
        "auto",
        description="code of each factor: bump, ramp, one-hot, positional or circle; auto is one-hot for values with names, the "
        "circle for a periodic factor and sin and cos of pi 2^j v / n for others",
    )
    depth: int = Field(2, ge=1, le=16, description="hidden layers after the first")
    num_waves: int = Field(64, ge=1, le=4096, description="number of random waves over the image, each with a cosine and a sine")
    scale: float = Field(4.0, gt=0, le=100, description="standard deviation of the waves' frequencies, in cycles over the image")


def maker(settings: Settings) -> Make:
    """The decoder as a function of its width."""
    return lambda width: partial(
        FourierDecoder, width=width, depth=settings.depth, num_waves=settings.num_waves, scale=settings.scale
    )


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (sized_decoder_method("fourier-decoder", Settings, maker, protocol=1, version=3, numbers="positional"),)
