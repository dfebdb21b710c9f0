"""The velocity network of trajectories: a UNet along time, modulated by the condition at its middle.

    x = [states, actions], (B, C, frames)

This follows Diffuser's temporal UNet (Janner et al. 2022): convolutions only along time, 5 frames wide, over all channels.
Stages, residual blocks, time embedding and the position of the condition are those of the image UNet, so that methods carry over.
In addition, one dense layer leads from the whole trajectory to the middle, and another from the middle to the output, as in an
MLP.  The reason: a cube's position in the first frame determines the arm's position twenty frames later, and convolutions learn
such distant effects slowly.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compbench.flow.blocks import MULTIPLIERS, Modulation, ResidualLayer, TimeEmbedding, Trunk, num_groups
from compbench.system.errors import CompbenchError

KERNEL = 5


class TemporalUNet(nn.Module):
    """Stages of 1, 2 and 4 times `width` channels with one residual block each, a middle block, and a mirrored decoder.

    Args:
        shape: (C, frames) of a trajectory; frames divisible by `patch`.
        width: channels of the first stage; the time embedding has 4 times as many.
        patch: number of frames merged into one, with concatenated channels; 1 merges none.
    """

    def __init__(self, shape: tuple[int, ...], *, width: int, patch: int = 1) -> None:
        super().__init__()
        channels, frames = shape
        if frames % patch:
            raise CompbenchError(f"patch {patch} does not divide trajectories of {frames} frames; choose one that does.")
        self.patch, self.mid_channels = patch, MULTIPLIERS[-1] * width
        stages = [multiplier * width for multiplier in MULTIPLIERS]
        num_middle = -(-frames // patch)
        for _ in stages[1:]:
            num_middle = -(-num_middle // 2)
        whole = self.mid_channels * num_middle
        self.gather, self.spread = nn.Linear(channels * frames, whole), nn.Linear(whole, channels * frames)
        self.before, self.after = ResidualLayer(whole), ResidualLayer(whole)
        self.enter = _convolution(channels * patch, width)
        self.down_blocks = nn.ModuleList(TemporalBlock(stage, stage) for stage in stages)
        self.downs = nn.ModuleList(nn.Conv1d(low, high, 3, stride=2, padding=1) for low, high in pairwise(stages))
        self.middle = TemporalBlock(self.mid_channels, self.mid_channels)
        self.up_blocks = nn.ModuleList(TemporalBlock(2 * stage, stage) for stage in stages)
        self.ups = nn.ModuleList(nn.Conv1d(high, low, 3, padding=1) for low, high in pairwise(stages))
        self.leave_norm = nn.GroupNorm(num_groups(width), width)
        self.leave = nn.Conv1d(width, channels * patch, 1)
        for last in (self.leave, self.spread):
            nn.init.zeros_(last.weight)
        self.splits = [2 * block.channels for block in [*self.down_blocks, self.middle, *self.up_blocks]]
        self.splits = [2 * whole, *self.splits, 2 * whole]
        self.numbers_per_row = 10 * width * (frames // patch) + 6 * whole + 2 * sum(self.splits)
        self.time = TimeEmbedding(4 * width, sum(self.splits))

    def encode(self, x_t: Tensor, t: Tensor) -> Trunk:
        """The half before the condition: trajectories (B, C, frames) and times (B,) -> `Trunk`."""
        film = self.time(t)
        films = film.split(self.splits, dim=1)
        with torch.autocast(x_t.device.type, enabled=False):  # bf16 would round positions to three digits
            h, whole = self.enter(self._folded(x_t)), self.gather(x_t.flatten(1))
        skips = []
        for level, block in enumerate(self.down_blocks):
            h = block(h, films[level + 1])
            skips.append(h)
            if level < len(self.downs):
                h = self.downs[level](h)
        middle = self.middle(h, films[len(skips) + 1])
        return Trunk(middle + self.before(whole, films[0]).view_as(middle), tuple(skips), film)

    def decode(self, trunk: Trunk, modulation: Modulation) -> Tensor:
        """The half after the condition: `Trunk` and modulation (B, C) -> velocity (B, C, frames), float32."""
        *_, first, second, third, last = trunk.film.split(self.splits, dim=1)
        films = (first, second, third)
        h = trunk.middle
        h = h + (modulation.gamma[:, :, None] * h + modulation.beta[:, :, None])
        whole = self.after(h.flatten(1), last)
        for level in reversed(range(len(self.up_blocks))):
            h = self.up_blocks[level](torch.cat([h, trunk.skips[level]], dim=1), films[level])
            if level > 0:
                h = self.ups[level - 1](_stretched(h, trunk.skips[level - 1].shape[2]))
        with torch.autocast(h.device.type, enabled=False):
            local = self._unfolded(self.leave(F.silu(self.leave_norm(h.float()))))
            return local + self.spread(F.silu(whole.float())).view_as(local)

    def _folded(self, x: Tensor) -> Tensor:
        """(B, C, frames) -> (B, C patch, frames / patch)."""
        return x.unflatten(2, (-1, self.patch)).transpose(2, 3).flatten(1, 2) if self.patch > 1 else x

    def _unfolded(self, x: Tensor) -> Tensor:
        """The inverse of `_folded`."""
        return x.unflatten(1, (-1, self.patch)).transpose(2, 3).flatten(2) if self.patch > 1 else x


class TemporalBlock(nn.Module):
    """Two convolutions along time with a residual connection; flow time scales and shifts the maps between them (FiLM)."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.norm1 = nn.GroupNorm(num_groups(channels_in), channels_in)
        self.conv1 = _convolution(channels_in, channels)
        self.norm2 = nn.GroupNorm(num_groups(channels), channels)
        self.conv2 = _convolution(channels, channels)
        self.skip = nn.Identity() if channels_in == channels else nn.Conv1d(channels_in, channels, 1)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, h: Tensor, film: Tensor) -> Tensor:
        """(B, C_in, frames), and scale and shift by flow time (B, 2 C) -> (B, C, frames)."""
        scale, shift = film[:, :, None].chunk(2, dim=1)
        inner = self.conv1(F.silu(self.norm1(h)))
        inner = torch.addcmul(shift, self.norm2(inner), 1 + scale)
        return self.skip(h) + self.conv2(F.silu(inner))


def _convolution(channels_in: int, channels: int) -> nn.Conv1d:
    return nn.Conv1d(channels_in, channels, KERNEL, padding=KERNEL // 2)


def _stretched(h: Tensor, frames: int) -> Tensor:
    """Repeat each frame, and cut the result to the skip's length: 3 frames halve to 2, and 2 double to 4."""
    return h.repeat_interleave(2, dim=2)[:, :, :frames]
