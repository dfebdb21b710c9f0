"""The race of base and head: fresh processes in ABBA order, and what their times allow to say.

A pair is one process of each side; its log ratio is log(head / base) of the medians within the two processes.  The order is
turned from pair to pair (base head, head base, ...), so that a machine that slows down favours neither.

    1. some pairs; more, up to a limit, while a row is unclear
    2. a row whose one-sided 95 % bound exceeds the tolerance is *suspected*
    3. five fresh pairs of its cell: only if their own bound exceeds the tolerance again, and all its pairs together pass
       Holm's test over the table, is the row a regression
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from compbench.board.statistics import holm
from compbench.gate.paired_test import Comparison, compare, pairs_needed

FRESH_PAIRS = 5

Timer = Callable[[Literal["base", "head"], str], Mapping[str, float]]
"""(side, cell) -> seconds by row, from a fresh process."""


class Lap(NamedTuple):
    """One row of the table: a cell's training or sampling.

    Attributes:
        base, head: seconds in each pair's process, the first pairs and then the fresh ones.
        comparison: of all pairs' log ratios with log(1 + tolerance).
        suspected: whether the first pairs were over the tolerance.
        repeated: whether the fresh pairs were too.
        regression: whether it is one.
        needed: pairs that would do to tell, where these don't.
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
    """The pairs of one cell so far."""

    def __init__(self, name: str, timer: Timer) -> None:
        self.name, self._timer = name, timer
        self.pairs: list[tuple[Mapping[str, float], Mapping[str, float]]] = []
        self.first = 0

    def run_pair(self) -> None:
        order: tuple[Literal["base", "head"], ...] = ("base", "head") if len(self.pairs) % 2 == 0 else ("head", "base")
        seconds = {side: self._timer(side, self.name) for side in order}
        self.pairs.append((seconds["base"], seconds["head"]))

    def rows(self) -> list[str]:
        """Rows that every process had."""
        return sorted(set.intersection(*(set(base) & set(head) for base, head in self.pairs)))

    def log_ratios(self, row: str, start: int = 0) -> list[float]:
        return [math.log(head[row] / base[row]) for base, head in self.pairs[start:]]

    def compared(self, row: str, limit: float, start: int = 0) -> Comparison:
        return compare(self.log_ratios(row, start), limit)


def race(cells: Sequence[str], timer: Timer, *, tolerance: float, pairs: int, max_pairs: int) -> list[Lap]:
    """Run the pairs and decide.

    Args:
        cells: names.
        timer: times a cell on a side, in a process of its own.
        tolerance: relative slowdown that does not matter, 0.05 for 5 %.
        pairs: pairs of each cell before the first look, at least 2.
        max_pairs: pairs at most before a cell that is still unclear is left so.

    Returns:
        one lap a row, in the order of cells.
    """
    limit = math.log1p(tolerance)
    running = [_Cell(name, timer) for name in cells]
    for _ in range(pairs):
        for cell in running:
            cell.run_pair()
    for cell in running:
        while len(cell.pairs) < max_pairs and _undecided(cell, limit):
            cell.run_pair()
    suspects = {cell.name: [row for row in cell.rows() if cell.compared(row, limit).finding == "worse"] for cell in running}
    for cell in running:
        cell.first = len(cell.pairs)
        if suspects[cell.name]:
            for _ in range(FRESH_PAIRS):
                cell.run_pair()
    return _decided(running, suspects, limit)


def _undecided(cell: _Cell, limit: float) -> bool:
    """Whether more pairs could help: no row is suspected yet and one is unclear."""
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
                tuple(base[row] for base, _ in cell.pairs),
                tuple(head[row] for _, head in cell.pairs),
                found,
                suspected,
                repeated,
                repeated and falls,
                _needed(cell.log_ratios(row), found, limit),
            )
        )
    return laps


def _needed(log_ratios: Sequence[float], found: Comparison, limit: float) -> int | None:
    """Pairs that would tell, also for a suspicion that was not repeated: its bound lies on one side, its cause on the other."""
    if found.finding != "worse":
        return found.needed
    spread = math.sqrt(math.fsum((value - found.mean) ** 2 for value in log_ratios) / max(1, found.n - 1))
    return pairs_needed(found.mean - limit, spread, found.n)
