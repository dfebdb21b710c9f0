"""How much a method's score drops if the method cannot be tuned to its holdout: public pattern against sealed pattern.

drop = mean of the public runs - mean of the sealed runs,    interval by Welch's t at 95 %
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from compbench.board.groups import SEALED
from compbench.board.render_csv import csv_text
from compbench.board.row import BoardRow
from compbench.board.statistics import Interval, welch
from compbench.store.format import clean

COLUMNS = ("task", "preset", "method", "public", "sealed", "drop", "low", "high", "public_runs", "sealed_runs")


class Drop(NamedTuple):
    """Public and sealed means of one method on one task, and their difference with its interval (None if a side has one run)."""

    task: str
    preset: str
    method: str
    public: float
    sealed: float
    runs: tuple[int, int]
    interval: Interval | None

    @property
    def drop(self) -> float:
        return self.public - self.sealed


def drops(rows: Sequence[BoardRow]) -> tuple[Drop, ...]:
    """One drop for each sealed row whose public counterpart (same method, version, settings, task, preset, data) is there too."""
    twins = {(row.section, row.group.without_task): row for row in rows}
    found = []
    for row in rows:
        if SEALED not in row.section.changed:
            continue
        section = row.section._replace(changed=tuple(word for word in row.section.changed if word != SEALED))
        public = twins.get((section, row.group.without_task))
        if public is None or public.primary != row.primary:
            continue
        own, other = ([value for _, value in one.scores[one.primary].values] for one in (row, public))
        if own and other:
            runs = (len(other), len(own))
            known = (row.section.task, row.section.preset, row.label, fmean(other), fmean(own), runs)
            found.append(Drop(*known, welch(other, own)))
    return tuple(sorted(found))


def drops_csv(found: Sequence[Drop]) -> str:
    """One line for each drop; low and high are empty if a side has one run."""
    lines = ((*map(clean, one[:3]), one.public, one.sealed, one.drop, *(one.interval or ("", "")), *one.runs) for one in found)
    return csv_text(COLUMNS, lines)


def drops_markdown(found: Sequence[Drop]) -> str:
    """A table of the drops; "" if there are none."""
    if not found:
        return ""
    lines = [
        "## Sealed holdouts",
        "",
        "Held-out combinations drawn from the hash of each method's own code (docs/sealed.md).",
        "",
        "| task | preset | method | public | sealed | drop | 95 % interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        interval = "one run" if one.interval is None else f"{one.interval[0]:.3f} to {one.interval[1]:.3f}"
        words = (*map(clean, one[:3]), f"{one.public:.3f}", f"{one.sealed:.3f}", f"{one.drop:.3f}", interval)
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join([*lines, "", ""])
