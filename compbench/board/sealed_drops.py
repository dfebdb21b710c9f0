"""What a method loses when nobody could tune to the holdout: its scores under the public and under a sealed pattern.

drop = mean of the public runs - mean of the sealed runs,    interval by Welch's t at 95 %
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple

from compbench.board.row import BoardRow

SEALED = "sealed"


class Drop(NamedTuple):
    """Public and sealed means of one method on one task, and their difference with its interval (None with one run of a side)."""

    task: str
    preset: str
    method: str
    public: float
    sealed: float
    runs: tuple[int, int]
    interval: tuple[float, float] | None

    @property
    def drop(self) -> float:
        return self.public - self.sealed


def drops(rows: Sequence[BoardRow]) -> tuple[Drop, ...]:
    """One for each sealed row whose public twin is on the board, too: the same method, settings, task, preset and data."""
    twins = {(row.section, row.group.method, row.group.settings, row.group.precision): row for row in rows}
    found = []
    for row in rows:
        if SEALED not in row.section.changed:
            continue
        section = row.section._replace(changed=tuple(word for word in row.section.changed if word != SEALED))
        public = twins.get((section, row.group.method, row.group.settings, row.group.precision))
        if public is None or public.primary != row.primary:
            continue
        own, other = ([value for _, value in one.scores[one.primary].values] for one in (row, public))
        if own and other:
            runs = (len(other), len(own))
            known = (row.section.task, row.section.preset, row.label, fmean(other), fmean(own), runs)
            found.append(Drop(*known, _welch(other, own)))
    return tuple(sorted(found))


def _welch(public: Sequence[float], sealed: Sequence[float]) -> tuple[float, float] | None:
    """Welch's 95 % interval of the difference of two means; None where a side has no variance to be known."""
    from scipy.stats import t

    if min(len(public), len(sealed)) < 2:
        return None
    parts = [variance(values) / len(values) for values in (public, sealed)]
    error, difference = sum(parts) ** 0.5, fmean(public) - fmean(sealed)
    if error == 0:
        return difference, difference
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (public, sealed), strict=True))
    half = float(t.ppf(0.975, freedom)) * error
    return difference - half, difference + half
