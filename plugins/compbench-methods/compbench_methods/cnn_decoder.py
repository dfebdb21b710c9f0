"""Regression by transposed convolutions: from the code of a condition to its image.  Forced rendering, section 2.

Theirs: there is one size, for pictures of one bump.
Ours: deterministic tasks have the paper's channels.  Elsewhere there are as many parameters as in the velocity networks, or as
many as 3 times the FLOPs of those networks allow: 0.8 of their parameters on scenes, 0.5 on sprites, 0.2 on digits.
Why: competing networks should have equal size, as far as the cost of their steps allows.

Theirs: the factors are places, and their code is the bump.
Ours: numbers have the bump, and values with names, as letters and shapes, are one-hot.
Why: names have no order.  Up to version 2 they had the bump, too, so neighbours in a list shared a code.

Size: on bumps the decoder has the paper's size, which is 0.04 of the parameters of `factored`; see above for other tasks.
Version 1 had the budget's width everywhere: 0.26 of them on Shapes3D and 0.15 on dSprites.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from compbench import Method, hookimpl
from compbench.flow.decoder_sizes import Make, SizeSettings, sized_decoder_method
from compbench.flow.decoders import CNNDecoder


class Settings(SizeSettings):
    num_hidden: int = Field(2, ge=2, le=16, description="layers between stem and output; the first two double the size")


def maker(settings: Settings) -> Make:
    """The decoder as a function of its width."""
    return lambda width: partial(CNNDecoder, channels=width, num_hidden=settings.num_hidden)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (sized_decoder_method("cnn-decoder", Settings, maker, protocol=1, version=3),)
