"""Denoises each patch from its neighbourhood alone: local conditional scores, without the rest of the image.

    v(x_t, t | c) at a place = f(x_t within `radius` patches of it, the place, t, c)

Kamb & Ganguli 2024 (arXiv 2412.20292) and Bradley 2025 (arXiv 2509.16447) find that local conditional scores compose parts that
were never seen together, and that limiting the receptive field restores length generalisation.  The blocks are those of `dit`; a
few of them mix patches by a 3 x 3 convolution, and the others do not mix patches.  The width is chosen so that the network has as
many parameters as `mono`.

Patches that do not see each other can agree only on what the condition says.  If the condition leaves something open (on
dSprites, the exact pixel), such patches may draw different things.

Theirs: Bradley's scores are also local in conditions: a position depends only on the factors that concern it.
Ours: each patch gets the whole condition.
Why: the task does not say which factors concern a position.

Theirs: Kamb & Ganguli's receptive fields are large at high noise and shrink as the noise falls.
Ours: all times have one radius: 3 x 3 patches, 24 of 64 pixels.
Why: one convolution per block serves all times.

Figures: this project has no copy of these papers, so none of their figures is reproduced.
"""

from __future__ import annotations

from pydantic import Field
from torch import nn

from compbench import Method, MethodSettings, Problem, Refused, hookimpl
from compbench.flow.token_nets import Neighbours, TokenNet, token_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    tokens: int = Field(8, ge=1, le=64, description="most patches along a side of the image")
    radius: int = Field(1, ge=0, le=16, description="number of patches in each direction that a patch's velocity depends on")
    depth: int = Field(6, ge=1, le=48, description="blocks; the first `radius` of them see neighbours; more blocks are narrower")


def build(settings: Settings, problem: Problem) -> TokenNet:
    """The untrained network, with as many parameters as mono.

    Raises:
        Refused: the task's samples are not images, or the radius needs more blocks than there are.
    """
    if settings.radius > settings.depth:
        raise Refused(f"a radius of {settings.radius} needs as many blocks; set depth to {settings.radius} or more.")
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
