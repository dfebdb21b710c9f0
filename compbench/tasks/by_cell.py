"""Counts of correct samples by cell, from which a joint accuracy is computed."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from compbench.api.interfaces import CellCount


def count_cells(cells: Tensor, right: Tensor) -> tuple[CellCount, ...]:
    """Number of correct samples and of all samples for each cell, in the order of cells.

    Args:
        cells: each sample's values of the holdout's factors, (N, P) long.
        right: which samples are correct, (N,) bool.
    """
    keys = [tuple(row) for row in cells.tolist()]
    found = Counter(key for key, good in zip(keys, right.tolist(), strict=True) if good)
    return tuple(CellCount(cell, found[cell], number) for cell, number in sorted(Counter(keys).items()))
