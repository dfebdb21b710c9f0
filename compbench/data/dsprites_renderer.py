"""The embedded dSprites: white sprites on black by their outlines, fitted to the official frames.

    pixel is on  iff  r < scale * R_shape(angle),    r and angle of its centre (column + 0.5, row + 0.5) seen from the sprite

Sprites are at 16 + 32 k / 31 pixels, k = 0 ... 31, across (x) and down (y); scales are 0.5, 0.6 ... 1; orientation k is a turn
by -2 pi k / 39 in image coordinates, so that 0 and 39 look the same.  `experiments/fit_dsprites.py` fits R to the 320 frames
that the official repository shows: it has no wrong pixel in them, and about one per frame in frames that were left out of a fit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compbench.data.lattices import checked

# fmt: off
SQUARE = (
    9.4932, 9.5378, 9.5824, 9.6271, 9.6717, 9.7163, 9.7610, 9.8056, 9.8502, 9.8948, 9.9395, 10.0090,
    10.0786, 10.1481, 10.2177, 10.2872, 10.4478, 10.6084, 10.7690, 10.9295, 11.0901, 11.2588, 11.4276, 11.6222,
    11.8813, 12.1404, 12.3996, 12.6587, 12.9178, 13.1769, 13.4360, 13.1769, 12.9178, 12.6587, 12.3996, 12.1404,
    11.8813, 11.6222, 11.4276, 11.2588, 11.0901, 10.9295, 10.7690, 10.6084, 10.4478, 10.2872, 10.2177, 10.1481,
    10.0786, 10.0090, 9.9395, 9.8948, 9.8502, 9.8056, 9.7610, 9.7163, 9.6717, 9.6271, 9.5824, 9.5378,
    9.4932,
)
ELLIPSE = (
    7.1062, 7.1348, 7.1633, 7.1919, 7.2204, 7.2490, 7.2776, 7.3061, 7.3347, 7.3632, 7.3918, 7.4204,
    7.4615, 7.5043, 7.5471, 7.5946, 7.6422, 7.6897, 7.7372, 7.8243, 7.9113, 7.9984, 8.0854, 8.1746,
    8.2638, 8.3530, 8.4422, 8.5314, 8.6206, 8.7097, 8.7989, 8.9470, 9.0952, 9.2433, 9.3914, 9.5395,
    9.6876, 9.8357, 9.9881, 10.1520, 10.3159, 10.4797, 10.6436, 10.8074, 10.9713, 11.1352, 11.2990, 11.4629,
    11.6106, 11.7582, 11.9059, 12.0535, 12.1827, 12.3119, 12.3977, 12.4836, 12.5571, 12.6305, 12.7040, 12.7775,
    12.8510,
)
HEART = (
    9.6064, 9.0653, 8.5243, 8.1348, 7.8732, 7.6722, 7.4711, 7.2700, 7.1292, 6.9883, 6.8475, 6.7066,
    6.6033, 6.5272, 6.4511, 6.3750, 6.2989, 6.2228, 6.1644, 6.1079, 6.0737, 6.0395, 6.0053, 5.9711,
    5.9369, 5.9062, 5.9058, 5.9054, 5.9050, 5.9045, 5.9041, 5.9037, 5.9033, 5.9277, 5.9522, 5.9766,
    6.0048, 6.0330, 6.0611, 6.0893, 6.1480, 6.2066, 6.2653, 6.3239, 6.3826, 6.4425, 6.5195, 6.5965,
    6.6735, 6.7751, 6.8768, 6.9784, 7.0800, 7.1817, 7.2833, 7.3978, 7.5440, 7.6903, 7.8366, 7.9829,
    8.1291, 8.2822, 8.4413, 8.6003, 8.7594, 8.9185, 9.0775, 9.2366, 9.3956, 9.5514, 9.7041, 9.8567,
    9.9910, 10.1119, 10.2329, 10.3538, 10.4748, 10.5957, 10.6972, 10.7987, 10.8795, 10.9496, 11.0077, 11.0659,
    11.1241, 11.1587, 11.1933, 11.2279, 11.2416, 11.2355, 11.2293, 11.2231, 11.2170, 11.1876, 11.1382, 11.0888,
    11.0395, 10.9763, 10.9005, 10.8036, 10.7068, 10.5928, 10.4511, 10.3095, 10.1678, 9.9992, 9.8014, 9.5816,
    9.3618, 9.1420, 8.8643, 8.5810, 8.2978, 7.9734, 7.6490, 7.3036, 6.8881, 6.4727, 6.0338, 5.5950,
    5.1561,
)
# fmt: on
"""Outlines of the three shapes, printed by `experiments/fit_dsprites.py` from 320 official frames: radius in pixels at scale 1,
at evenly spaced angles from the shape's axis, linear in between.  None of the 320 frames has a wrong pixel."""

