"""A decoder on Fourier features: all pixels share one function of the code and of waves at the pixel's position.

    phi(p) = [cos 2 pi B p, sin 2 pi B p],    B ~ N(0, scale^2), drawn once
    x(p) = mlp(W code + V phi(p))

Tancik et al. 2020 (Fourier Features Let Networks Learn High Frequency Functions): the scale of the waves' frequencies determines
how fine the details are that a network of pixel coordinates learns quickly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FourierDecoder(nn.Module):
    """Codes (B, E) -> images (B, C, H, W), pixel by pixel.

    Args:
        inputs: E.
        shape: (C, H, W).
        width: hidden units.
        depth: hidden layers after the first.
        num_waves: rows of B.
        scale: standard deviation of the waves' frequencies, in cycles over the image.
    """

    def __init__(self, inputs: int, shape: tuple[int, ...], *, width: int, depth: int, num_waves: int, scale: float) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.waves: Tensor
        self.register_buffer("waves", scale * torch.randn(2, num_waves))
        self.enter_code, self.enter_place = nn.Linear(inputs, width), nn.Linear(2 * num_waves, width)
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.GELU(), nn.Linear(width, width)]
        self.layers = nn.Sequential(*layers, nn.GELU(), nn.Linear(width, shape[0]))

    def forward(self, code: Tensor) -> Tensor:
        place = self.enter_place(self.features())  # (H W, width)
        pixels = self.layers(self.enter_code(code)[:, None] + place)  # (B, H W, C)
        return pixels.transpose(1, 2).unflatten(2, self.shape[1:])

    def features(self) -> Tensor:
        """phi at every pixel, row by row, (H W, 2 num_waves)."""
        _, height, width = self.shape
        return fourier_features(pixel_places(height, width, self.waves), self.waves)


def pixel_places(height: int, width: int, like: Tensor) -> Tensor:
    """Row and column of every pixel divided by the image's sides, in [0, 1), (H W, 2), with the device and type of `like`."""
    rows, columns = (torch.arange(size, device=like.device, dtype=like.dtype) / size for size in (height, width))
    return torch.cartesian_prod(rows, columns)


def fourier_features(place: Tensor, waves: Tensor) -> Tensor:
    """cos and sin of 2 pi p B: places (N, 2), frequencies (2, M) -> (N, 2 M)."""
    angle = 2 * math.pi * place @ waves
    return torch.cat([angle.cos(), angle.sin()], dim=1)
