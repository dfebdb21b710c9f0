"""The regression gate measures head, measures or looks up its base, and makes one table from both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from traceback import format_exc
from typing import NamedTuple, TypeVar

from compbench.gate import rows as table
from compbench.gate import sides, speed, turns
from compbench.gate.baseline import Baseline
from compbench.gate.rows import Row, ScoreRow
from compbench.gate.sides import CellOptions, CouldNotRun, Facts, Scores, Side, Unable
from compbench.gate.suite import Cell, Gate, Suite
from compbench.gate.suspicion import noticing
from compbench.gate.turns import Unraced
from compbench.registry.registry import Registry
from compbench.system.devices import num_cores
from compbench.system.errors import CompbenchError

S = TypeVar("S")
T = TypeVar("T")
Measured = dict[str, T | Unable]
Listener = Callable[[str], None]
MOST_PAIRS = 10
CELLS_AT_ONCE = 2
"""Number of cells whose seeds run at the same time, each in one thread; a cell has as many such runs as there are cores."""


class Plan(NamedTuple):
    """What is compared and how.

    Attributes:
        suite: the cells.
        options: device, data, clock.
        tolerance: largest relative slowdown that passes.
        pairs: number of pairs of the race before the first decision; unclear rows get up to `MOST_PAIRS`, or twice as many.
        accept: patterns of intended regressions.
        always: measure and race both sides even if their code is the same.
        same: names of cells that need no comparison, because their code is the same.
    """

    suite: Suite
    options: CellOptions = CellOptions()
    tolerance: float = 0.05
    pairs: int = 3
    accept: tuple[str, ...] = ()
    always: bool = False
    same: frozenset[str] = frozenset()

    def cells(self, gate: str) -> list[Cell]:
        return [cell for cell in self.suite.cell if gate in cell.gates and cell.name not in self.same]

    def but_for(self, cells: frozenset[str]) -> Plan:
        """The plan without the given cells."""
        return self._replace(same=cells)


class Result(NamedTuple):
    """The table, and the results of head (for a new baseline)."""

    rows: tuple[Row, ...]
    facts: Measured[Facts]
    scores: Measured[Scores]


def gate(plan: Plan, head: Side, base: Side | None, stored: Baseline | None, listener: Listener = lambda line: None) -> Result:
    """Compare head with a live base, with a stored baseline, or both.

    Exact facts come first, then scores, then speed, which needs a live base.  If both sides execute the same code with the same
    packages, and the exact facts confirm it, scores are computed once and nothing is raced.

    Raises:
        CouldNotRun: the gate itself failed; the message has the traceback.  It must not look like a regression.
    """
    try:
        return _gated(plan, head, base, stored, listener)
    except (CompbenchError, CouldNotRun):
        raise
    except Exception as error:
        raise CouldNotRun(f"the gate itself failed and compared nothing; please report it.\n{format_exc()}") from error


def _gated(plan: Plan, head: Side, base: Side | None, stored: Baseline | None, listener: Listener) -> Result:
    facts = _facts(plan, head, listener)
    rows: list[Row] = []
    if base is None:
        scores = _scores(plan, head, listener)
    else:
        their_facts = _facts(plan, base, listener)
        same = frozenset() if plan.always else _same_code(plan, base, head, facts, their_facts)
        if same:
            listener(f"{len(same)} of {len(plan.suite.cell)} cells are the same code: no race, and one side's scores")
        scores = _scores(plan, head, listener)
        others = plan.but_for(same)
        their_scores = {name: scores[name] for name in scores if name in same} | _scores(others, base, listener)
        rows += _compared(base.label, (their_facts, their_scores), (facts, scores))
        rows += [table.unraced_row(cell.name, base.label) for cell in plan.cells("speed") if cell.name in same]
        rows += _race(others, base, head, listener)
    if stored is not None:
        stored_facts: Measured[Facts] = {cell.name: stored.facts(cell.name) or _absent() for cell in plan.cells("exact")}
        stored_scores: Measured[Scores] = {cell.name: stored.scores(cell.name) or _absent() for cell in plan.cells("scores")}
        rows += _compared("baseline", (stored_facts, stored_scores), (facts, scores))
    return Result(tuple(table.accepting(noticing(rows), plan.accept)), facts, scores)


def usable(measured: Measured[T]) -> dict[str, T]:
    """The measured cells.  Raises Unable if a cell could not be measured, naming the first one."""
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


def _attempt(call: Callable[..., T], *arguments: object) -> T | Unable:
    try:
        return call(*arguments)
    except Unable as error:
        return error


def _facts(plan: Plan, side: Side, listener: Listener) -> Measured[Facts]:
    """Exact facts of all cells; nothing is timed, so as many processes run at the same time as there are cores."""
    cells = plan.cells("exact")
    if not cells:
        return {}
    listener(f"{side.label}: exact facts of {len(cells)} cells")
    shares = [share for share in (cells[k :: num_cores()] for k in range(num_cores())) if share]
    found = _at_once(side, lambda share: sides.facts(side, share, plan.options), shares, len(shares))
    named = {cell.name: one for share, ones in zip(shares, found, strict=True) for cell, one in zip(share, ones, strict=True)}
    return {cell.name: named[cell.name] for cell in cells}


def _scores(plan: Plan, side: Side, listener: Listener) -> Measured[Scores]:
    """Scores of all cells; nothing is timed, so on the CPU the next cell starts while a cell of one seed leaves cores idle."""
    cells = plan.cells("scores")

    def of(cell: Cell) -> Scores | Unable:
        listener(f"{side.label}: scores of {cell.name}, seeds {cell.seeds}")
        return _attempt(sides.scores, side, cell, plan.options)

    found = _at_once(side, of, cells, CELLS_AT_ONCE if plan.options.device == "cpu" else 1)
    return {cell.name: scores for cell, scores in zip(cells, found, strict=True)}


def _at_once(side: Side, call: Callable[[S], T], items: Sequence[S], most: int) -> list[T]:
    """What a call says of each item, at most so many at the same time; whatever ends the wait also ends the side's processes."""
    with ThreadPoolExecutor(max(most, 1)) as pool:
        try:
            return list(pool.map(call, items))
        except BaseException:  # Ctrl-C and SIGTERM only reach this thread
            side.stopping.set()
            raise


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
    """The row of a case that a side could not run: a case that no longer works is a regression; a new case is not."""
    if isinstance(after, Unable) and isinstance(before, Unable):
        return Row(cell, gate, "", against, None, None, "", "could not run", f"head: {after}; {against}: {before}")
    if isinstance(after, Unable):
        return Row(cell, gate, "", against, None, None, "", "regression", f"does not work any more: {after}")
    return Row(cell, gate, "", against, None, None, "", "notice", f"nothing to compare with: {against} {before}")


