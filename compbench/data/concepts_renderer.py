"""One coloured shape on a dark ground: the pictures of the concept space.

    pixel = ground + coverage * (colour - ground),    coverage = clip(1/2 - distance to the shape's edge, 0, 1)

A colour lies between red and blue, and a radius between small and large.  Colour and size have two classes each.  A class is a
band of nearby values, and the distance between the two bands is the concept's signal.  Written after Okawa et al. 2023 and Park
et al. 2024.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compbench.data.lattices import checked

SIZES = (2, 16, 8, 9, 9)
"""shape, colour (two bands of 8), size (two bands of 4), x, y"""
SIDE = 28
RED, BLUE, GROUND = (230.0, 50.0, 40.0), (40.0, 70.0, 230.0), 25.0
COLOUR_BAND, SIZE_BAND = 0.2, 1.0
"""Widths of the bands: in shares of the way from red to blue, and in pixels of radius."""
MEAN_RADIUS = 6.0
STEP = 1.0
"""Pixels between neighbouring positions; the positions lie around the middle."""


class ConceptsRenderer:
    """Renders combinations of the concept space.

    Args:
        colour_signal: distance between the middles of the two colour bands, as a share of the way from red to blue.
        size_signal: distance between the middles of the two size bands, in pixels of radius.
        device: where images come out.
    """

    def __init__(self, *, colour_signal: float, size_signal: float, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        shares = _bands(0.5, colour_signal, COLOUR_BAND, SIZES[1]).clamp(0, 1)[:, None]
        self._colours = (torch.tensor(RED) * (1 - shares) + torch.tensor(BLUE) * shares).to(self.device)  # (16, 3)
        self._radii = _bands(MEAN_RADIUS, size_signal, SIZE_BAND, SIZES[2]).to(self.device)  # (8,)
        self._pixels = torch.arange(SIDE, device=self.device) + 0.5

    def __call__(self, conditions: Tensor) -> Tensor:
        """Images of combinations.

        Args:
            conditions: LongTensor (B, 5) in the order of `SIZES`.

        Returns:
            uint8 (B, 3, 28, 28) on the renderer's device.

        Raises:
            CompbenchError: a value out of range, or the wrong number of factors.
        """
        shape, colour, size, x, y = checked("concept", conditions, SIZES, self.device).unbind(1)
        across, down = (self._pixels - SIDE / 2 - STEP * (place[:, None] - (SIZES[3] - 1) / 2) for place in (x, y))  # (B, 28)
        edge = edge_distance(shape, self._radii[size], across[:, None, :], down[:, :, None])
        coverage = (0.5 - edge).clamp(0, 1)[:, None]  # (B, 1, 28, 28)
        image = torch.lerp(torch.full_like(coverage, GROUND), self._colours[colour][:, :, None, None], coverage)
        return image.round().to(torch.uint8)


def edge_distance(shape: Tensor, radius: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Distance of places from the edge of a shape around (0, 0), negative inside, in pixels.

    Args:
        shape: 0 a disc, 1 an upright triangle of the same area, (B,).
        radius: the disc's radius, (B,).
        across, down: places, (B, 1, W) and (B, H, 1).

    Returns:
        (B, H, W); of the triangle, the largest of the distances from its three sides.
    """
    radius = radius[:, None, None]
    disc = (across.square() + down.square()).sqrt() - radius
    inner = radius * 0.7776  # sqrt(pi / (3 sqrt 3)): an equilateral triangle of the disc's area has this inradius
    slanted = across.abs() * (3**0.5 / 2) - down / 2
    triangle = torch.maximum(slanted, down.expand_as(slanted)) - inner
    return torch.where(shape[:, None, None] == 0, disc, triangle)


def _bands(middle: float, signal: float, width: float, count: int) -> Tensor:
    """`count` values, evenly spaced in two bands around `middle` -+ `signal` / 2."""
    within = torch.linspace(-width / 2, width / 2, count // 2)
    return torch.cat([middle - signal / 2 + within, middle + signal / 2 + within])
