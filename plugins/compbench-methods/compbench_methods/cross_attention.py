"""Cross-attention to the condition: the network's maps attend to one token per factor; NULL has its own token.

    h <- h + A(LN h, tokens(c)) in place of mono's h <- h + (gamma(c) * h + beta(c))

Conditioning as in latent diffusion (Rombach et al. 2022, section 3.3), on factors instead of words.  On images such a layer
follows each residual block of the UNet at all resolutions.  Version 1 had one layer, in the middle.  On
vectors and trajectories the layer is in the middle, where the condition enters `mono` and `factored`.  The width of the layers'
MLPs gives the network as many parameters as mono; on images attention takes nearly all of them, and the MLP in the middle has 8
units.

Theirs: one resolution has no attention, each layer also has self-attention of positions, and its MLP is four times as wide as the
maps, with gates.
Ours: all resolutions have layers, without self-attention, and their MLPs have a few units.
Why: networks should differ only in their conditioning, and have as many parameters as mono.

Figures: this project has no copy of the paper, so none of its figures is reproduced.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from compbench import Method, MethodSettings, Problem, hookimpl
from compbench.flow.attended_nets import AttendedNet, AttendedUNet, attended_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    depth: int = Field(1, ge=1, le=16, description="layers of attention and MLP after a block; more layers have narrower MLPs")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each layer's attention")


def build(settings: Settings, problem: Problem) -> AttendedNet | AttendedUNet:
    """The untrained network, with as many parameters as mono."""
    return attended_net(problem, depth=settings.depth, num_heads=settings.num_heads)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (replace(velocity_method("cross-attention", Settings, build), version=2),)