def _same_code(plan: Plan, base: Side, head: Side, facts: Measured[Facts], their_facts: Measured[Facts]) -> frozenset[str]:
    """Names of the cells whose code and packages have the same hash on both sides, and whose exact facts are all equal."""
    ours, theirs = sides.code(head, plan.suite.cell), sides.code(base, plan.suite.cell)
    same = {pair for pair in ours if ours[pair] == theirs.get(pair)}
    alike = {name for name, found in facts.items() if not isinstance(found, Unable) and found == their_facts[name]}
    named = [cell for cell in plan.suite.cell if f"{cell.method}/{cell.task}" in same]
    return frozenset(cell.name for cell in named if cell.name in alike or "exact" not in cell.gates)


def _race(plan: Plan, base: Side, head: Side, listener: Listener) -> list[Row]:
    """Run the race; cells that a side cannot time are dropped before the others are timed."""
    cells = {cell.name: cell for cell in plan.cells("speed")}
    rows: list[Row] = []
    first: dict[str, turns.Pair] = {}
    for name, cell in cells.items():
        listener(f"speed: {name}")
        try:
            first[name] = turns.run_pair({"base": (base, cell), "head": (head, cell)}, plan.options)
        except Unraced as stop:
            found = {label: stop.found[label] or "could be timed" for label in ("base", "head")}
            rows.append(_failed(name, "speed", base.label, found["base"], found["head"]))
    able, counted = list(first), dict.fromkeys(first, 1)

    def timer(name: str, begins: turns.Label) -> turns.Pair:
        if name in first:
            return first.pop(name)
        counted[name] += 1
        listener(f"speed: {name}, pair {counted[name]}")
        try:
            return turns.run_pair({"base": (base, cells[name]), "head": (head, cells[name])}, plan.options, begins)
        except Unraced as stop:
            raise _Stopped(name, stop) from stop

    try:
        laps = speed.race(able, timer, tolerance=plan.tolerance, pairs=plan.pairs, max_pairs=max(MOST_PAIRS, 2 * plan.pairs))
    except _Stopped as stopped:
        note = f"both could be timed before but not now: {stopped.reason}"
        return [*rows, Row(stopped.cell, "speed", "", base.label, None, None, "", "could not run", note)]
    return rows + [table.speed_row(lap, base.label, plan.tolerance) for lap in laps]


class _Stopped(Exception):
    """A pair that could be timed before cannot be timed now."""

    def __init__(self, cell: str, reason: Unraced) -> None:
        super().__init__(str(reason))
        self.cell, self.reason = cell, reason
