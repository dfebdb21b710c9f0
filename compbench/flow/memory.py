"""Limit the rows that a network evaluates at a time on a GPU, so that the largest request fits next to the referee."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FORWARD_NUMBERS = 1 << 32
"""Largest number of float32 values that one forward without gradients may hold: 16 GiB."""


def rows_at_once(net: object, copies: int) -> int:
    """Rows for which a forward with `copies` conditions (or experts times conditions) each stays within `FORWARD_NUMBERS`.

    Args:
        net: its `numbers_per_row` is the most that its forward holds for one row and condition; nothing is split without it.
        copies: rows of the forward for each row of the batch.
    """
    each = getattr(net, "numbers_per_row", 0) * copies
    return max(1, FORWARD_NUMBERS // each) if each else 1 << 62


def in_parts(
    call: Callable[[Tensor, Tensor, Tensor], Tensor], size: int, x: Tensor, t: Tensor, conditions: Tensor, *, dim: int
) -> Tensor:
    """call(x, t, conditions), on a GPU without gradients by `size` rows at a time, and otherwise in one call.

    Args:
        call: a function that treats rows independently; rows are axis `dim` of its result.
        size: number of rows at a time.
        x: points, (B, *D).
        t: times, (B,).
        conditions: (K, B, F).
        dim: axis of B in the result.
    """
    if x.device.type != "cuda" or torch.is_grad_enabled() or len(x) <= size:
        return call(x, t, conditions)
    parts = [slice(first, first + size) for first in range(0, len(x), size)]
    return torch.cat([call(x[part], t[part], conditions[:, part]) for part in parts], dim=dim)
