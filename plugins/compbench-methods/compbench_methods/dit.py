"""Diffusion transformer over patches: every patch attends to all, and time and condition modulate each block (adaLN-zero).

    v(x_t, t | c) = transformer(patches of x_t; e),    e = time(t) + sum_f e_f(c_f)

Peebles & Xie 2023 (Scalable Diffusion Models with Transformers), with the linear path and one embedding per factor.  Farid et
al. 2025 (arXiv 2510.03075) find that such a network reaches combinations that differ from all seen ones in two factors.  The
width is chosen so that the network has as many parameters as `mono`.

Theirs: images have 16 x 16 tokens.
Ours: images of one channel have patches of 4 pixels, so silhouettes (dSprites) and radiographs of 64 pixels have 16 x 16 tokens,
on dSprites at 7 times the FLOPs of `mono`; other images have at most 8 x 8, at 1.4 times the FLOPs on Shapes3D.
Why: on dSprites conditions give positions to within 4 pixels; on Shapes3D coarser tokens learn all seen combinations.

Theirs: embeddings start as N(0, 0.02), and linear layers by Xavier's rule.
Ours: they start as PyTorch's layers do; gates and the last layer start at 0, as theirs.
Why: the layers of all networks of the board start in this way, and all seen combinations of Shapes3D are learnt.

Theirs: AdamW has no weight decay, and a rate of 1e-4 without warm-up.
Ours: the decay is 0.01, and the rate is the budget's: on Shapes3D at `standard` 2e-3, after a warm-up of 100 steps, and a cosine.
Why: all networks of a task have one optimiser, one rate and one number of steps.

Theirs: a tenth of the labels are left out in training, for guidance, and the moving average has 0.9999.
Ours: every condition is whole, and the moving average is the budget's.
Why: samples are not guided, and a fit of some thousand steps would be at its start still.

Figures: this project has no copy of the paper, so none of its figures is reproduced.
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
        description="most patches along a side of the image; 16 is the paper's and costs about 5 times as much as 8; 'auto': 8, "
        "or patches of 4 pixels on images of one channel",
    )
    depth: int = Field(6, ge=1, le=48, description="number of blocks; with more blocks each is narrower")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each block's attention")


def num_tokens(settings: Settings, event: Event) -> int:
    """Most patches along a side of an event's images (C, H, W)."""
    if settings.tokens != "auto":
        return settings.tokens
    return max(8, max(event.shape[1:]) // 4) if event.kind == "image" and event.shape[0] == 1 else 8


def build(settings: Settings, problem: Problem) -> TokenNet:
    """The untrained network, with as many parameters as mono."""
    return token_net(
        problem,
        lambda number, width: AllPlaces(SelfAttention(width, settings.num_heads)),
        tokens=num_tokens(settings, problem.event),
        depth=settings.depth,
        step=math.lcm(8, settings.num_heads),
    )


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (replace(velocity_method("dit", Settings, build, kinds=("image",)), search={"tokens": "auto,4:16:log"}, version=2),)
