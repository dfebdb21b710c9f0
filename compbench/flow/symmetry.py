"""Decoders with a known symmetry of their factors: one learnt picture, shifted or rotated according to the condition.

    shift  f(x, y)[v, u] = T[v - y, u - x]     by the shift theorem: each frequency k of T times exp(-2 pi i k . (y, x) / P)
    turn   f(a)[p] = T[R(-a) p]                bilinearly between pixels

T's canvas of P = 2 N - 1 pixels per side has an entry for every difference between a pixel and a position, so shifts do not wrap
around.  The decoders are equivariant by construction: what they learn at one position applies at all positions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compbench.api.factors import NULL


class ShiftedTemplate(nn.Module):
    """Positions (B, 2), (x, y), whole or real -> samples (B, C, H, W): a template shifted there, averaged over open axes.

    Args:
        shape: (C, H, W).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, *self.sides = shape
        self.canvas = [2 * side - 1 for side in self.sides]
        self.template = nn.Parameter(torch.zeros(channels, *self.canvas))  # differences 0 ... N - 1, then -(N - 1) ... -1

    def forward(self, place: Tensor) -> Tensor:
        shifted = shift(self.template, place.flip(1))
        return 2 * shifted[..., : self.sides[0], : self.sides[1]] - 1


class TurnedTemplate(nn.Module):
    """Angles (B, 1), in steps of 1 / size of a turn -> samples (B, C, H, W): a template rotated counter-clockwise.

    Args:
        shape: (C, H, W).
        size: number of steps of a whole turn.
    """

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        super().__init__()
        self.size, self.template = size, nn.Parameter(torch.zeros(shape))

    def forward(self, angle: Tensor) -> Tensor:
        return 2 * turn(self.template, angle[:, 0].to(self.template.dtype) / self.size) - 1


def shift(template: Tensor, offset: Tensor) -> Tensor:
    """A periodic image moved by a whole or fractional number of pixels, by the shift theorem.

    Args:
        template: (C, P, Q); P and Q are odd, so that each frequency k != 0 has its conjugate -k, which fractional shifts need.
        offset: pixels down and to the right, (B, 2); NULL gives the mean over all shifts along that axis.

    Returns:
        (B, C, P, Q), of the template's type.
    """
    place = offset.to(template.dtype)
    down, right = (_phases(place[:, axis], size) for axis, size in enumerate(template.shape[1:]))  # (B, P), (B, Q)
    spectrum = torch.fft.rfft2(template)  # (C, P, Q // 2 + 1)
    moved = spectrum * down[:, None, :, None] * right[:, None, None, : spectrum.shape[2]]
    return torch.fft.irfft2(moved, s=template.shape[1:])


def _phases(place: Tensor, size: int) -> Tensor:
    """exp(-2 pi i k place / size) of every frequency k, complex (B, size); for NULL, 1 at k = 0 and 0 elsewhere."""
    frequency = torch.fft.fftfreq(size, 1 / size, dtype=place.dtype, device=place.device)
    angle = -2 * math.pi / size * torch.remainder(frequency * place[:, None], size)
    kept = torch.where((place == NULL)[:, None], (frequency == 0).to(place.dtype), 1.0)
    return torch.polar(kept, angle)


def turn(image: Tensor, turns: Tensor) -> Tensor:
    """An image rotated about its centre, by bilinear interpolation, with zeros outside of the image.

    Args:
        image: (C, H, W).
        turns: counter-clockwise angles in whole turns, (B,).

    Returns:
        (B, C, H, W).
    """
    angle = 2 * math.pi * turns
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], dim=1)  # (B, 2, 3)
    size = [len(turns), *image.shape]
    grid = F.affine_grid(matrix, size, align_corners=True)
    return F.grid_sample(image.expand(size), grid, mode="bilinear", padding_mode="zeros", align_corners=True)
