"""The race of base and head: pairs of fresh processes take turns, and a test compares their times.

A pair is one process of each side.  They work in turns, and the pair's log ratio comes from neighbouring slices (`turns`).  The
side that begins alternates from pair to pair, so that a machine that slows down favours neither side.

1. run some pairs; while a row is unclear, run twice as many and more, up to a limit of pairs and of time
2. a row whose one-sided 95 % bound exceeds the tolerance is *suspected*
3. run five fresh pairs of its cell; the row is a regression only if their own bound exceeds the tolerance again, and all of its
   pairs together pass Holm's test over the table
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from compbench.board.statistics import holm
from compbench.gate.paired_test import Comparison, compare, pairs_needed
from compbench.gate.turns import Label, Pair

FRESH_PAIRS = 5
CELL_SECONDS = 120.0
"""An unclear case that has raced for this long, with twice the first number of pairs, gets no more pairs; a suspected row still
gets fresh pairs.  On a machine so busy that three pairs take two minutes, and at the spread measured there, three pairs left half
of the gates of identical code inconclusive, and six pairs left 1 or 2 %."""

Timer = Callable[[str, Label], Pair]
"""A function from a case and the side that begins to the measurements of a pair of fresh processes."""


class Lap(NamedTuple):
    """One row of the table: a cell's training or sampling.

    Attributes:
        base, head: median seconds of each pair's process; the first pairs come before the fresh ones.
        comparison: comparison of all pairs' log ratios with log(1 + tolerance).
        suspected: whether the bound of the first pairs exceeded the tolerance.
        repeated: whether the bound of the fresh pairs exceeded it too.
        regression: whether the row is a regression.
        needed: number of pairs needed to decide, if these pairs do not decide.
    """

    cell: str
    row: str
    base: tuple[float, ...]
    head: tuple[float, ...]
    comparison: Comparison
    suspected: bool
    repeated: bool
    regression: bool
    needed: int | None


class _Cell:
    """The pairs of one cell so far, and their duration in seconds."""

    def __init__(self, name: str, timer: Timer) -> None:
        self.name, self._timer = name, timer
        self.pairs: list[Pair] = []
        self.first = 0
        self.seconds = 0.0

    def run_pair(self) -> None:
        start = time.monotonic()
        self.pairs.append(self._timer(self.name, "base" if len(self.pairs) % 2 == 0 else "head"))
        self.seconds += time.monotonic() - start

    def rows(self) -> list[str]:
        """Rows that every pair had."""
        return sorted(set.intersection(*(set(pair.log_ratios) for pair in self.pairs)))

    def log_ratios(self, row: str, start: int = 0) -> list[float]:
        return [pair.log_ratios[row] for pair in self.pairs[start:]]

    def compared(self, row: str, limit: float, start: int = 0) -> Comparison:
        return compare(self.log_ratios(row, start), limit)


def race(
    cells: Sequence[str], timer: Timer, *, tolerance: float, pairs: int, max_pairs: int, seconds: float = CELL_SECONDS
) -> list[Lap]:
    """Run the pairs and decide.

    Args:
        cells: names of the cells.
        timer: runs a pair of a cell.
        tolerance: largest relative slowdown that passes, 0.05 for 5 %.
        pairs: pairs of each cell before the first look, at least 2.
        max_pairs: largest number of pairs before a cell is left unclear.
        seconds: a cell with twice the first pairs is left unclear after this time, too.

    Returns:
        one lap per row, in the order of cells.
    """
    limit = math.log1p(tolerance)
    running = [_Cell(name, timer) for name in cells]
    for _ in range(pairs):
        for cell in running:
            cell.run_pair()
    for cell in running:
        while len(cell.pairs) < (max_pairs if cell.seconds < seconds else min(2 * pairs, max_pairs)) and _undecided(cell, limit):
            cell.run_pair()
    suspects = {cell.name: [row for row in cell.rows() if cell.compared(row, limit).finding == "worse"] for cell in running}
    for cell in running:
        cell.first = len(cell.pairs)
        if suspects[cell.name]:
            for _ in range(FRESH_PAIRS):
                cell.run_pair()
    return _decided(running, suspects, limit)


def _undecided(cell: _Cell, limit: float) -> bool:
    """Whether more pairs could help: no row is suspected, and at least one is unclear."""
    findings = {cell.compared(row, limit).finding for row in cell.rows()}
    return "worse" not in findings and "unclear" in findings


def _decided(cells: Sequence[_Cell], suspects: Mapping[str, Sequence[str]], limit: float) -> list[Lap]:
    keys = [(cell, row) for cell in cells for row in cell.rows()]
    together = [cell.compared(row, limit) for cell, row in keys]
    fallen = holm([found.p_value for found in together])
    laps = []
    for (cell, row), found, falls in zip(keys, together, fallen, strict=True):
        suspected = row in suspects[cell.name]
        repeated = suspected and cell.compared(row, limit, cell.first).finding == "worse"
        laps.append(
            Lap(
                cell.name,
                row,
                tuple(pair.base[row] for pair in cell.pairs),
                tuple(pair.head[row] for pair in cell.pairs),
                found,
                suspected,
                repeated,
                repeated and falls,
                _needed(cell.log_ratios(row), found, limit),
            )
        )
    return laps


def _needed(log_ratios: Sequence[float], found: Comparison, limit: float) -> int | None:
    """Number of pairs that would decide; also for a suspected row whose fresh pairs did not confirm the slowdown."""
    if found.finding != "worse":
        return found.needed
    spread = math.sqrt(math.fsum((value - found.mean) ** 2 for value in log_ratios) / max(1, found.n - 1))
    return pairs_needed(found.mean - limit, spread, found.n)
