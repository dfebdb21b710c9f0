"""A transformer over patches: every patch attends to all, and time and condition modulate each block (adaLN-zero).

    v(x_t, t | c) = transformer(patches of x_t; e),    e = time(t) + sum_f e_f(c_f)

Peebles & Xie 2023 (Scalable Diffusion Models with Transformers), with the linear path and one embedding a factor.  Farid et
al. 2025 (arXiv 2510.03075) find that such a network reaches combinations that differ from all seen ones in two factors.  Its
width is what gives it as many parameters as `mono`.
"""

from __future__ import annotations

import math

from pydantic import Field

from compbench import Method, MethodSettings, Problem, hookimpl
from compbench.flow.attention import SelfAttention
from compbench.flow.token_nets import AllPlaces, TokenNet, token_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    tokens: int = Field(
        8, ge=1, le=64, description="most patches along a side of the image; 16 is the paper's, at about 4 times the cost"
    )
    depth: int = Field(6, ge=1, le=48, description="blocks; the more, the narrower each")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each block's attention")


def build(settings: Settings, problem: Problem) -> TokenNet:
    """The untrained network, of mono's number of parameters."""
    return token_net(
        problem,
        lambda number, width: AllPlaces(SelfAttention(width, settings.num_heads)),
        tokens=settings.tokens,
        depth=settings.depth,
        step=math.lcm(8, settings.num_heads),
    )


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (velocity_method("dit", Settings, build, kinds=("image",)),)
