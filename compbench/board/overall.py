"""One board over all tasks of a preset and data source: methods down, tasks across, and what is missing said.

Scores of different tasks have different units, so each is first put on one scale, the *share attained* of what real data
attain: value / ceiling of an accuracy, noise floor / value of a distance, at most 1.  A failed or refused task counts 0; one
that nobody ran is open, anything from 0 to 1.  The order takes open cells for 0, and rank ranges leave them open.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Literal, NamedTuple

from compbench.board.aggregate import BoardRow, Cell, Kind, Section
from compbench.board.groups import Group, variants
from compbench.board.ranks import Rank, ranks
from compbench.board.statistics import (
    Interval,
    improvement,
    improvement_interval,
    interquartile_mean,
    mean,
    stratified_interval,
)
from compbench.interfaces import PRESETS

State = Literal["ok", "partly failed", "failed", "refused", "reference", "no score", "missing"]
"""`no score`: it ran, but has no primary score that can be put on the scale; `reference`: it ran, but does not compete there."""

NUM_PAIRED = 8
"""So many of the first methods are compared pair by pair."""


class Attained(NamedTuple):
    """What a method attained on a task.

    Attributes:
        state: see `State`.
        row: the row of the task's own board; none if missing.
        shares: share attained by seed; seeds that failed have 0.
        reason: why there is no share, or not of every seed.
    """

    state: State
    row: BoardRow | None = None
    shares: tuple[tuple[int, float], ...] = ()
    reason: str = ""

    @property
    def counts(self) -> bool:
        return self.state in ("ok", "partly failed", "failed", "refused")

    @property
    def share(self) -> float:
        """Mean over seeds."""
        return mean([share for _, share in self.shares]) if self.shares else 0.0


class Contender(NamedTuple):
    """One method with one set of settings, on all tasks.

    Attributes:
        cells: one a section of the contest.
        total: interquartile mean over all tasks, open ones as 0.
        own: interquartile mean over the tasks that count, of a reference over those that it ran; none without one.
        bounds: 95 % stratified bootstrap interval of `total`, open cells from 0 at its low end to 1 at its high end; none if a
            task that counts has one seed.
        rank: among those that compete.
    """

    method: str
    variant: str
    kind: Kind
    cells: tuple[Attained, ...]
    total: float
    own: float | None
    bounds: Interval | None
    rank: Rank | None = None

    @property
    def label(self) -> str:
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def num_counted(self) -> int:
        return sum(cell.counts for cell in self.cells)


class Pair(NamedTuple):
    """Two contenders on the tasks that both ran.

    Attributes:
        probability: that a run of `one` beats a run of `other`, averaged over the shared tasks; ties count half.
        difference: share attained by `one` less that by `other` at the same seed, averaged over seeds, then tasks.
        num_paired: tasks with a seed that both have.
    """

    one: str
    other: str
    num_tasks: int
    probability: float
    probability_interval: Interval | None
    num_paired: int
    difference: float | None
    difference_interval: Interval | None


class Contest(NamedTuple):
    """The overall board of one preset and data source; `left_out` names what its tasks were not taken from, and why."""

    preset: str
    source: str
    sections: tuple[Section, ...]
    contenders: tuple[Contender, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]


def contests(rows: Sequence[BoardRow]) -> tuple[Contest, ...]:
    """One contest for each preset and data source that has two tasks or more.

    Args:
        rows: of all sections, as `aggregate.rows` gives them.
    """
    sections: dict[tuple[str, str], dict[Section, list[BoardRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        sections[row.section.preset, row.section.source][row.section].append(row)
    ordered = sorted(sections.items(), key=lambda item: (PRESETS.index(item[0][0]), item[0][1]))
    made = [_contest(*where, own) for where, own in ordered]
    return tuple(contest for contest in made if len(contest.sections) > 1)


def _contest(preset: str, source: str, rows: Mapping[Section, Sequence[BoardRow]]) -> Contest:
    chosen, left_out = _chosen(rows)
    standard = {section: _standard(rows[section]) for section in chosen}
    found: dict[Group, dict[Section, BoardRow]] = defaultdict(dict)
    for section in chosen:
        known = [row for row in rows[section] if _task_settings(row) == standard[section]]
        if len(known) < len(rows[section]):
            left_out.append(f"{section.task} with other task settings than {_said(standard[section])}")
        for row in sorted(known, key=lambda row: (-len(row.seeds), row.device, row.precision)):
            found[_entrant(row)].setdefault(section, row)
    said = variants(found)
    made = [_contender(group, said[group], [own.get(section) for section in chosen]) for group, own in found.items()]
    contenders = tuple(sorted(_ranked(made), key=_place))
    paired = [contender for contender in contenders if contender.rank is not None][:NUM_PAIRED]
    pairs = tuple(pair for one, other in combinations(paired, 2) if (pair := _pair(one, other)))
    return Contest(preset, source, tuple(chosen), contenders, pairs, tuple(left_out))


def _chosen(rows: Mapping[Section, Sequence[BoardRow]]) -> tuple[list[Section], list[str]]:
    """One section a task: the newest version, and of several fingerprints the one that most methods ran on."""
    by_task: dict[str, list[Section]] = defaultdict(list)
    for section in rows:
        by_task[section.task].append(section)
    chosen, left_out = [], []
    for task, own in sorted(by_task.items()):
        first, *others = sorted(own, key=lambda section: _seniority(section, rows[section]))
        chosen.append(first)
        left_out += [f"{task} version {other.task_version}, data {other.fingerprint}" for other in others]
    return chosen, left_out


def _seniority(section: Section, rows: Sequence[BoardRow]) -> tuple[object, ...]:
    """Sorts the section that counts first; methods weigh more than runs, which one method can have many of."""
    return -section.task_version, -len({row.method for row in rows}), -sum(len(row.seeds) for row in rows), section.fingerprint


def _task_settings(row: BoardRow) -> str:
    return _split(row.group.knobs, row.group.changed)[0]


@lru_cache
def _split(knobs: str, changed: tuple[str, ...]) -> tuple[str, str]:
    """JSON of the task's settings, and of the method's with what was changed of the budget: the rest of it is the task's."""
    known = json.loads(knobs)
    task = {name: value for name, value in known.items() if name.startswith("task.")}
    own = {name: value for name, value in known.items() if "." not in name or name in changed}
    return json.dumps(task, sort_keys=True), json.dumps(own, sort_keys=True)


