"""What single units of a layer respond to: their activations over the grid of both factors, and their tuning curves.

    tuning to x  the mean over y of a unit's activation, and to y the mean over x

Forced rendering, figures 4 (e, f) and 15.
"""

from __future__ import annotations

import torch
from torch import Tensor


def most_varying(activations: Tensor, sizes: tuple[int, int], count: int) -> Tensor:
    """The maps of the units whose activation varies most over the grid, one a channel.

    Args:
        activations: of one layer, (X * Y, C) or (X * Y, C, ...), y fastest.
        sizes: X and Y.
        count: K, or as many channels as there are.

    Returns:
        (K, X, Y), the one that varies most first.
    """
    channels = activations.detach().flatten(2) if activations.ndim > 2 else activations.detach()[..., None]  # (N, C, R)
    varies, place = channels.var(0).max(-1)  # (C,)
    chosen = varies.argsort(descending=True, stable=True)[:count]
    return torch.stack([channels[:, unit, place[unit]].unflatten(0, sizes) for unit in chosen.tolist()])


def tuning(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Tuning curves to both factors of maps (K, X, Y): (K, X) and (K, Y)."""
    return maps.mean(2), maps.mean(1)
