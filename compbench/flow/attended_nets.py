"""Velocity networks whose middle attends to the condition: a token a factor, instead of one scale and shift of all channels.

    h <- h + A(LN h, tokens(c)),    h <- h + mlp(LN h)

The backbones, and the one place that the condition enters at, are those of `nets`: networks differ in conditioning alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from compbench.flow.attention import CrossAttention, FactorTokens
from compbench.flow.blocks import Modulation, Trunk
from compbench.flow.matching import matched_width, parameters_of
from compbench.flow.nets import backbone, monolithic_net
from compbench.flow.token_nets import Prediction, normalised, velocity_of, zeroed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compbench.api.interfaces import Problem


class AttendedNet(nn.Module):
    """v(x_t, t | c): a backbone whose middle attends to the tokens of the condition.

    Args:
        trunk: `UNet`, `TemporalUNet` or `MLP`.
        sizes: number of values of each factor.
        hidden: units of each layer's MLP.
        depth: layers.
        num_heads: of their attention.
        prediction, sample_steps: as of `VelocityNet`.
    """

    def __init__(
        self,
        trunk: Any,
        sizes: Sequence[int],
        *,
        hidden: int,
        depth: int,
        num_heads: int,
        prediction: Prediction,
        sample_steps: int,
    ) -> None:
        super().__init__()
        channels = trunk.mid_channels
        self.backbone, self.sample_steps = trunk, sample_steps
        self.prediction: Prediction = prediction
        self.tokens = FactorTokens(sizes, channels)
        self.layers = nn.ModuleList(AttendingLayer(channels, hidden, num_heads) for _ in range(depth))

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Points (B, *D), times (B,) and conditions (B, F), NULL where open -> velocity, float32 (B, *D)."""
        trunk = self.backbone.encode(x_t, t)
        middle = self.attended(trunk.middle, condition)
        nothing = middle.new_zeros(len(middle), self.backbone.mid_channels)
        output = self.backbone.decode(Trunk(middle, trunk.skips, trunk.film), Modulation(nothing, nothing))
        return velocity_of(output, x_t, t, self.prediction)

    def attended(self, middle: Tensor, condition: Tensor) -> Tensor:
        """The middle (B, C, *spatial) of a backbone after it attended to conditions (B, F)."""
        places, tokens = middle.flatten(2) if middle.ndim > 2 else middle[:, :, None], self.tokens(condition)
        h = places.transpose(1, 2)  # (B, N, C)
        for layer in self.layers:
            h = layer(h, tokens)
        return h.transpose(1, 2).reshape(middle.shape)


class AttendingLayer(nn.Module):
    """Cross-attention and an MLP, both residual and 0 at first: places (B, N, C), tokens (B, F, C) -> (B, N, C)."""

    def __init__(self, channels: int, hidden: int, num_heads: int) -> None:
        super().__init__()
        self.attention = CrossAttention(channels, num_heads)
        zeroed(self.attention.leave)
        self.mlp = nn.Sequential(nn.Linear(channels, hidden), nn.SiLU(), zeroed(nn.Linear(hidden, channels)))

    def forward(self, h: Tensor, tokens: Tensor) -> Tensor:
        h = h + self.attention(normalised(h), tokens)
        return h + self.mlp(normalised(h))


def attended_net(problem: Problem, *, depth: int, num_heads: int) -> AttendedNet:
    """The budget's backbone with attention at its middle, of `monolithic_net`'s number of parameters."""

    def make(hidden: int) -> AttendedNet:
        return AttendedNet(
            backbone(problem.event, problem.budget),
            problem.space.sizes,
            hidden=hidden,
            depth=depth,
            num_heads=num_heads,
            prediction=problem.budget.prediction,
            sample_steps=problem.budget.sample_steps,
        )

    return make(matched_width(make, parameters_of(lambda: monolithic_net(problem)), step=8))
