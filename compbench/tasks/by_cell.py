"""How many samples of each cell are right: what a joint accuracy is made of."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from compbench.api.interfaces import CellCount


def count_cells(cells: Tensor, right: Tensor) -> tuple[CellCount, ...]:
    """Right ones and all of each cell, in the order of cells.

    Args:
        cells: of each sample its values of the holdout's factors, (N, P) long.
        right: which samples are right, (N,) bool.
    """
    keys = [tuple(row) for row in cells.tolist()]
    found = Counter(key for key, good in zip(keys, right.tolist(), strict=True) if good)
    return tuple(CellCount(cell, found[cell], number) for cell, number in sorted(Counter(keys).items()))