SHAPES = ("square", "ellipse", "heart")
SIZES = (3, 6, 40, 32, 32)
"""shape, scale, orientation, x, y"""
SIDE = 64
NEXT = 180 / (len(HEART) - 1)
"""Degrees between two radii of an outline."""


def centre(position: int) -> float:
    """Coordinate of a sprite's centre in pixels from the image's edge."""
    return 16 + 32 * position / 31


def turn(orientation: int) -> float:
    """Angle of an orientation in radians."""
    return -2 * math.pi * orientation / 39


class DSpritesRenderer:
    """Renders dSprites combinations: only the box around a sprite is computed.

    Args:
        device: where images come out.
    """

    def __init__(self, *, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        outlines = [[*half, *half[-2::-1]] for half in (SQUARE, ELLIPSE)] + [list(HEART)]  # 0 ... 180 degrees
        self._outlines = torch.tensor(outlines, device=self.device)
        self._reach = math.ceil(max(map(max, outlines))) + 1
        self._centres = torch.tensor([centre(k) for k in range(SIZES[3])], device=self.device)
        self._turns = torch.tensor([turn(k) for k in range(SIZES[2])], device=self.device)

    def __call__(self, conditions: Tensor) -> Tensor:
        """Images of combinations.

        Args:
            conditions: LongTensor (B, 5) in the order of `SIZES`.

        Returns:
            uint8 (B, 1, 64, 64), 0 or 255, on the renderer's device.

        Raises:
            CompbenchError: a value out of range, or the wrong number of factors.
        """
        shape, scale, orientation, x, y = checked("dSprites", conditions, SIZES, self.device).unbind(1)
        across, columns = self._offsets(self._centres[x])  # (B, W)
        down, rows = self._offsets(self._centres[y])
        on = self._inside(shape, 0.5 + 0.1 * scale, self._turns[orientation], across[:, None, :], down[:, :, None])
        image = torch.zeros(len(conditions), SIDE * SIDE, dtype=torch.uint8, device=self.device)
        places = rows[:, :, None] * SIDE + columns[:, None, :]  # (B, W, W)
        image.scatter_(1, places.flatten(1), on.flatten(1).to(torch.uint8) * 255)
        return image.view(-1, 1, SIDE, SIDE)

    def _offsets(self, centres: Tensor) -> tuple[Tensor, Tensor]:
        """From the sprites' centres (B,) to the centres of the pixels near them (B, W), and these pixels' indices."""
        first = centres.floor().long() - self._reach
        pixels = first[:, None] + torch.arange(2 * self._reach + 1, device=self.device)  # never beyond the image: 1 ... 63
        return pixels + 0.5 - centres[:, None], pixels

    def _inside(self, shape: Tensor, size: Tensor, angle: Tensor, across: Tensor, down: Tensor) -> Tensor:
        """Which offsets (B, 1, W) x (B, W, 1) from a sprite's centre lie within its outline, bool (B, W, W)."""
        cosine, sine = (part[:, None, None] for part in (angle.cos(), angle.sin()))
        u = cosine * across + sine * down
        v = cosine * down - sine * across
        steps = torch.atan2(u.abs(), v).mul_(180 / (math.pi * NEXT))
        below = steps.long().clamp_(max=self._outlines.shape[1] - 2)
        own = self._outlines[shape]  # (B, K)
        low = own.gather(1, below.flatten(1)).view_as(steps)
        high = own.gather(1, below.flatten(1) + 1).view_as(steps)
        radius = torch.lerp(low, high, steps - below)
        return u.square_().add_(v.square_()) < (radius * size[:, None, None]).square_()
