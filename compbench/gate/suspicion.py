"""Pass rows that look too good to be true with a warning, because a mistake can look like an improvement.

fewer evaluations than before                      is the work still counted, or a path stopped early?
a better score from less work                      fewer FLOPs, parameters or evaluations in the same cell
a faster step or request from more work            more FLOPs in the same cell
a cost that falls by more than `MUCH`              was something left out?
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compbench.gate.rows import EXACT_COSTS, Row

MUCH = 0.25
"""A saving of more than this share of an exact cost is suspicious, because small changes do not save so much."""


def noticing(rows: Sequence[Row]) -> list[Row]:
    """The rows; suspicious ones have the verdict "notice" instead of "better", and the reason."""
    less, more = set(_cells(rows, -1)), set(_cells(rows, 1))
    return [row._replace(verdict="notice", note=why) if (why := _suspicion(row, less, more)) else row for row in rows]


def _suspicion(row: Row, less: set[tuple[str, str]], more: set[tuple[str, str]]) -> str:
    """Why the improvement in a row is suspicious; "" if it is not."""
    if row.verdict != "better":
        return ""
    place = row.cell, row.against
    if row.gate == "scores" and place in less:
        return f"a better score from less work: find out why; {row.note}"
    if row.gate == "speed" and place in more:
        return f"faster with more FLOPs: find out why; {row.note}"
    if row.what == "evaluations":
        return "fewer evaluations than before: is all work counted, and no path stopped early?"
    if row.what in EXACT_COSTS and _growth(row) < -MUCH:
        return f"less by more than {MUCH:.0%}: was something left out?"
    return ""


def _cells(rows: Iterable[Row], sign: int) -> Iterable[tuple[str, str]]:
    """(cell, against) of the rows that do more (1) or less (-1) work."""
    return ((row.cell, row.against) for row in rows if row.what in EXACT_COSTS and sign * _growth(row) > 0)


def _growth(row: Row) -> float:
    """Relative change of a number; 0 unless both sides have it."""
    if isinstance(row.base, str) or isinstance(row.head, str) or not row.base or row.head is None:
        return 0.0
    return row.head / row.base - 1