def _standard(rows: Sequence[BoardRow]) -> str:
    """The task settings that most methods ran under: a contest is held under one."""
    counted = Counter(settings for _, settings in {(row.method, _task_settings(row)) for row in rows})
    return min(counted, key=lambda settings: (-counted[settings], settings))


def _said(settings: str) -> str:
    return ", ".join(f"{name.removeprefix('task.')}={value}" for name, value in json.loads(settings).items()) or "none"


def _entrant(row: BoardRow) -> Group:
    """What a method's rows on different tasks must share to be one contender: its settings and what was changed of budgets."""
    group = row.group
    return group._replace(knobs=_split(group.knobs, group.changed)[1], device="", precision="")


def _contender(group: Group, variant: str, rows: Sequence[BoardRow | None]) -> Contender:
    cells = tuple(_attained(row) for row in rows)
    counted = [cell for cell in cells if cell.counts]
    num_open = len(cells) - len(counted)
    shares = [[share for _, share in cell.shares] or [0.0, 0.0] for cell in counted]  # a refusal is no matter of seeds
    states = {cell.state for cell in cells} - {"missing"}
    competes = states != {"reference"}
    own = [cell.share for cell in (counted if competes else cells) if cell.counts or cell.shares]
    return Contender(
        method=group.method,
        variant=variant,
        kind="run" if competes else "reference",
        cells=cells,
        total=interquartile_mean([cell.share for cell in counted] + [0.0] * num_open),
        own=interquartile_mean(own) if own else None,
        bounds=_bounds(shares, num_open),
    )


