"""Recorded plans in place of a method's: the sampler that gives the ceilings of a planning task.

This sampler only replays recorded segments.  So its failures are due to the procedure: another arm pose, a cube that lies a
centimetre off and rotated, and the controller.
"""

from __future__ import annotations

import numpy
import torch
from torch import Generator, Tensor

from compbench.data.cube_segments import CUBE, Segments, normalised


class RecordedPlans:
    """Answers a request for plans with recorded segments of the requested pairs.

    Args:
        segments: recorded plans of any pairs.
        seed: seed of the order in which the segments of a pair are taken.
    """

    def __init__(self, segments: Segments, *, seed: int = 0) -> None:
        order = torch.randperm(len(segments.plans), generator=Generator().manual_seed(seed)).tolist()
        self._plans = normalised(segments.plans)
        self._rows: dict[tuple[int, ...], list[int]] = {}
        for row in order:
            self._rows.setdefault(tuple(segments.cells[row].tolist()), []).append(row)

    def cells(self, asked: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        """The requested pairs that have at least one segment."""
        return tuple(cell for cell in asked if cell in self._rows)

    def __call__(
        self, condition: Tensor, *, stream: str, known: Tensor | None = None, known_mask: Tensor | None = None
    ) -> Tensor:
        """Plans of pairs (B, 2) as networks see them, float32 (B, 17, frames).

        Without given entries, the segments of a pair are used in turn.  With given entries, the answer is the pair's segment
        whose cube starts and ends nearest to the given cube; the given entries overwrite the segment's.
        """
        if known is None or known_mask is None:
            return torch.from_numpy(self._plans[self._in_turn(condition)])
        places = numpy.array([self._nearest(*asked) for asked in zip(condition.tolist(), known.numpy(), strict=True)], int)
        return torch.where(known_mask, known, torch.from_numpy(self._plans[places]))

    def _in_turn(self, condition: Tensor) -> list[int]:
        counts: dict[tuple[int, ...], int] = {}
        found = []
        for cell in map(tuple, condition.tolist()):
            counts[cell] = counts.get(cell, -1) + 1
            found.append(self._rows[cell][counts[cell] % len(self._rows[cell])])
        return found

    def _nearest(self, cell: list[int], given: numpy.ndarray) -> int:
        rows = self._rows[tuple(cell)]
        ends = self._plans[rows][:, CUBE][..., [0, -1]]  # (rows, 3, 2)
        return rows[int(numpy.square(ends - given[CUBE][..., [0, -1]]).sum(axis=(1, 2)).argmin())]
