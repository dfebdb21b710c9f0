"""Analyse outputs and activations with respect to two factors: kernels, maps and tuning curves of units, linear probes.

    distance_ij = |a_i - a_j|        overlap_ij = sum_p min(a_ip, a_jp) / sum_p max(a_ip, a_jp),  of parts above 0
    tuning to x  the mean over y of a unit's activation, and to y the mean over x

Forced rendering, figures 4 (e, f), 8 and 15.  The paper does not define its overlap; this one (Jaccard's, for grey pixels) is our
choice.  A probe says how well a factor's value can be decoded from a layer in cells that the probe was not fitted on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

RIDGE = 1e-3
"""Ridge penalty, relative to the mean eigenvalue of the centred Gram matrix."""


def distances(outputs: Tensor) -> Tensor:
    """Euclidean distances between outputs, (N, P) -> (N, N)."""
    return torch.cdist(outputs, outputs)


def overlaps(outputs: Tensor) -> Tensor:
    """Overlaps between upright outputs, (N, P) -> (N, N) in [0, 1]; two black outputs have overlap 1."""
    bright = outputs.clamp(min=0)
    total = bright.sum(1)
    rows = []
    for row, own in zip(bright, total, strict=True):
        both = torch.minimum(row, bright).sum(1)
        either = own + total - both
        rows.append(torch.where(either > 0, both / either.clamp(min=1e-12), 1.0))
    return torch.stack(rows)


def most_varying(activations: Tensor, sizes: tuple[int, int], count: int) -> Tensor:
    """The maps of the units whose activation varies most over the grid, one per channel.

    Args:
        activations: activations of one layer, (X * Y, C) or (X * Y, C, ...), y fastest.
        sizes: X and Y.
        count: K; if there are fewer channels, all of them are taken.

    Returns:
        (K, X, Y), the most varying first.
    """
    channels = activations.detach().flatten(2) if activations.ndim > 2 else activations.detach()[..., None]  # (N, C, R)
    varies, place = channels.var(0).max(-1)  # (C,)
    chosen = varies.argsort(descending=True, stable=True)[:count]
    return torch.stack([channels[:, unit, place[unit]].unflatten(0, sizes) for unit in chosen.tolist()])


def tuning(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Tuning curves to both factors of maps (K, X, Y): (K, X) and (K, Y)."""
    return maps.mean(2), maps.mean(1)


def probe_r2(features: Tensor, target: Tensor, fitted: Tensor, *, ridge: float = RIDGE) -> tuple[float, float]:
    """R^2 of ridge regression from activations to a factor's value, in sample and held out.

        w = argmin |A w - y|^2 + lambda |w|^2,   solved in its dual, because there are more features than cells

    The paper fits and scores on all cells; with more features than cells that is 1 by construction.

    Args:
        features: activations, (B, ...).
        target: the factor's value, (B,).
        fitted: the cells that the probe is fitted on, bool (B,).
        ridge: lambda divided by the mean eigenvalue.

    Returns:
        R^2 on the fitted cells, and on the others; 1 is perfect, 0 is as good as their mean, below 0 is worse, NaN is
        undefined.
    """
    a, y = features.flatten(1).double(), target.double()
    own, mean = a[fitted] - a[fitted].mean(0), y[fitted].mean()
    gram = own @ own.T
    strength = ridge * gram.diagonal().mean().clamp(min=1e-300)
    dual = torch.linalg.solve(gram + strength * torch.eye(len(gram), dtype=gram.dtype), y[fitted] - mean)
    predicted = (a - a[fitted].mean(0)) @ (own.T @ dual) + mean
    return r2(predicted[fitted], y[fitted]), r2(predicted[~fitted], y[~fitted])


def r2(predicted: Tensor, target: Tensor) -> float:
    """1 - sum (y - p)^2 / sum (y - mean y)^2; NaN if all targets are equal, as in a single cell."""
    spread = (target - target.mean()).square().sum()
    return (1 - (target - predicted).square().sum() / spread).item() if float(spread) > 0 else math.nan
