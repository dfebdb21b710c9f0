"""Two coloured sprites on a dark ground, the front one over the back one.

    image = a_1 c_1 + (1 - a_1) (a_2 c_2 + (1 - a_2) ground),    a = clip(1/2 - distance to the sprite's edge in pixels, 0, 1)

One function draws each sprite from the sprite's five factors.  Written after the sprites of Wiedemer et al. 2023.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compbench.data.concepts_renderer import edge_distance
from compbench.data.lattices import checked

OWN = (4, 4, 3, 2, 4)
"""x, y, shape, size, colour of one sprite"""
SIZES = (*OWN, *OWN)
COLOURS = ((230, 60, 50), (240, 200, 60), (70, 200, 90), (70, 110, 240))
GROUND = 25.0
RADII = (0.095, 0.14)
"""Radii of the two sizes, as fractions of the image's side."""
FIRST, NEXT = 0.2, 0.2
"""Centre of the first position, and the distance to the next, as fractions of the image's side."""


class SpritesRenderer:
    """Renders pairs of sprites.

    Args:
        side: pixels of the image's side.
        device: where images come out.
    """

    def __init__(self, *, side: int, device: str | torch.device = "cpu") -> None:
        self.device, self.side = torch.device(device), side
        self._colours = torch.tensor(COLOURS, dtype=torch.float32, device=self.device)  # (4, 3)
        self._radii = torch.tensor(RADII, device=self.device) * side
        self._places = (FIRST + NEXT * torch.arange(OWN[0], device=self.device)) * side
        self._pixels = torch.arange(side, device=self.device) + 0.5

    def __call__(self, conditions: Tensor) -> Tensor:
        """Images of combinations.

        Args:
            conditions: LongTensor (B, 10): x, y, shape, size and colour of the front sprite, then of the back one.

        Returns:
            uint8 (B, 3, side, side) on the renderer's device.

        Raises:
            CompbenchError: a value out of range, or the wrong number of factors.
        """
        front, back = checked("two-sprites", conditions, SIZES, self.device).split(len(OWN), dim=1)
        image = torch.full((len(conditions), 3, self.side, self.side), GROUND, device=self.device)
        for sprite in (back, front):
            image = torch.lerp(image, self._colours[sprite[:, 4]][:, :, None, None], self.coverage(sprite)[:, None])
        return image.round().to(torch.uint8)

    def coverage(self, sprite: Tensor) -> Tensor:
        """The share of each pixel that a sprite (B, 5) covers, (B, side, side) in [0, 1]."""
        x, y, shape, size, _ = sprite.unbind(1)
        across, down = (self._pixels - self._places[place][:, None] for place in (x, y))
        radius = self._radii[size]
        across, down = across[:, None, :], down[:, :, None]
        round_or_triangle = edge_distance(shape, radius, across, down)
        square = torch.maximum(across.abs().expand_as(round_or_triangle), down.abs()) - 0.886 * radius[:, None, None]  # same area
        return (0.5 - torch.where(shape[:, None, None] == 2, square, round_or_triangle)).clamp(0, 1)
