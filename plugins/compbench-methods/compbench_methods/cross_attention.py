"""Cross-attention to the condition: the network's maps attend to one token a factor, NULL having a token of its own.

    h <- h + A(LN h, tokens(c)) in place of mono's h <- h + (gamma(c) * h + beta(c))

Conditioning as latent diffusion has it (Rombach et al. 2022, section 3.3), on factors instead of words.  On images each residual
block of the UNet is followed by such a layer, at all resolutions, as there.  Version 1 had one layer, at the middle.  On
vectors and trajectories the layer is at the middle, where `mono` and `factored` have their condition.
The layers' MLPs are as wide as gives the network mono's number of parameters: on images attention takes nearly all of these, and
the MLP of the middle has 8 units.

Theirs: each layer has self-attention of places, too.
Ours: there is none.
Why: networks differ in conditioning alone.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from compbench import Method, MethodSettings, Problem, hookimpl
from compbench.flow.attended_nets import AttendedNet, AttendedUNet, attended_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    depth: int = Field(1, ge=1, le=16, description="layers of attention and MLP after a block; the more, the narrower their MLPs")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each layer's attention")


def build(settings: Settings, problem: Problem) -> AttendedNet | AttendedUNet:
    """The untrained network, of mono's number of parameters."""
    return attended_net(problem, depth=settings.depth, num_heads=settings.num_heads)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (replace(velocity_method("cross-attention", Settings, build), version=2),)
