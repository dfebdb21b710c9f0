"""Velocity networks: a UNet for images, an MLP for vectors, both modulated by the condition at their middle.

    h <- h + (gamma(c) * h + beta(c))

The condition enters only there, so methods that differ in `conditioning` share everything else, and several conditions at one x_t
share the first half of the network (`VelocityNet.stacked`).  `temporal` has the network for trajectories.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compbench.flow.blocks import (
    MULTIPLIERS,
    Modulation,
    ResidualBlock,
    ResidualLayer,
    TimeEmbedding,
    Trunk,
    head,
    head_hidden,
    num_groups,
)
from compbench.flow.compose import Guidance
from compbench.flow.encode import one_hots
from compbench.flow.path import per_sample
from compbench.flow.temporal import TemporalUNet
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.api.interfaces import Budget, Event, Problem


SHORTEST_TIME_LEFT = 0.05
"""Smallest 1 - t in the conversion of a denoised sample to a velocity; it bounds the loss's weight at 400."""


class VelocityNet(nn.Module):
    """v(x_t, t | c): a backbone and a conditioning module.

    Args:
        backbone: `UNet`, `TemporalUNet` or `MLP`.
        conditioning: maps conditions (B, F) to gamma and beta side by side, (B, 2 C).
        sample_steps: number of solver steps for a sample.
        prediction: meaning of the backbone's output: "velocity", or "denoised", E[x1 | x_t], from which the velocity follows
            as (E[x1 | x_t] - x_t) / (1 - t).  With large patches the latter gives far cleaner images, because the narrow
            first stage need not carry the noise through (Li & He 2025).
    """

    def __init__(
        self,
        backbone: UNet | TemporalUNet | MLP,
        conditioning: nn.Module,
        *,
        sample_steps: int,
        prediction: Literal["velocity", "denoised"] = "velocity",
    ) -> None:
        super().__init__()
        self.backbone, self.conditioning, self.sample_steps = backbone, conditioning, sample_steps
        self.prediction = prediction
        self.guidance: Guidance | None = None  # the task's guidance, if samples may be composed

    @property
    def numbers_per_row(self) -> int:
        """Largest number of float32 values that a forward without gradients holds for one row and condition."""
        return self.backbone.numbers_per_row

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """v(x_t, t | c).

        Args:
            x_t: points, (B, *D).
            t: times, (B,).
            condition: (B, F), NULL where open.

        Returns:
            velocity, float32 (B, *D).
        """
        output = self.backbone.decode(self.backbone.encode(x_t, t), self._modulation(condition))
        return self._velocity(output, x_t, t)

    def stacked(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        """v(x_t, t | c_k) for K conditions in one batched forward; the first half of the network is evaluated once.

        Args:
            x_t: points, (B, *D).
            t: times, (B,).
            conditions: (K, B, F).

        Returns:
            velocities, float32 (K, B, *D).
        """
        count = len(conditions)
        trunk = self.backbone.encode(x_t, t)
        repeated = Trunk(_tile(trunk.middle, count), tuple(_tile(skip, count) for skip in trunk.skips), _tile(trunk.film, count))
        output = self.backbone.decode(repeated, self._modulation(conditions.flatten(0, 1)))  # (K B, *D)
        return self._velocity(output.unflatten(0, (count, len(x_t))), x_t, t)

    def _velocity(self, output: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The velocity from the backbone's output (..., B, *D)."""
        if self.prediction == "velocity":
            return output
        return (output - x_t) / (1 - per_sample(t, x_t)).clamp(min=SHORTEST_TIME_LEFT)

    def _modulation(self, condition: Tensor) -> Modulation:
        gamma, beta = self.conditioning(condition).chunk(2, dim=1)
        return Modulation(gamma, beta)


class UNet(nn.Module):
    """The image backbone: stages of 1, 2 and 4 times `width` channels, one block each, a middle block, and a mirrored decoder.

    Factored velocity fields, section 5: 64 x 64 pixels, width 64, 256 channels at 16 x 16 in the middle.
    With `patch` p, the image's p x p blocks first become channels (pixel-unshuffle), which divides the cost by about p^2.

    Args:
        shape: (C, H, W) of an image; H and W divisible by `patch`.
        width: channels of the first stage; the time embedding has 4 times as many.
        patch: pixel-unshuffle factor; 1 works on pixels.
    """

    def __init__(self, shape: tuple[int, ...], *, width: int, patch: int = 1) -> None:
        super().__init__()
        channels, height, side = shape
        if height % patch or side % patch:
            raise CompbenchError(f"patch {patch} does not divide images of {height} x {side}; choose one that does.")
        self.patch = patch
        self.numbers_per_row = 10 * width * height * side // patch**2  # the widest stage: skip, both halves, norm, activation
        self.mid_channels = MULTIPLIERS[-1] * width
        stages = [multiplier * width for multiplier in MULTIPLIERS]
        self.enter = nn.Conv2d(channels * patch**2, width, 3, padding=1)
        self.down_blocks = nn.ModuleList(ResidualBlock(stage, stage) for stage in stages)
        self.downs = nn.ModuleList(nn.Conv2d(low, high, 3, stride=2, padding=1) for low, high in pairwise(stages))
        self.middle = ResidualBlock(self.mid_channels, self.mid_channels)
        self.up_blocks = nn.ModuleList(ResidualBlock(2 * stage, stage) for stage in stages)
        self.ups = nn.ModuleList(nn.Conv2d(high, low, 3, padding=1) for low, high in pairwise(stages))
        self.leave_norm = nn.GroupNorm(num_groups(width), width)
        self.leave = nn.Conv2d(width, channels * patch**2, 3, padding=1)
        nn.init.zeros_(self.leave.weight)
        blocks = [*self.down_blocks, self.middle, *self.up_blocks]
        self.splits = [2 * block.channels for block in blocks]
        self.time = TimeEmbedding(4 * width, sum(self.splits))

    def encode(self, x_t: Tensor, t: Tensor) -> Trunk:
        """The half before the condition: images (B, C, H, W) and times (B,) -> `Trunk`."""
        film = self.time(t)
        films = film.split(self.splits, dim=1)
        h = self.enter(F.pixel_unshuffle(x_t, self.patch) if self.patch > 1 else x_t)
        skips = []
        for level, block in enumerate(self.down_blocks):
            h = block(h, films[level])
            skips.append(h)
            if level < len(self.downs):
                h = self._down(level, h)
        return Trunk(self.middle(h, films[len(skips)]), tuple(skips), film)

    def _down(self, level: int, h: Tensor) -> Tensor:
        if min(h.shape[2:]) > 2:
            return self.downs[level](h)
        # The convolution to a single pixel is in fp32, because there oneDNN's bf16 weight gradient reads uninitialised memory.
        with torch.autocast(h.device.type, enabled=False):
            return self.downs[level](h.float())

    def decode(self, trunk: Trunk, modulation: Modulation) -> Tensor:
        """The half after the condition: `Trunk` and modulation (B, C) -> velocity (B, C, H, W), float32."""
        films = trunk.film.split(self.splits, dim=1)[-len(self.up_blocks) :]
        h = trunk.middle
        h = h + (modulation.gamma[:, :, None, None] * h + modulation.beta[:, :, None, None])
        for level in reversed(range(len(self.up_blocks))):
            h = self.up_blocks[level](torch.cat([h, trunk.skips[level]], dim=1), films[level])
            if level > 0:  # to the size of the skip: 28 pixels halve to 7, and 7 does not halve
                h = self.ups[level - 1](F.interpolate(h, size=trunk.skips[level - 1].shape[2:]))
        velocity = self.leave(F.silu(self.leave_norm(h)))
        return (F.pixel_shuffle(velocity, self.patch) if self.patch > 1 else velocity).float()


class MLP(nn.Module):
    """The vector backbone: two residual layers, the modulated middle, two residual layers; time enters by FiLM.

    Args:
        shape: (*D) of a sample; it is flattened.
        width: hidden units.
    """

    def __init__(self, shape: tuple[int, ...], *, width: int) -> None:
        super().__init__()
        size = math.prod(shape)
        self.shape, self.mid_channels = tuple(shape), width
        self.numbers_per_row = 24 * width  # scales and shifts of four layers, and the activations of one
        self.enter = nn.Linear(size, width)
        self.before = nn.ModuleList(ResidualLayer(width) for _ in range(2))
        self.after = nn.ModuleList(ResidualLayer(width) for _ in range(2))
        self.leave = nn.Linear(width, size)
        nn.init.zeros_(self.leave.weight)
        self.time = TimeEmbedding(64, 2 * width * 4)

    def encode(self, x_t: Tensor, t: Tensor) -> Trunk:
        """The half before the condition: samples (B, *D) and times (B,) -> `Trunk`."""
        film = self.time(t)
        with torch.autocast(x_t.device.type, enabled=False):  # bf16 would round positions to three digits
            h = self.enter(x_t.flatten(1))
        for layer, part in zip(self.before, film.chunk(4, dim=1)[:2], strict=True):
            h = layer(h, part)
        return Trunk(h, (), film)

    def decode(self, trunk: Trunk, modulation: Modulation) -> Tensor:
        """The half after the condition: `Trunk` and modulation (B, C) -> velocity (B, *D), float32."""
        h = trunk.middle
        h = h + (modulation.gamma * h + modulation.beta)
        for layer, part in zip(self.after, trunk.film.chunk(4, dim=1)[2:], strict=True):
            h = layer(h, part)
        with torch.autocast(h.device.type, enabled=False):
            return self.leave(F.silu(h.float())).unflatten(1, self.shape)


def velocity_net(trunk: UNet | TemporalUNet | MLP, conditioning: nn.Module, budget: Budget) -> VelocityNet:
    """A backbone and a conditioning module, with the budget's prediction and number of solver steps."""
    return VelocityNet(trunk, conditioning, sample_steps=budget.sample_steps, prediction=budget.prediction)


def backbone(event: Event, budget: Budget) -> UNet | TemporalUNet | MLP:
    """The budget's backbone for an event: a UNet for images, one along time for trajectories, an MLP for vectors."""
    if event.kind == "image":
        return UNet(event.shape, width=budget.width, patch=budget.patch)
    if event.kind == "trajectory":
        return TemporalUNet(event.shape, width=budget.width, patch=budget.patch)
    return MLP(event.shape, width=budget.width)


class MonolithicConditioning(nn.Module):
    """One head on the one-hots of all factors side by side, NULL as zeros: (B, F) -> (B, 2 C).  FVF, appendix B."""

    def __init__(self, sizes: tuple[int, ...], *, hidden: int, channels: int) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.head = head(sum(sizes), hidden, channels)

    def forward(self, condition: Tensor) -> Tensor:
        return self.head(one_hots(condition, self.sizes))


def monolithic_net(problem: Problem, *, head_width: float = 1.0) -> VelocityNet:
    """The budget's backbone with monolithic conditioning: what `mono` and `slice-cfg` share.

    Args:
        problem: its space, event and budget.
        head_width: hidden units of the head divided by the protocol's, `head_hidden(C, 1)`.
    """
    trunk = backbone(problem.event, problem.budget)
    hidden = round(head_width * head_hidden(trunk.mid_channels, 1))
    conditioning = MonolithicConditioning(problem.space.sizes, hidden=hidden, channels=trunk.mid_channels)
    net = velocity_net(trunk, conditioning, problem.budget)
    net.guidance = Guidance.of(problem)
    return net


def _tile(x: Tensor, count: int) -> Tensor:
    """(B, ...) -> (count B, ...), the whole batch repeated; keeps channels-last."""
    return x.repeat(count, *([1] * (x.ndim - 1))) if x.ndim != 4 else torch.cat([x] * count)
