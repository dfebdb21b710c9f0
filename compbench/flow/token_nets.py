"""Velocity networks on patches: time and condition modulate the blocks, and a mixer determines what a patch sees.

    e = time(t) + sum_f e_f(c_f)
    h <- h + alpha * mix(gamma * LN(h) + beta),    h <- h + alpha' * mlp(gamma' * LN(h) + beta')

In each block, alpha, beta and gamma are linear maps of silu(e).  At first alpha, beta and gamma - 1 are 0 (adaLN-zero, Peebles &
Xie 2023), so an untrained block is the identity.  LN is over the channels of one position, so only the mixer moves information
between positions: attention to all, or a convolution over neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from compbench.api.interfaces import Problem
from compbench.flow.blocks import TimeEmbedding
from compbench.flow.decoders import sinusoidal_places
from compbench.flow.encode import one_hots
from compbench.flow.matching import matched_width, parameters_of
from compbench.flow.nets import SHORTEST_TIME_LEFT, monolithic_net
from compbench.flow.path import per_sample
from compbench.system.errors import CompbenchError, Refused

Prediction = Literal["velocity", "denoised"]
Mixer = Callable[[int, int], nn.Module]
"""(number of the block, channels C) -> module from maps (B, H, W, C) to maps of the same shape."""


class TokenNet(nn.Module):
    """v(x_t, t | c) of an image, patch by patch.

    Args:
        shape: (C, H, W) of an image.
        sizes: number of values of each factor.
        width: channels of a token, divisible by 4.
        depth: blocks.
        patch: pixels of a token's side, which divide H and W.
        mixer: how each block mixes positions.
        prediction: meaning of the output, as in `VelocityNet`.
        sample_steps: number of solver steps for a sample.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        sizes: Sequence[int],
        *,
        width: int,
        depth: int,
        patch: int,
        mixer: Mixer,
        prediction: Prediction,
        sample_steps: int,
    ) -> None:
        super().__init__()
        channels, height, side = shape
        self.sizes, self.patch = tuple(sizes), patch
        self.prediction: Prediction = prediction
        self.sample_steps = sample_steps
        self.grid = (height // patch, side // patch)
        self.enter = nn.Linear(channels * patch**2, width)
        self.register_buffer("place", sinusoidal_places(*self.grid, width).unflatten(0, self.grid), persistent=False)
        self.time = TimeEmbedding(width, width)
        self.condition = nn.Linear(sum(sizes), width, bias=False)
        self.blocks = nn.ModuleList(AdaptiveBlock(width, mixer(number, width)) for number in range(depth))
        self.last = zeroed(nn.Linear(width, 2 * width))
        self.leave = zeroed(nn.Linear(width, channels * patch**2))

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """Points (B, C, H, W), times (B,) and conditions (B, F), NULL where open -> velocity, float32 (B, C, H, W)."""
        embedding = F.silu(self.time(t) + self.condition(one_hots(condition, self.sizes)))  # (B, width)
        h = self.enter(F.pixel_unshuffle(x_t, self.patch).permute(0, 2, 3, 1)) + self.place  # (B, H / p, W / p, width)
        for block in self.blocks:
            h = block(h, embedding)
        shift, scale = self.last(embedding)[:, None, None].chunk(2, dim=-1)
        output = self.leave(normalised(h) * (1 + scale) + shift)
        return velocity_of(F.pixel_shuffle(output.permute(0, 3, 1, 2), self.patch).float(), x_t, t, self.prediction)


class AdaptiveBlock(nn.Module):
    """A mixer and an MLP; an embedding (B, C) scales and shifts the input of each, and gates its output: maps (B, H, W, C).

    Args:
        channels: C.
        mixer: maps (B, H, W, C) -> maps of the same shape.
    """

    def __init__(self, channels: int, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.modulation = zeroed(nn.Linear(channels, 6 * channels))

    def forward(self, h: Tensor, embedding: Tensor) -> Tensor:
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(embedding)[:, None, None].chunk(6, dim=-1)
        h = h + gate * self.mixer(normalised(h) * (1 + scale) + shift)
        return h + gate2 * self.mlp(normalised(h) * (1 + scale2) + shift2)


class AllPlaces(nn.Module):
    """Attention between all positions of a map."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, h: Tensor) -> Tensor:
        return self.attention(h.flatten(1, 2)).view_as(h)


class Neighbours(nn.Module):
    """A 3 x 3 convolution: each position sees itself and its eight neighbours, with zeros outside of the map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return self.convolution(h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def velocity_of(output: Tensor, x_t: Tensor, t: Tensor, prediction: Prediction) -> Tensor:
    """The velocity from a network's output (B, *D) at x_t (B, *D) and t (B,), as in `VelocityNet`."""
    if prediction == "velocity":
        return output
    return (output - x_t) / (1 - per_sample(t, x_t)).clamp(min=SHORTEST_TIME_LEFT)


def token_net(problem: Problem, mixer: Mixer, *, tokens: int, depth: int, step: int) -> TokenNet:
    """The untrained network of a problem, with as many parameters as `monolithic_net`.

    Args:
        problem: a problem whose samples are images.
        mixer: what a patch sees, block by block.
        tokens: largest number of patches along a side.
        depth: number of blocks.
        step: step of the tried widths: a multiple of 4, and of what the mixer needs.

    Raises:
        Refused: the samples are not images.
    """
    if problem.event.kind != "image":
        raise Refused(f"a network on patches makes images, this task asks for {problem.event.kind}s.")
    patch = patch_of(problem.event.shape, tokens)

    def make(width: int) -> TokenNet:
        return TokenNet(
            problem.event.shape,
            problem.space.sizes,
            width=width,
            depth=depth,
            patch=patch,
            mixer=mixer,
            prediction=problem.budget.prediction,
            sample_steps=problem.budget.sample_steps,
        )

    return make(matched_width(make, parameters_of(lambda: monolithic_net(problem)), step=step))


def patch_of(shape: tuple[int, ...], num_tokens: int) -> int:
    """The smallest patch that divides an image's sides (C, H, W) into at most `num_tokens` tokens each.

    Raises:
        CompbenchError: no patch does so.
    """
    _, *sides = shape
    for patch in range(1, min(sides) + 1):
        if not any(side % patch for side in sides) and max(sides) // patch <= num_tokens:
            return patch
    raise CompbenchError(
        f"no patch divides images of {sides[0]} x {sides[1]} into at most {num_tokens} tokens a side; "
        f"set tokens to {max(sides) // math.gcd(*sides)} or more."
    )


def normalised(h: Tensor) -> Tensor:
    """LN over the last axis, without weights."""
    return F.layer_norm(h, h.shape[-1:])


def zeroed(layer: nn.Linear) -> nn.Linear:
    """Set a layer's weights and bias to 0, and return it."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
