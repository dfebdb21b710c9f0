"""Local conditional scores: a patch is denoised from its neighbourhood and the condition, and never sees the rest of the image.

    v(x_t, t | c) at a place = f(x_t within `radius` patches of it, the place, t, c)

Kamb & Ganguli 2024 (arXiv 2412.20292) and Bradley 2025 (arXiv 2509.16447): conditional scores that are local compose in
places that were never seen together, and limiting the receptive field brings length generalisation back.  The blocks are
those of `dit`; a few of them mix by a 3 x 3 convolution, the others not at all.  Its width is what gives it as many parameters
as `mono`.

Patches that do not see each other can agree only on what the condition says: where it leaves something open (a place to the
pixel, on dSprites), they may draw different things.

Theirs: Bradley's scores are local in conditions, too: a place depends only on the factors that concern it.
Ours: each patch is told the whole condition.
Why: which factors concern a place is not known here.

Theirs: Kamb & Ganguli's fields are large in much noise and shrink as it falls.
Ours: one radius for all times, 3 x 3 patches, 24 of 64 pixels.
Why: one convolution a block serves all times.
"""

from __future__ import annotations

from pydantic import Field
from torch import nn

from compbench import Method, MethodSettings, Problem, Refused, hookimpl
from compbench.flow.token_nets import Neighbours, TokenNet, token_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    tokens: int = Field(8, ge=1, le=64, description="most patches along a side of the image")
    radius: int = Field(1, ge=0, le=16, description="patches on each side of its own that a patch's velocity depends on")
    depth: int = Field(6, ge=1, le=48, description="blocks, of which the first `radius` see neighbours; the more, the narrower")


def build(settings: Settings, problem: Problem) -> TokenNet:
    """The untrained network, of mono's number of parameters.

    Raises:
        Refused: the task's samples are no images, or the radius asks for more blocks than there are.
    """
    if settings.radius > settings.depth:
        raise Refused(f"radius {settings.radius} takes as many blocks; set depth to {settings.radius} or more.")
    return token_net(
        problem,
        lambda number, width: Neighbours(width) if number < settings.radius else nn.Linear(width, width),
        tokens=settings.tokens,
        depth=settings.depth,
        step=4,
    )


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (velocity_method("local", Settings, build, kinds=("image",)),)
