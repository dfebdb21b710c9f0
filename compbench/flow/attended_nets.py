"""Velocity networks that attend to the condition, with one token per factor, instead of a scale and shift of all channels.

    h <- h + A(LN h, tokens(c)),    h <- h + mlp(LN h)

`AttendedUNet` attends after every residual block of an image's UNet, `AttendedNet` in the middle of any backbone.  The backbones
are those of `nets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compbench.flow.attention import CrossAttention, FactorTokens
from compbench.flow.blocks import Modulation, Trunk
from compbench.flow.matching import matched_width, parameters_of
from compbench.flow.nets import UNet, backbone, monolithic_net
from compbench.flow.token_nets import Prediction, normalised, velocity_of, zeroed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compbench.api.interfaces import Problem


class AttendedNet(nn.Module):
    """v(x_t, t | c): a backbone whose middle block attends to the tokens of the condition.

    Args:
        trunk: `UNet`, `TemporalUNet` or `MLP`.
        sizes: number of values of each factor.
        hidden: units of each layer's MLP.
        depth: number of layers.
        num_heads: heads of the layers' attention.
        prediction, sample_steps: as in `VelocityNet`.
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
        self.layers = nn.ModuleList(AttendingLayer(channels, hidden, num_heads, channels) for _ in range(depth))

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Points (B, *D), times (B,) and conditions (B, F), NULL where open -> velocity, float32 (B, *D)."""
        trunk = self.backbone.encode(x_t, t)
        middle = self.attended(trunk.middle, condition)
        nothing = middle.new_zeros(len(middle), self.backbone.mid_channels)
        output = self.backbone.decode(Trunk(middle, trunk.skips, trunk.film), Modulation(nothing, nothing))
        return velocity_of(output, x_t, t, self.prediction)

    def attended(self, middle: Tensor, condition: Tensor) -> Tensor:
        """The middle (B, C, *spatial) of a backbone after it attended to conditions (B, F)."""
        return through(self.layers, middle, self.tokens(condition))


class AttendedUNet(nn.Module):
    """v(x_t, t | c) of images: a UNet whose maps attend to the tokens of the condition after each residual block.

    Rombach et al. 2022, section 3.3, without attention between positions, because convolutions connect them.

    Args:
        unet: the protocol's UNet.
        sizes: number of values of each factor.
        hidden: units of each MLP in the middle; elsewhere the units per channel are the same.
        depth: number of layers after each block.
        num_heads: heads of the layers' attention.
        prediction, sample_steps: as in `VelocityNet`.
    """

    def __init__(
        self,
        unet: UNet,
        sizes: Sequence[int],
        *,
        hidden: int,
        depth: int,
        num_heads: int,
        prediction: Prediction,
        sample_steps: int,
    ) -> None:
        super().__init__()
        self.backbone, self.sample_steps = unet, sample_steps
        self.prediction: Prediction = prediction
        self.tokens = FactorTokens(sizes, unet.mid_channels)

        def layers(channels: int) -> nn.ModuleList:
            own = max(1, hidden * channels // unet.mid_channels)
            return nn.ModuleList(AttendingLayer(channels, own, num_heads, unet.mid_channels) for _ in range(depth))

        stages = [split // 2 for split in unet.splits[: len(unet.down_blocks)]]
        self.down_layers, self.up_layers = (nn.ModuleList(layers(channels) for channels in stages) for _ in range(2))
        self.middle_layers = layers(unet.mid_channels)

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Points (B, C, H, W), times (B,) and conditions (B, F), NULL where open -> velocity, float32 (B, C, H, W)."""
        unet, tokens = self.backbone, self.tokens(condition)
        films = unet.time(t).split(unet.splits, dim=1)
        count = len(unet.down_blocks)
        h, skips = unet.enter(F.pixel_unshuffle(x_t, unet.patch)), []
        for level, block in enumerate(unet.down_blocks):
            h = through(self.down_layers[level], block(h, films[level]), tokens)
            skips.append(h)
            if level < len(unet.downs):
                h = unet._down(level, h)
        h = through(self.middle_layers, unet.middle(h, films[count]), tokens)
        for level in reversed(range(count)):
            h = unet.up_blocks[level](torch.cat([h, skips[level]], dim=1), films[count + 1 + level])
            h = through(self.up_layers[level], h, tokens)
            if level > 0:
                h = unet.ups[level - 1](F.interpolate(h, size=skips[level - 1].shape[2:]))
        output = F.pixel_shuffle(unet.leave(F.silu(unet.leave_norm(h))), unet.patch).float()
        return velocity_of(output, x_t, t, self.prediction)


def through(layers: nn.Module, maps: Tensor, tokens: Tensor) -> Tensor:
    """Maps (B, C, *spatial) after each of their positions attended to tokens (B, F, E), through a list of layers."""
    h = (maps.flatten(2) if maps.ndim > 2 else maps[:, :, None]).transpose(1, 2)  # (B, N, C)
    for layer in cast("nn.ModuleList", layers):
        h = layer(h, tokens)
    return h.transpose(1, 2).reshape(maps.shape)


class AttendingLayer(nn.Module):
    """Cross-attention and an MLP, both residual and initially 0: positions (B, N, C), tokens (B, F, E) -> (B, N, C)."""

    def __init__(self, channels: int, hidden: int, num_heads: int, token_channels: int) -> None:
        super().__init__()
        self.attention = CrossAttention(channels, num_heads, token_channels)
        zeroed(self.attention.leave)
        self.mlp = nn.Sequential(nn.Linear(channels, hidden), nn.SiLU(), zeroed(nn.Linear(hidden, channels)))

    def forward(self, h: Tensor, tokens: Tensor) -> Tensor:
        h = h + self.attention(normalised(h), tokens)
        return h + self.mlp(normalised(h))


def attended_net(problem: Problem, *, depth: int, num_heads: int) -> AttendedNet | AttendedUNet:
    """The budget's backbone with attention at every stage (images) or at its middle; as many parameters as `monolithic_net`."""
    kind = AttendedUNet if problem.event.kind == "image" else AttendedNet

    def make(hidden: int) -> AttendedNet | AttendedUNet:
        trunk: Any = backbone(problem.event, problem.budget)
        return kind(
            trunk,
            problem.space.sizes,
            hidden=hidden,
            depth=depth,
            num_heads=num_heads,
            prediction=problem.budget.prediction,
            sample_steps=problem.budget.sample_steps,
        )

    return make(matched_width(make, parameters_of(lambda: monolithic_net(problem)), step=8))
