"""Share attained: one scale for scores of different units, fixed for each task.

    accuracies, rates    share = (value - zero) / (real - zero)
    distances            share = log(zero / value) / log(zero / real)

0 is the best answer that ignores the request, 1 is real data.  A share is not clipped: below 0 a method is worse than ignoring
the request.  For an accuracy on held-out cells, the best constant answer is a picture of one of these cells; its accuracy is
1 / (number of held-out cells).  For a distance, it is a sample of the seen data, as the method `constant` draws.  If the section
has records of `constant`, they give the zero: their accuracy if it is larger than the stored zero, or their distance.

`real` is a mean or median over the section's own records: the accuracy's ceiling, or the distance's floor, which is the
distance between two real samples of the run's size.  Both ends are the same for every row and seed of a section, so a better
score never has a lower share.  `experiments/board_scales.py` measures what `scales.json` stores.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypedDict

from compbench.api.interfaces import Score
from compbench.api.schemas import Record
from compbench.board.catalogue import catalogue
from compbench.board.cells import Cell, known_mean
from compbench.board.groups import section_of
from compbench.registry.registry import Registry

FILE = Path(__file__).with_name("scales.json")

LEAST = 1e-3
"""Distances are clipped from below at this fraction of the floor, because 0 has no logarithm."""


class StoredScale(TypedDict):
    """A task's entry in the file; None stands for any version of the metric, and for the section's own ceiling or floor.

    `many_pictures`: whether a condition has more than one picture, so that a model can answer it with their mean.
    """

    score: str
    metric_version: int | None
    zero: float
    real: float | None
    many_pictures: bool


class Scale(NamedTuple):
    """The scores of the best constant answer, `zero`, and of real data; `log` for distances."""

    zero: float
    real: float
    log: bool = False

    def share(self, value: float) -> float:
        """Share of the way from the best constant answer to real data; below 0 the value is worse than ignoring the request."""
        if self.log:
            return math.log(self.zero / max(value, LEAST * self.real)) / math.log(self.zero / self.real)
        return (value - self.zero) / (self.real - self.zero)


def scale_of(task: str, primary: str, cells: Sequence[Cell], constant: Cell | None = None) -> Scale | None:
    """The scale of a section's primary score; None if none is known for it.

    Args:
        task: name of a task at its own settings; do not call this for changed settings, whose scale is not known.
        primary: name of the score.
        cells: the primary cell of each row of the section.
        constant: the primary cell of the method `constant`, if the section has it.
    """
    known = scales().get(task)
    if known is None or not cells or known["score"] != primary:
        return None
    if known["metric_version"] not in (None, max(cell.metric_version for cell in cells)):
        return None
    if cells[0].direction == "higher":
        real = known["real"] if known["real"] is not None else known_mean([cell.ceiling for cell in cells])
        zero = max(known["zero"], constant.mean) if constant else known["zero"]
        return None if real is None or real <= zero else Scale(zero, real)
    floors = [cell.floor for cell in cells if cell.floor]
    real = median(floors) if floors else known["real"]
    zero = constant.mean if constant else known["zero"]
    return None if real is None or not 0 < real < zero else Scale(zero, real, log=True)


def zero_of(record: Record, score: Score) -> float | None:
    """The score of the best answer that ignores the request; None if it is not known for the record's task settings."""
    known = scales().get(record.spec.task)
    if known is None or known["score"] != score.name or known["metric_version"] not in (None, score.metric_version):
        return None
    changed = section_of(record, catalogue([record.spec.task], Registry())).changed
    asked_otherwise = any(one.partition("=")[0] not in record.spec.budget_changed for one in changed)
    return None if asked_otherwise else known["zero"]


def real_of(score: Score | Cell) -> float | None:
    """The score of real data: the distance between two real samples (`floor`), else the judge's score on them (`ceiling`).

    A score of bumps has both: its floor is that of true bumps, its ceiling that of superpositions of seen ones.
    """
    return score.ceiling if score.floor is None else score.floor


def has_many_pictures(task: str) -> bool:
    """Whether a condition of a task has more than one picture; False if that is not known."""
    known = scales().get(task)
    return known is not None and known["many_pictures"]


@cache
def scales() -> Mapping[str, StoredScale]:
    """The stored scales, by task."""
    found: dict[str, StoredScale] = json.loads(FILE.read_text("utf-8"))["tasks"]
    return found
