"""Linear probes: how well a factor's value can be read off a layer in cells that the probe was not fitted on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RIDGE = 1e-3
"""Ridge penalty, relative to the mean eigenvalue of the centred Gram matrix."""


def probe_r2(features: Tensor, target: Tensor, fitted: Tensor, *, ridge: float = RIDGE) -> tuple[float, float]:
    """R^2 of ridge regression from activations to a factor's value, in sample and held out.

        w = argmin |A w - y|^2 + lambda |w|^2,   solved in its dual, as there are more features than cells

    The paper fits and scores on all cells; with more features than cells that is 1 by construction.

    Args:
        features: activations, (B, ...).
        target: the factor's value, (B,).
        fitted: the cells that it is fitted on, bool (B,).
        ridge: lambda over the mean eigenvalue.

    Returns:
        R^2 on the fitted cells, and on the others; 1 is perfect, 0 is their mean, below is worse, NaN is undefined.
    """
    a, y = features.flatten(1).double(), target.double()
    own, mean = a[fitted] - a[fitted].mean(0), y[fitted].mean()
    gram = own @ own.T
    strength = ridge * gram.diagonal().mean().clamp(min=1e-300)
    dual = torch.linalg.solve(gram + strength * torch.eye(len(gram), dtype=gram.dtype), y[fitted] - mean)
    predicted = (a - a[fitted].mean(0)) @ (own.T @ dual) + mean
    return r2(predicted[fitted], y[fitted]), r2(predicted[~fitted], y[~fitted])


def r2(predicted: Tensor, target: Tensor) -> float:
    """1 - sum (y - p)^2 / sum (y - mean y)^2; NaN where the targets are all the same, as in a single cell."""
    spread = (target - target.mean()).square().sum()
    return (1 - (target - predicted).square().sum() / spread).item() if float(spread) > 0 else math.nan
