"""A transformer over patches: every patch attends to all, and time and condition modulate each block (adaLN-zero).

    v(x_t, t | c) = transformer(patches of x_t; e),    e = time(t) + sum_f e_f(c_f)

Peebles & Xie 2023 (Scalable Diffusion Models with Transformers), with the linear path and one embedding a factor.  Farid et
al. 2025 (arXiv 2510.03075) find that such a network reaches combinations that differ from all seen ones in two factors.  Its
width is what gives it as many parameters as `mono`.
"""

from __future__ import annotations

import math
from functools import partial

from pydantic import Field

from compbench.errors import Refused
from compbench.flow.attention import SelfAttention
from compbench.flow.matching import matched_width, parameters_of
from compbench.flow.nets import monolithic_net
from compbench.flow.token_nets import AllPlaces, TokenNet, patch_of
from compbench.flow.velocity_methods import velocity_method
from compbench.hookspecs import hookimpl
from compbench.interfaces import Method, MethodSettings, Problem


class Settings(MethodSettings):
    tokens: int = Field(
        8, ge=1, le=64, description="most patches along a side of the image; 16 is the paper's, at about 4 times the cost"
    )
    depth: int = Field(6, ge=1, le=48, description="blocks; the more, the narrower each")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each block's attention")


def build(settings: Settings, problem: Problem) -> TokenNet:
    """The untrained network, of mono's number of parameters."""
    if problem.event.kind != "image":
        raise Refused(f"a network on patches makes images, this task asks for {problem.event.kind}s.")
    make = partial(
        TokenNet,
        problem.event.shape,
        problem.space.sizes,
        depth=settings.depth,
        patch=patch_of(problem.event.shape, settings.tokens),
        mixer=lambda number, width: AllPlaces(SelfAttention(width, settings.num_heads)),
        prediction=problem.budget.prediction,
        sample_steps=problem.budget.sample_steps,
    )
    target = parameters_of(lambda: monolithic_net(problem))
    return make(width=matched_width(lambda width: make(width=width), target, step=math.lcm(8, settings.num_heads)))


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (velocity_method("dit", Settings, build, kinds=("image",)),)
