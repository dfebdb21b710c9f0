"""Cross-attention to the condition: the middle of the network attends to one token a factor, NULL having a token of its own.

    h <- h + A(LN h, tokens(c)) in place of mono's h <- h + (gamma(c) * h + beta(c))

Conditioning as latent diffusion has it (Rombach et al. 2022, section 3.3), on factors instead of words.  Backbone, and the one
place that the condition enters at, are those of `mono` and `factored`; the layer's MLP is as wide as gives it mono's number
of parameters.
"""

from __future__ import annotations

from pydantic import Field

from compbench import Method, MethodSettings, Problem, hookimpl
from compbench.flow.attended_nets import AttendedNet, attended_net
from compbench.flow.velocity_methods import velocity_method


class Settings(MethodSettings):
    depth: int = Field(1, ge=1, le=16, description="layers of attention and MLP at the middle; the more, the narrower their MLPs")
    num_heads: int = Field(4, ge=1, le=32, description="heads of each layer's attention")


def build(settings: Settings, problem: Problem) -> AttendedNet:
    """The untrained network, of mono's number of parameters."""
    return attended_net(problem, depth=settings.depth, num_heads=settings.num_heads)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (velocity_method("cross-attention", Settings, build),)
