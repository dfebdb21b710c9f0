"""The coverage ladder plots the share attained on held-out cells against the share of seen cells, one line per method.

    share = (value - 1 / cells) / (ceiling - 1 / cells)

Its points are the rows whose task was given a coverage (`--set task.coverage=R`).  Each other choice of task, preset and budget
has a separate ladder.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from compbench.api.factors import minimum_coverage
from compbench.board.catalogue import Lattice, lattice_key
from compbench.board.groups import SEALED, Section
from compbench.board.row import BoardRow
from compbench.board.scale import Scale
from compbench.store.format import clean
from compbench.store.sealed import PATTERN
from compbench.system.files import Json


class Line(NamedTuple):
    """Points that the plot joins: one method under one kind of design."""

    method: str
    design: str


Curve = Mapping[float, Mapping[tuple[int, int], float]]
"""A curve maps the share of seen cells to (split seed, seed), and these to the share attained."""


class Ladder(NamedTuple):
    """All lines of one task under one protocol.

    Attributes:
        section: the section of its rows; `changed` omits the settings that vary along the ladder.
        least: C_min of the lattice.
        lines: by method and design, sorted.
    """

    section: Section
    least: float
    lines: Mapping[Line, Curve]


def ladders(rows: Sequence[BoardRow], lattices: Mapping[tuple[str, str], Lattice]) -> tuple[Ladder, ...]:
    """The ladders of a board's rows, by task.

    Args:
        rows: rows of the board; a row is skipped if it has no coverage or a sealed one, or if its primary score is not an
            accuracy with a ceiling.
        lattices: factor grids by `lattice_key`; a row without one is skipped.
    """
    found: dict[Section, dict[Line, dict[float, dict[tuple[int, int], float]]]] = defaultdict(dict)
    least = {}
    for row in rows:
        settings = _task_settings(row)
        cell, lattice = row.scores.get(row.primary), lattices.get(lattice_key(row.section.task, settings))
        if not settings.get("coverage") or cell is None or lattice is None or SEALED in row.section.changed:
            continue
        if cell.ceiling is None or not row.primary.endswith("accuracy"):
            continue
        changed = tuple(word for word in row.section.changed if word.partition("=")[0] not in PATTERN)
        section = row.section._replace(changed=changed)
        scale = Scale(1 / lattice.num_cells, cell.ceiling)
        curve = found[section].setdefault(Line(row.label, str(settings.get("design", ""))), {})
        point = curve.setdefault(lattice.num_seen / lattice.num_cells, {})
        split = settings.get("split_seed", 0)
        for seed, value in cell.values:
            point[split if isinstance(split, int) else 0, seed] = scale.share(value)
        least[section] = minimum_coverage(lattice.sizes)
    return tuple(
        Ladder(section, least[section], {line: dict(sorted(found[section][line].items())) for line in sorted(found[section])})
        for section in sorted(found, key=lambda section: section.place)
    )


def ladder_data(ladder: Ladder, family: str = "") -> dict[str, Json]:
    """A ladder as JSON for the page's script: points are [coverage, mean, least, most, runs]."""
    section = ladder.section
    return {
        "task": section.task,
        "preset": section.preset,
        "source": section.source,
        "family": family,
        "changed": [clean(word) for word in section.changed],
        "least": _short(ladder.least),
        "lines": [
            {
                "method": clean(line.method),
                "design": clean(line.design),
                "points": [_point(coverage, tuple(own.values())) for coverage, own in curve.items()],
            }
            for line, curve in ladder.lines.items()
        ],
    }


def _task_settings(row: BoardRow) -> dict[str, Json]:
    knobs: dict[str, Json] = json.loads(row.group.knobs)
    return {name.removeprefix("task."): value for name, value in knobs.items() if name.startswith("task.")}


def _point(coverage: float, shares: Sequence[float]) -> list[Json]:
    return [_short(coverage), _short(fmean(shares)), _short(min(shares)), _short(max(shares)), len(shares)]


def _short(value: float) -> float:
    return round(value, 4)
