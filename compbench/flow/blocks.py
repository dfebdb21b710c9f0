"""Parts of velocity networks: residual blocks, time embedding, conditioning heads, modulation."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MULTIPLIERS = (1, 2, 4)
"""Channels of the UNet's stages as multiples of its width."""


FREQUENCY_SPAN = 1000.0
"""Factor of flow time in [0, 1] in its sinusoidal embedding, which was designed for about 1000 integer steps."""


class Modulation(NamedTuple):
    """The effect of a condition on the middle of the network: gamma and beta, (B, C) each."""

    gamma: Tensor
    beta: Tensor


class Trunk(NamedTuple):
    """The output of the first half of a network at some x_t, before any condition enters.

    Attributes:
        middle: output of the middle block, (B, C, *spatial).
        skips: outputs of the first half for the second half, outermost first.
        film: time's scale and shift for every block, (B, sum of 2 C_block).
    """

    middle: Tensor
    skips: tuple[Tensor, ...]
    film: Tensor


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with a residual connection; time scales and shifts the maps between them (FiLM)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.norm1 = nn.GroupNorm(num_groups(channels_in), channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(num_groups(channels), channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.skip = nn.Identity() if channels_in == channels else nn.Conv2d(channels_in, channels, 1)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, h: Tensor, film: Tensor) -> Tensor:
        """(B, C_in, H, W), and scale and shift by time (B, 2 C) -> (B, C, H, W)."""
        scale, shift = film[:, :, None, None].chunk(2, dim=1)
        inner = self.conv1(F.silu(self.norm1(h)))
        inner = torch.addcmul(shift, self.norm2(inner), 1 + scale)
        return self.skip(h) + self.conv2(F.silu(inner))


class ResidualLayer(nn.Module):
    """h + W2 silu(FiLM_t(W1 silu(h)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h: Tensor, film: Tensor) -> Tensor:
        """(B, C), and scale and shift by time (B, 2 C) -> (B, C)."""
        scale, shift = film.chunk(2, dim=1)
        inner = self.linear1(F.silu(h)) * (1 + scale) + shift
        return h + self.linear2(F.silu(inner))


class TimeEmbedding(nn.Module):
    """Sinusoids of t and a two-layer MLP; one linear map gives all blocks their scale and shift at once.

    Args:
        size: number of sinusoids and hidden units.
        outputs: sum over the blocks of 2 C.
    """

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU())
        self.film = nn.Linear(size, outputs)
        exponent = torch.arange(size // 2) / (size // 2)
        self.frequencies: Tensor
        self.register_buffer("frequencies", FREQUENCY_SPAN * 10_000**-exponent, persistent=False)

    def forward(self, t: Tensor) -> Tensor:
        """Times (B,) -> scales and shifts (B, outputs)."""
        angle = t[:, None] * self.frequencies  # (B, size / 2)
        return self.film(self.mlp(torch.cat([angle.sin(), angle.cos()], dim=1)))


def num_groups(channels: int) -> int:
    """Number of groups of a group norm: 8, or the largest power of 2 below it that divides the channels."""
    return math.gcd(8, channels)


def head_hidden(channels: int, num_heads: int) -> int:
    """Hidden units of each of `num_heads` conditioning heads, such that up to three heads or six have as many together as one.

    6 C for one head and C for each of six: 1536 and 256 at the paper's 256 channels.  Each head has whole multiples of C and at
    least C, so four heads have 8 C together, five have 5 C, and n > 6 have n C.

    Args:
        channels: C, channels of the middle.
        num_heads: heads that share the budget.
    """
    return max(1, round(6 / num_heads)) * channels


def head(inputs: int, hidden: int, channels: int) -> nn.Sequential:
    """A conditioning head: two-layer MLP from a code to gamma and beta, (B, inputs) -> (B, 2 channels).

    Its last layer starts at zero, so an untrained head does not change the network.
    """
    last = nn.Linear(hidden, 2 * channels)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.SiLU(), last)
