"""The matrix of methods by families of tasks: which methods are ranked over a family, and the share that each attained.

A method is ranked over a family if it ran all of the family's tasks at default settings.  A failed run counts as the worst run
of its task, and at most as a share of 0.  Cells without a run stay blank.

A task does not count for its family if it does not separate methods, if no ranked method masters its seen combinations, or if
fewer than half of the methods that can run it did: otherwise the first runs of a sweep on a new task would unrank all other
methods.  Two rules order a family: mean share and mean rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from compbench.api.context import PRESETS
from compbench.board.competition import scale_of_rows
from compbench.board.groups import Section
from compbench.board.ranking import Rank, ranks_and_best
from compbench.board.row import Board, BoardRow, failed_seeds
from compbench.board.scale import Scale
from compbench.board.statistics import Interval, interval, mean, reaching
from compbench.board.verdict import LEARNT
from compbench.registry.declared import OTHERS, by_family, declared
from compbench.registry.registry import Entry, Registry, docstring

Families = Mapping[str, tuple[str, ...]]
"""The tasks over which each family is ranked; other tasks only have their own boards."""

REQUIRED = ("mono", "factored", "slice-cfg", "additive", "nearest")
"""Without these, with two seeds each, a published board does not rank a core task: references, and rows that learn nothing."""

NEED_A_GPU = {"mpi3d-medium"}
"""Core tasks that no method masters on a CPU at `standard`; the suite's sweep file requests them only on GPUs (`gpu = true`)."""

Reasons = Mapping[str, Mapping[str, str]]
NO_REASONS: Reasons = {}

NOT_RUN = "no method ran it"
NOT_LEARNT = "not learnt"
"""The remark on a task whose seen combinations no ranked method masters begins with these words."""

State = Literal["ranked", "one seed", "incomplete", "reference", "draws means"]


NEARLY = 0.9
"""A method that attains this part of the best method's share counts as nearly as good, so a sentence may report its savings."""


class Standing(NamedTuple):
    """The aggregate score of a method over a family.

    Attributes:
        state: `ranked`; `one seed`: ran all tasks, with too few seeds in common; `incomplete`: ran some of the tasks;
            `reference`: does not compete; `draws means`: draws means on a task of the family, so it does not rank.
        shares: mean share attained over the tasks that it ran, by seed, for the seeds that all of these tasks have.
        mean, interval: mean of the shares, and its interval; without a common seed, the mean of the tasks' means and no interval.
        num_tasks: how many of the family's tasks it ran.
        left_out: tasks that it did not run, and why.
        rows: its row on each task that it ran.
        by_task: mean share attained on each task that it ran, in the order of `rows`.
        best: whether it may be best over these tasks: no other ranked method is significantly better (`ranking.may_be_best`).
        mean_rank: mean over the family's tasks of its place among the ranked methods by mean share; equal methods get the mean
            of their places.  None if the method does not rank.
    """

    state: State
    shares: tuple[tuple[int, float], ...]
    mean: float
    interval: Interval | None
    num_tasks: int
    left_out: tuple[str, ...]
    rows: tuple[BoardRow, ...]
    by_task: tuple[float, ...] = ()
    rank: Rank | None = None
    best: bool = False
    mean_rank: float | None = None


class Family(NamedTuple):
    """A family of tasks at one preset.

    Attributes:
        sections: the sections of the tasks that count, with their scales.
        aside: the family's other tasks, each with the reason why it does not count.
        standings: aggregate scores by method and distribution.
        first_by_share, first_by_rank: names of the ranked methods with the largest mean share and with the least mean rank.
        depends_on_rule: whether the two rules put different methods first, so that the family has no single first.
    """

    name: str
    sections: tuple[tuple[Section, Scale], ...]
    aside: tuple[tuple[str, str], ...]
    standings: Mapping[tuple[str, str], Standing]
    first_by_share: tuple[str, ...] = ()
    first_by_rank: tuple[str, ...] = ()

    @property
    def depends_on_rule(self) -> bool:
        return not set(self.first_by_share) & set(self.first_by_rank) and bool(self.first_by_rank)


class Contest(NamedTuple):
    """All families at one preset; `methods` holds (name, distribution) in display order."""

    preset: str
    families: tuple[Family, ...]
    methods: tuple[tuple[str, str], ...]


def installed_families(registry: Registry | None = None) -> dict[str, tuple[str, ...]]:
    """The tasks over which each family is ranked, as declared in the files of the installed tasks; no task is imported.

    A family is ranked over its core tasks, or over all of its tasks if it has no core task.  Tasks of one file stay together, in
    the order of its docstring; files with more tasks come first.
    """
    found: dict[str, tuple[str, ...]] = {}
    for family, entries in by_family((registry or Registry()).entries("tasks")).items():
        counted = [entry for entry in entries if declared(entry).core] or entries
        many = Counter(entry.module for entry in counted)
        if family != OTHERS:
            order = sorted(counted, key=lambda entry: (-many[entry.module], entry.module, _line(entry), entry.name))
            found[family] = tuple(entry.name for entry in order)
    return found