def _bounds(shares: Sequence[Sequence[float]], num_open: int) -> Interval | None:
    low = stratified_interval(shares, lambda means: interquartile_mean([*means, *[0.0] * num_open]))
    if low is None or num_open == 0:
        return low
    high = stratified_interval(shares, lambda means: interquartile_mean([*means, *[1.0] * num_open]))
    return Interval(low.low, high.high) if high else None


def _attained(row: BoardRow | None) -> Attained:
    if row is None:
        return Attained("missing")
    cell, statuses = row.scores.get(row.primary), row.statuses
    reason = "; ".join(f"{entry.status}: {entry.reason}" for entry in row.failures)
    if row.kind == "reference":
        return Attained("reference", row, _shares(cell) or () if cell else (), reason)
    if set(statuses) == {"refused"}:
        return Attained("refused", row, (), reason)
    if not row.seeds:
        return Attained("missing" if set(statuses) == {"killed"} else "failed", row, (), reason)
    if cell is None:
        return Attained("no score", row, (), row.unavailable.get(row.primary) or "scored by another version of the metric only")
    shares = _shares(cell)
    if shares is None:
        return Attained("no score", row, (), "has neither a ceiling nor a noise floor to be measured by")
    failed = tuple((seed, 0.0) for entry in row.failures if entry.status != "killed" for seed in entry.seeds)
    return Attained("partly failed" if failed else "ok", row, tuple(sorted(shares + failed)), reason)


def _shares(cell: Cell) -> tuple[tuple[int, float], ...] | None:
    """Share attained by seed; None where real data give no scale."""
    scale = cell.ceiling if cell.direction == "higher" else cell.floor
    if scale is None or scale <= 0:
        return None
    if cell.direction == "higher":
        return tuple((seed, min(1.0, max(0.0, value / scale))) for seed, value in cell.values)
    return tuple((seed, 1.0 if value <= scale else scale / value) for seed, value in cell.values)


def _ranked(contenders: Sequence[Contender]) -> list[Contender]:
    running = [contender for contender in contenders if contender.kind == "run"]
    placed = ranks([one.total for one in running], [one.bounds for one in running], higher=True)
    found = {id(one): rank for one, rank in zip(running, placed, strict=True)}
    return [one._replace(rank=found.get(id(one))) for one in contenders]


def _place(one: Contender) -> tuple[object, ...]:
    """By rank; equal ranks (two that ran a quarter of the tasks both have 0) by how much they have at all."""
    rank = one.rank.rank if one.rank else 1 << 30
    return rank, -sum(cell.share for cell in one.cells if cell.counts), one.method, one.variant


def _pair(one: Contender, other: Contender) -> Pair | None:
    """The two on the tasks that both ran with at least a seed; None without such a task."""
    shared = [(mine, yours) for mine, yours in zip(one.cells, other.cells, strict=True) if _ran(mine) and _ran(yours)]
    if not shared:
        return None
    strata = [([share for _, share in mine.shares], [share for _, share in yours.shares]) for mine, yours in shared]
    differences = [own for mine, yours in shared if (own := _differences(dict(mine.shares), dict(yours.shares)))]
    return Pair(
        one=one.label,
        other=other.label,
        num_tasks=len(shared),
        probability=mean([improvement(mine, yours) for mine, yours in strata]),
        probability_interval=improvement_interval(strata),
        num_paired=len(differences),
        difference=mean([mean(own) for own in differences]) if differences else None,
        difference_interval=stratified_interval(differences, mean),
    )


def _ran(cell: Attained) -> bool:
    return cell.state in ("ok", "partly failed") and bool(cell.shares)


def _differences(mine: Mapping[int, float], yours: Mapping[int, float]) -> list[float]:
    return [mine[seed] - yours[seed] for seed in sorted(mine.keys() & yours.keys())]
