"""The embedded dSprites: white sprites on black by their outlines, fitted to the official frames.

    pixel is on  iff  r < scale * R_shape(angle),    r and angle of its centre (column + 0.5, row + 0.5) seen from the sprite

Sprites stand at 16 + 32 k / 31 pixels, k = 0 ... 31, across (x) and down (y); scales are 0.5, 0.6 ... 1; orientation k is a turn
by -2 pi k / 39 in image coordinates, so that 0 and 39 look the same.  `experiments/fit_dsprites.py` fits R to the 320 frames
that the official repository shows: no wrong pixel in them, and about one a frame in frames that a fit was not given.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compbench.data.dsprites_outlines import ELLIPSE, HEART, SQUARE
from compbench.flow.transfer import numbers, send
from compbench.system.errors import CompbenchError

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
        if conditions.ndim != 2 or conditions.shape[1] != len(SIZES):
            raise CompbenchError(f"dSprites conditions must be (B, {len(SIZES)}), got {tuple(conditions.shape)}.")
        if bool(((conditions < 0) | (conditions >= numbers(SIZES, conditions.device, torch.long))).any()):
            raise CompbenchError(f"dSprites factors must lie in 0 ... {[size - 1 for size in SIZES]}.")
        shape, scale, orientation, x, y = send(conditions, self.device).unbind(1)
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
        """Which places (B, 1, W) x (B, W, 1) from the sprite's centre lie within its outline, bool (B, W, W)."""
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
