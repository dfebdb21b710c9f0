"""Localisation of a bump: the brightest pixel against the requested position, and whether it is the only peak.

A superposition of several bumps can succeed by luck: if the brightest pixel alone counts, a third of a plain decoder's held-out
images are right.  The strict form also requires a peak above 1/2 and no second peak above half of it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SHAPE = 0.75
"""Cosine that counts as the same shape; a perfect bump of width 1 that is one pixel off has exp(-1/4) = 0.78."""


class Localisation(NamedTuple):
    """Which images have their bump at the requested position, each bool (B,).

    Attributes:
        x, y: this coordinate of the brightest pixel is within the tolerance.
        both: both coordinates are within the tolerance.
        exact: the brightest pixel is exactly the requested one.
        strict: both, the peak exceeds 1/2, and no local maximum beyond the tolerance exceeds half of it.
    """

    x: Tensor
    y: Tensor
    both: Tensor
    exact: Tensor
    strict: Tensor


def localise(upright: Tensor, condition: Tensor, *, tolerance: int = 1) -> Localisation:
    """Localisation of upright images.

    Args:
        upright: (B, H, W), bright on dark.
        condition: the requested positions, (x, y), (B, 2).
        tolerance: pixels that each coordinate may be off.
    """
    peak, index = upright.flatten(1).max(1)
    found = torch.stack([index % upright.shape[2], index // upright.shape[2]], dim=1)  # column is x, row is y
    off = (found - condition).abs()
    right = off <= tolerance
    both = right.all(1)
    lonely = _second_peak(upright, found, tolerance) <= peak / 2
    return Localisation(right[:, 0], right[:, 1], both, (off == 0).all(1), both & (peak > 0.5) & lonely)


def shaped(upright: Tensor, truth: Tensor, condition: Tensor, *, tolerance: int = 1, least: float = SHAPE) -> Tensor:
    """Which images are localised and have the right shape: their cosine with the true image is above `least`.

    The crossing of two stripes has its single peak in the right position but is not a bump.

    Args:
        upright, truth: (B, H, W).
        condition: (x, y), (B, 2).

    Returns:
        bool (B,).
    """
    alike = F.cosine_similarity(upright.flatten(1), truth.flatten(1), dim=1) > least
    return localise(upright, condition, tolerance=tolerance).both & alike


def _second_peak(upright: Tensor, found: Tensor, tolerance: int) -> Tensor:
    """Height of the highest local maximum further than the tolerance from `found` (B, 2); -inf if there is none."""
    padded = F.pad(upright[:, None], (1, 1, 1, 1), value=-torch.inf)
    local = upright == F.max_pool2d(padded, 3, stride=1)[:, 0]
    columns = torch.arange(upright.shape[2], device=upright.device)
    rows = torch.arange(upright.shape[1], device=upright.device)
    near_x = (columns - found[:, 0, None]).abs() <= tolerance  # (B, W)
    near_y = (rows - found[:, 1, None]).abs() <= tolerance
    near = near_y[:, :, None] & near_x[:, None, :]
    return upright.masked_fill(~local | near, -torch.inf).flatten(1).amax(1)
