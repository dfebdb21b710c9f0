"""A transformer over patches: every patch attends to all, and time and condition modulate each block (adaLN-zero).

    v(x_t, t | c) = transformer(patches of x_t; e),    e = time(t) + sum_f e_f(c_f)

Peebles & Xie 2023 (Scalable Diffusion Models with Transformers), with the linear path and one embedding a factor.  Farid et
al. 2025 (arXiv 2510.03075) find that such a network reaches combinations that differ from all seen ones in two factors.  Its
width is what gives it as many parameters as `mono`.

Theirs: images have 16 x 16 tokens.
Ours: silhouettes of 64 pixels (dSprites) have them, at 7 times the FLOPs of `mono`; other images have at most 8 x 8, at 1.4 times
on Shapes3D.
Why: places are known to 4 pixels on dSprites; on Shapes3D coarser tokens have learnt all that they saw.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from compbench import Event, Method, MethodSettings, Problem, hookimpl
from compbench.flow.attention import SelfAttention
from compbench.flow.token_nets import AllPlaces, TokenNet, token_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    tokens: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        "auto",
        description="most patches along a side of the image; 16 is the paper's, at about 5 times the cost of 8; 'auto' is 8, "
        "and patches of 4 pixels on images of one channel",
    )
    depth: int = Field(6, ge=1, le=48, description="blocks; the more, the narrower each")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each block's attention")


def num_tokens(settings: Settings, event: Event) -> int:
    """Most patches along a side of an event's images (C, H, W)."""
    if settings.tokens != "auto":
        return settings.tokens
    return max(8, max(event.shape[1:]) // 4) if event.kind == "image" and event.shape[0] == 1 else 8


def build(settings: Settings, problem: Problem) -> TokenNet:
    """The untrained network, of mono's number of parameters."""
    return token_net(
        problem,
        lambda number, width: AllPlaces(SelfAttention(width, settings.num_heads)),
        tokens=num_tokens(settings, problem.event),
        depth=settings.depth,
        step=math.lcm(8, settings.num_heads),
    )


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (replace(velocity_method("dit", Settings, build, kinds=("image",)), version=2),)
