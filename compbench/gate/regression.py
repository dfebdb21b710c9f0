"""The regression gate: measure head, measure or look up what it is compared with, and make one table of it all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

from compbench.devices import num_cores
from compbench.gate import sides, speed, table
from compbench.gate.baseline import Baseline
from compbench.gate.sides import CellOptions, Facts, Scores, Side, Unable
from compbench.gate.suite import Cell, Gate, Suite
from compbench.gate.table import Row, ScoreRow
from compbench.registry import Registry

T = TypeVar("T")
Measured = dict[str, T | Unable]
Listener = Callable[[str], None]


class Plan(NamedTuple):
    """What is compared and how.

    Attributes:
        suite: the cells.
        asked: device, data, clock.
        tolerance: relative slowdown that does not matter.
        pairs: of the race before its first look; rows that are still unclear get twice as many.
        accept: patterns of regressions that are meant.
    """

    suite: Suite
    asked: CellOptions = CellOptions()
    tolerance: float = 0.05
    pairs: int = 5
    accept: tuple[str, ...] = ()

    def cells(self, gate: str) -> list[Cell]:
        return [cell for cell in self.suite.cell if gate in cell.gates]


class Result(NamedTuple):
    """The table, and what head gave (for a new baseline)."""

    rows: tuple[Row, ...]
    facts: Measured[Facts]
    scores: Measured[Scores]


def gate(plan: Plan, head: Side, base: Side | None, stored: Baseline | None, listener: Listener = lambda line: None) -> Result:
    """Compare head with a live base, with a stored baseline, or both.

    Exact facts come first, then scores, then speed, which needs a live base.
    """
    facts, scores = _facts(plan, head, listener), _scores(plan, head, listener)
    rows: list[Row] = []
    if base is not None:
        theirs = _facts(plan, base, listener), _scores(plan, base, listener)
        rows += _compared(base.label, theirs, (facts, scores))
        rows += _race(plan, base, head, listener)
    if stored is not None:
        stored_facts: Measured[Facts] = {cell.name: stored.facts(cell.name) or _absent() for cell in plan.cells("exact")}
        stored_scores: Measured[Scores] = {cell.name: stored.scores(cell.name) or _absent() for cell in plan.cells("scores")}
        rows += _compared("baseline", (stored_facts, stored_scores), (facts, scores))
    return Result(tuple(table.accepting(rows, plan.accept)), facts, scores)


def usable(measured: Measured[T]) -> dict[str, T]:
    """What could be measured.  Raises Unable naming the first cell that could not."""
    for name, found in measured.items():
        if isinstance(found, Unable):
            raise Unable(f"{name}: {found}")
    return {name: found for name, found in measured.items() if not isinstance(found, Unable)}


def margins() -> dict[str, float]:
    """Margins of the installed metrics, by name."""
    registry = Registry()
    loaded = [registry.attempt(entry) for entry in registry.entries("metrics")]
    return {metric.value.name: metric.value.margin for metric in loaded if metric.state == "ok"}


def _absent() -> Unable:
    return Unable("is not in it; --write-baseline renews it")


def _attempt(call: Callable[..., T], *arguments: Any) -> T | Unable:
    try:
        return call(*arguments)
    except Unable as error:
        return error


def _facts(plan: Plan, side: Side, listener: Listener) -> Measured[Facts]:
    """Exact facts of all cells; nothing is timed, so as many processes run side by side as there are cores."""
    cells = plan.cells("exact")
    if cells:
        listener(f"{side.label}: exact facts of {len(cells)} cells")
    with ThreadPoolExecutor(num_cores()) as pool:
        try:
            found = list(pool.map(lambda cell: _attempt(sides.facts, side, cell, plan.asked), cells))
        except BaseException:  # Ctrl-C or SIGTERM reach this thread only
            side.stopping.set()
            raise
    return {cell.name: each for cell, each in zip(cells, found, strict=True)}


def _scores(plan: Plan, side: Side, listener: Listener) -> Measured[Scores]:
    measured: Measured[Scores] = {}
    for cell in plan.cells("scores"):
        listener(f"{side.label}: scores of {cell.name}, seeds {cell.seeds}")
        measured[cell.name] = _attempt(sides.scores, side, cell, plan.asked)
    return measured


def _compared(
    against: str, theirs: tuple[Measured[Facts], Measured[Scores]], ours: tuple[Measured[Facts], Measured[Scores]]
) -> list[Row]:
    rows: list[Row] = []
    for name, facts in ours[0].items():
        stood = theirs[0][name]
        if isinstance(stood, Unable) or isinstance(facts, Unable):
            rows.append(_failed(name, "exact", against, stood, facts))
        else:
            rows += table.fact_rows(name, against, stood, facts)
    waiting: list[ScoreRow] = []
    known = margins() if ours[1] else {}
    for name, scores in ours[1].items():
        before = theirs[1][name]
        if isinstance(before, Unable) or isinstance(scores, Unable):
            waiting.append(ScoreRow(_failed(name, "scores", against, before, scores), None))
        else:
            waiting += table.score_rows(name, against, before, scores, known)
    return [*rows, *table.settled(waiting)]


def _failed(cell: str, gate: Gate, against: str, before: object, after: object) -> Row:
    """The row of a cell that one side could not do: what worked and works no more is a regression, what is new is not."""
    if isinstance(after, Unable) and isinstance(before, Unable):
        return Row(cell, gate, "", against, None, None, "", "could not run", f"head: {after}; {against}: {before}")
    if isinstance(after, Unable):
        return Row(cell, gate, "", against, None, None, "", "regression", f"works no more: {after}")
    return Row(cell, gate, "", against, None, None, "", "notice", f"nothing to compare with: {against} {before}")


class _Stopped(Exception):
    """A side could not time a cell."""

    def __init__(self, side: str, cell: str, reason: Unable) -> None:
        super().__init__(str(reason))
        self.side, self.cell, self.reason = side, cell, reason


def _race(plan: Plan, base: Side, head: Side, listener: Listener) -> list[Row]:
    """The race; a cell that a side cannot time leaves it, before anything else is timed."""
    runners = {"base": base, "head": head}
    cells = {cell.name: cell for cell in plan.cells("speed")}
    rows: list[Row] = []
    able: list[str] = []
    first: dict[tuple[str, str], Mapping[str, float]] = {}
    for name, cell in cells.items():
        listener(f"speed: {name}")
        found = {side: _attempt(sides.durations, runner, cell, plan.asked) for side, runner in runners.items()}
        timed = {(side, name): seconds for side, seconds in found.items() if not isinstance(seconds, Unable)}
        if len(timed) < len(found):
            rows.append(_failed(name, "speed", base.label, found["base"], found["head"]))
            continue
        able.append(name)
        first |= timed
    counted = dict.fromkeys(able, 0)

    def timer(side: Literal["base", "head"], name: str) -> Mapping[str, float]:
        if (side, name) in first:
            return first.pop((side, name))
        counted[name] += side == "head"
        if side == "head":
            listener(f"speed: {name}, pair {counted[name] + 1}")
        try:
            return sides.durations(runners[side], cells[name], plan.asked)
        except Unable as error:
            raise _Stopped(side, name, error) from error

    try:
        laps = speed.race(able, timer, tolerance=plan.tolerance, pairs=plan.pairs, max_pairs=2 * plan.pairs)
    except _Stopped as stop:
        note = f"{stop.side} could be timed before and now not: {stop.reason}"
        return [*rows, Row(stop.cell, "speed", "", base.label, None, None, "", "could not run", note)]
    return rows + [table.speed_row(lap, base.label, plan.tolerance) for lap in laps]