def _line(entry: Entry) -> int:
    """The line of a file's docstring that is about the task."""
    lines = docstring(entry.file).splitlines() if entry.file else []
    return next((number for number, line in enumerate(lines) if line.startswith(f"{entry.name} ")), len(lines))


def required(reasons: Reasons, families: Families) -> dict[str, tuple[str, ...]]:
    """Of `REQUIRED`, the methods that can run each core task; none for a board that has no matrix of methods and tasks.

    Only a published board has this matrix: methods on one's own board are compared with whatever was run.
    """
    return {task: tuple(name for name in REQUIRED if task not in reasons.get(name, {task: ""})) for task in family_of(families)}


def family_of(families: Families) -> dict[str, str]:
    """The family in which a task counts, by the task's name."""
    return {task: family for family, tasks in families.items() for task in tasks}


def contests(board: Board, reasons: Reasons = NO_REASONS, families: Families | None = None) -> tuple[Contest, ...]:
    """One contest for each preset at which a task of a family was run with its default settings; the longest preset comes first.

    Each task counts with one data source, the same for all methods: the one that most methods ran on.

    Args:
        board: all rows.
        reasons: for each method and task, why the method cannot work there.
        families: the tasks of each family; None takes the families of the installed tasks.
    """
    families = installed_families() if families is None else families
    found: dict[str, dict[str, dict[Section, list[BoardRow]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    counted = family_of(families)
    for row in board.rows:
        if row.section.task in counted and not row.section.changed:
            found[row.section.preset][row.section.task][row.section].append(row)
    made = (
        _contest(preset, found[preset], board, reasons, families) for preset in sorted(found, key=PRESETS.index, reverse=True)
    )
    return tuple(contest for contest in made if contest.families)


def _contest(
    preset: str,
    tasks: Mapping[str, Mapping[Section, list[BoardRow]]],
    board: Board,
    reasons: Reasons,
    families: Families,
) -> Contest:
    newest = {task: min(sections.items(), key=seniority) for task, sections in tasks.items()}
    unrun = dict.fromkeys(NEED_A_GPU, "needs a GPU") if preset == "standard" else {}
    made = [
        _family(name, {task: unrun.get(task, NOT_RUN) for task in names}, newest, board, reasons)
        for name, names in families.items()
    ]
    shown = tuple(family for family in made if family.sections or family.aside)
    methods = {method for family in shown for method in family.standings}
    return Contest(preset, shown, tuple(sorted(methods, key=lambda method: _place(method, shown))))


def seniority(item: tuple[Section, list[BoardRow]]) -> tuple[object, ...]:
    """Sort key of a task's sections: newest version first, then most methods, then official data."""
    section, rows = item
    many = len({row.method for row in rows if row.kind == "run"})
    return -section.task_version, -many, section.source != "official", section.fingerprint


def _family(
    name: str,
    unrun: Mapping[str, str],
    tasks: Mapping[str, tuple[Section, list[BoardRow]]],
    board: Board,
    reasons: Reasons,
) -> Family:
    """Make the family of the tasks in `unrun`, which maps each task to the remark that applies if no method ran it."""
    counted: list[tuple[Section, Scale, list[BoardRow]]] = []
    aside = []
    for task, why_unrun in unrun.items():
        if task not in tasks or not any(row.kind == "run" and row.seeds for row in tasks[task][1]):
            aside.append((task, why_unrun))
            continue
        section, rows = tasks[task]
        discriminability, scale = board.discriminability.get(section), scale_of_rows(rows)
        verdict = board.verdicts.get(section)
        if section in board.missing:
            aside.append((task, f"is not ranked before {' and '.join(board.missing[section])} ran it"))
        elif discriminability is not None and not discriminability.ranks:
            aside.append((task, f"does not rank at this preset: {discriminability.share:.2f} of the variance is between methods"))
        elif scale is None:
            aside.append((task, "its score has no scale; experiments/board_scales.py measures one"))
        elif verdict is not None and not verdict.is_learnt:
            aside.append((task, f"{NOT_LEARNT}: no ranked method has {LEARNT:g} of real data's score on seen combinations"))
        else:
            counted.append((section, scale, rows))
    counted, thin = _widely_run(counted, reasons)
    aside += thin
    if not counted and {why for _, why in aside} <= set(unrun.values()):
        aside = []
    methods = {(row.method, row.group.distribution) for _, _, rows in counted for row in rows if row.kind != "ablation"}
    worst = [
        min((share for row in rows if row.kind == "run" for share in _shares(row, scale).values()), default=0.0)
        for _, scale, rows in counted
    ]
    standings = {
        method: found
        for method in sorted(methods)
        if (found := _standing(method, counted, reasons.get(method[0], {}), worst)) is not None
    }
    placed = _ranked(standings)
    running = {method[0]: found for method, found in placed.items() if found.mean_rank is not None}
    most = max((found.mean for found in running.values()), default=0.0)
    least = min((found.mean_rank for found in running.values() if found.mean_rank is not None), default=0.0)
    return Family(
        name,
        tuple((section, scale) for section, scale, _ in counted),
        tuple(aside),
        placed,
        tuple(sorted(method for method, found in running.items() if found.mean == most)),
        tuple(sorted(method for method, found in running.items() if found.mean_rank == least)),
    )


def _widely_run(
    tasks: Sequence[tuple[Section, Scale, list[BoardRow]]], reasons: Reasons
) -> tuple[list[tuple[Section, Scale, list[BoardRow]]], list[tuple[str, str]]]:
    """Tasks that at least half of the competing methods that can run them did run, and a remark on each other task."""
    ran = [
        {(row.method, row.group.distribution) for row in rows if row.kind == "run" and _shares(row, scale)}
        for _, scale, rows in tasks
    ]
    methods = set().union(*ran)
    kept, thin = [], []
    for task, own in zip(tasks, ran, strict=True):
        name = task[0].task
        able = {method for method in methods if name not in reasons.get(method[0], {})}
        if 2 * len(own) >= len(able):
            kept.append(task)
        else:
            thin.append((name, f"run by only {len(own)} of {len(able)} methods"))
    return kept, thin


def _standing(
    method: tuple[str, str],
    tasks: Sequence[tuple[Section, Scale, list[BoardRow]]],
    reasons: Mapping[str, str],
    worst: Sequence[float],
) -> Standing | None:
    """The aggregate score of a method over a family; None if all of its runs were refused.

    `worst` is the lowest share of each task's competing runs.
    """
    ran: list[tuple[BoardRow, dict[int, float]]] = []
    left_out = []
    for (section, scale, rows), least in zip(tasks, worst, strict=True):
        row = next((row for row in rows if (row.method, row.group.distribution) == method and row.kind != "ablation"), None)
        shares = _shares(row, scale, least) if row else {}
        if row is None or not shares:
            why = "; ".join(f"{entry.status}: {entry.reason}" for entry in row.failures) if row else "not run"
            why = reasons.get(section.task, "").rpartition(": ")[2].rstrip(".") or why
            left_out.append(f"{section.task} ({why})")
        else:
            ran.append((row, shares))
    if not ran:
        return None
    common = sorted(set.intersection(*(set(shares) for _, shares in ran)))
    by_seed = tuple((seed, mean([shares[seed] for _, shares in ran])) for seed in common)
    state: State = "ranked"
    if any(row.kind == "reference" for row, _ in ran):
        state = "reference"
    elif left_out:
        state = "incomplete"
    elif len(common) < 2:
        state = "one seed"
    elif any(row.draws_means for row, _ in ran):
        state = "draws means"
    values = [share for _, share in by_seed]
    centre = mean(values) if values else mean([mean(list(shares.values())) for _, shares in ran])
    even = interval(values) if len(values) > 1 else None
    span = reaching(even, centre, len(values), 0.0) if even and centre > 0 else even
    by_task = tuple(mean(list(shares.values())) for _, shares in ran)
    return Standing(state, by_seed, centre, span, len(ran), tuple(left_out), tuple(row for row, _ in ran), by_task)


def _shares(row: BoardRow, scale: Scale, worst: float = 0.0) -> dict[int, float]:
    """Share attained by seed; a failed seed counts as the worst run of its task, and at most as 0."""
    cell = row.scores.get(row.primary)
    found = {seed: scale.share(value) for seed, value in cell.values} if cell else {}
    return found | dict.fromkeys(failed_seeds(row), min(0.0, worst))


def _ranked(standings: Mapping[tuple[str, str], Standing]) -> dict[tuple[str, str], Standing]:
    """Add ranks to aggregate scores.  Shares are compared without clipping, so they may leave [0, 1]."""
    running = {method: found for method, found in standings.items() if found.state == "ranked"}
    if not running:
        return dict(standings)
    values = [dict(found.shares) for found in running.values()]
    placed, best = ranks_and_best(values, higher=True, law="as they are")
    places = list(
        zip(*(_places(column) for column in zip(*(found.by_task for found in running.values()), strict=True)), strict=True)
    )
    return dict(standings) | {
        method: found._replace(rank=rank, best=own, mean_rank=mean(ranked))
        for (method, found), rank, own, ranked in zip(running.items(), placed, best, places, strict=True)
    }


def _places(shares: Sequence[float]) -> list[float]:
    """Place of each share, 1 for the largest; equal shares get the mean of their places."""
    return [1 + sum(other > own for other in shares) + (sum(other == own for other in shares) - 1) / 2 for own in shares]


def _place(method: tuple[str, str], families: Sequence[Family]) -> tuple[object, ...]:
    """Sort key: methods with a rank first, by the first family that ranks them; then competitors, then references."""
    own = [(index, family.standings[method]) for index, family in enumerate(families) if method in family.standings]
    places = [(index, found.rank.rank) for index, found in own if found.rank]
    competes = any(found.state != "reference" for _, found in own)
    return not places, places, not competes, -sum(found.num_tasks for _, found in own), method
