"""Share attained: one scale for scores of different units, fixed for each task.

    share = (value - chance) / (real - chance), at least 0 and at most 1

`chance` is the score of a model that ignores what it is asked for, `real` that of real data: an accuracy's ceiling, a distance's
noise floor.  Both belong to the task and are the same for every row, seed and sample size, so a better score never has a lower
share.  `experiments/board_scales.py` measures them for `scales.json`; an accuracy's ceiling is that of its section's records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict

from compbench.board.aggregate import BoardRow
from compbench.board.cells import known_mean

FILE = Path(__file__).with_name("scales.json")


class StoredScale(TypedDict):
    """A task's entry in the file; None is any version of the metric, and the ceiling of the section's own records."""

    score: str
    metric_version: int | None
    chance: float
    real: float | None


class Scale(NamedTuple):
    """Scores of a model that ignores the request, and of real data."""

    chance: float
    real: float

    def share(self, value: float) -> float:
        """Of the way from chance to real data."""
        return min(1.0, max(0.0, (value - self.chance) / (self.real - self.chance)))


def scale_of(rows: Sequence[BoardRow]) -> Scale | None:
    """The scale of a section's primary score; None if none is known for it, as where the task was changed.

    Args:
        rows: all rows of one section.
    """
    known = None if rows[0].section.changed else scales().get(rows[0].section.task)
    cells = [cell for row in rows if (cell := row.scores.get(row.primary)) is not None]
    if known is None or not cells or known["score"] != rows[0].primary:
        return None
    if known["metric_version"] not in (None, max(cell.metric_version for cell in cells)):
        return None
    real = known["real"] if known["real"] is not None else known_mean([cell.ceiling for cell in cells])
    if real is None or real == known["chance"]:
        return None
    return Scale(known["chance"], real)


@cache
def scales() -> Mapping[str, StoredScale]:
    """The stored scales, by task."""
    found: dict[str, StoredScale] = json.loads(FILE.read_text("utf-8"))["tasks"]
    return found
