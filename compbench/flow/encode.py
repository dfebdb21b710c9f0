"""Conditions as vectors: one-hot with NULL as zeros, and the centred one-hot of factored models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compbench.api.factors import NULL


def one_hot(values: Tensor, size: int) -> Tensor:
    """One factor's values as vectors: e_v, and the zero vector for NULL.

    Args:
        values: values 0 ... size - 1 or NULL, (B,).
        size: number of values.

    Returns:
        float32 (B, size).
    """
    columns = torch.arange(size, device=values.device)
    return (values[:, None] == columns).float()  # no column equals NULL, so its row is zero


def one_hots(condition: Tensor, sizes: Sequence[int]) -> Tensor:
    """A whole condition as one vector: the factors' one-hots side by side.

    Args:
        condition: (B, F).
        sizes: number of values of each factor.

    Returns:
        float32 (B, sum of sizes).
    """
    columns = [one_hot(condition[:, k], size) for k, size in enumerate(sizes)]
    return torch.cat(columns, dim=1)


def centred_one_hot(values: Tensor, frequency: Tensor) -> Tensor:
    """One factor's values relative to the training mean: e_v - p, and the zero vector for NULL.

    NULL and the average of all values then have the same code, 0, so that a linear head's bias is its mean output.

    Args:
        values: values 0 ... size - 1 or NULL, (B,).
        frequency: p, share of the training examples with each value, (size,).

    Returns:
        float32 (B, size).
    """
    known = (values != NULL)[:, None]  # (B, 1)
    return (one_hot(values, len(frequency)) - frequency) * known
