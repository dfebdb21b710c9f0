"""Prove that the code of two commits gives bit-identical results, so that records of one commit are records of the other.

Two proofs count.  *Meaning*: under the newer commit's hash rules both sources have the same hash, so only the rules, comments or
texts changed.  *Bits*: exact facts (`probe.facts`: parameters, evaluations, the samples of a short fit) and all scores of smoke
runs are the same on both sides, for enough cells that every changed method and every changed task is in one.  A raised version
means an intended change of numbers, so such code is never equal.  GPU-only code is not run here, so if its text changed, equal
bits prove nothing for GPUs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from compbench.gate import sides
from compbench.gate.sides import Answer, CellOptions, Side, Unable
from compbench.gate.suite import Cell
from compbench.gate.worktree import built, commit_of, repository
from compbench.registry.checkout import git
from compbench.registry.equal_code import TABLE, Equal
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

PROBE = Path(__file__).with_name("code_probe.py")
SECONDS = 900.0
"""Longest time in seconds that the digests of one checkout may take."""
BITS = ("parameters", "evaluations", "samples_sha256")
"""Exact facts that must be equal; memory and operations may change although the results are bit-identical."""
EQUAL = "--equal"
"""The option that names the two commits; errors begin with it."""
OF_THE_TASK = {"task", "data", "metrics"}
"""Parts of the code that all methods on a task share."""
ROUNDS = 4
"""How many methods are tried for a task, and how many tasks for a method, until one pair is not refused."""
Codes = Mapping[str, tuple[str, dict[str, str]]]
Listener = Callable[[str], None]


class CodeFacts(TypedDict):
    """Facts about the code of one checkout (`code_probe.facts_here`).

    Attributes:
        root: the folder that contains the package.
        entries: for each kind, the fields of its registry entries as text.
        versions: version of each plugin, by kind and name.
        metrics: names of the metrics that each task scores by.
        works: "method/task" of each pair that can run.
    """

    root: str
    entries: dict[str, list[list[str]]]
    versions: dict[str, dict[str, int]]
    metrics: dict[str, list[str]]
    works: list[str]


class Checkout(NamedTuple):
    """The code of one commit, hashed by its own rules.

    Attributes:
        facts: root, entries, versions, and the metrics of each task (`code_probe.facts_here`).
        codes: "method/task/device" -> digest, and digests of the parts.
    """

    facts: CodeFacts
    codes: Codes


class Proven(NamedTuple):
    """The codes that two commits have in common.

    Attributes:
        rows: rows for the table.
        changed: pairs with a raised version, as "method/task".
        unproven: "method/task/device" -> why its code is not proven equal.
    """

    rows: tuple[Equal, ...]
    changed: tuple[str, ...]
    unproven: dict[str, str]


def prove(old: str, new: str, folder: Path, data: Path, listener: Listener = lambda line: None) -> Proven:
    """Compare all code that is installed with two commits of the surrounding repository.

    Args:
        old, new: names of commits, `old` an ancestor of `new`.
        folder: folder for environments and homes.
        data: the user's official data.

    Raises:
        CompbenchError: there is no such commit, or `old` is not an ancestor of `new`.
        CouldNotRun: an environment could not be made.
        Unable: a side's code could not be hashed.
    """
    commit = commits_of(repository(Path.cwd(), EQUAL), old, new)
    with built(old, folder / "old", data, ()) as before, built(new, folder / "new", data, ()) as after:
        theirs, ours = _checkout(before, folder), _checkout(after, folder)
        again = _checkout(after, folder, theirs.facts)
        works = set(ours.facts["works"])  # other pairs have no records
        known = [pair for pair in ours.codes if pair in theirs.codes and (pair[0] == "/" or pair.rpartition("/")[0] in works)]
        differing = [pair for pair in known if ours.codes[pair][0] != theirs.codes[pair][0]]
        same = {pair for pair in differing if again.codes[pair] == ours.codes[pair]}
        changed = {pair for pair in differing if _version_went_up(pair, theirs.facts, ours.facts)} - same
        open_ones = [pair for pair in differing if pair not in same | changed]
        listener(
            f"{len(ours.codes)} codes: {len(differing)} have another digest, {len(same)} of them by the rules or words alone"
        )
        why: dict[str, str] = {}
        if open_ones:
            why = _without_equal_bits(open_ones, theirs, ours, (before, after), listener)
            left = [pair for pair in open_ones if pair not in why]
            why |= _gpu_texts(left, after, folder, theirs, ours)
    proofs = {**dict.fromkeys(same, "meaning"), **{pair: "bits" for pair in open_ones if pair not in why}}
    rows = [row for pair, proof in proofs.items() for row in _rows(theirs.codes[pair], ours.codes[pair], commit, proof)]
    return Proven(_unambiguous(rows), tuple(sorted({pair.rpartition("/")[0] for pair in changed})), why)


def new_rows(rows: Iterable[Equal], top: Path, since: str) -> list[Equal]:
    """The rows that the table did not have at a commit.  Raises CompbenchError if there is no such commit."""
    commit = commit_of(top, since, "--against")
    try:
        before = set(git(top, "show", f"{commit}:{TABLE.resolve().relative_to(top.resolve())}").decode().splitlines())
    except CompbenchError:
        before = set()  # the table did not exist yet
    return [row for row in rows if ",".join(row) not in before]


def commits_of(top: Path, old: str, new: str) -> str:
    """The table's name for two commits: the newer one if the older is its first parent, else "OLD..NEW".

    Raises:
        CompbenchError: there is no such commit, or the older one is not an ancestor of the newer.
    """
    before, commit = commit_of(top, old, EQUAL), commit_of(top, new, EQUAL)
    try:
        git(top, "merge-base", "--is-ancestor", before, commit)
    except CompbenchError as error:
        raise CompbenchError(f"{old} is not a commit before {new}.") from error
    parent = git(top, "rev-parse", f"{commit}^1").decode().strip() if before != commit else commit
    return commit if parent == before else f"{before}..{commit}"


def _checkout(side: Side, folder: Path, facts: CodeFacts | None = None) -> Checkout:
    """A side's code; with `facts`, the code of their checkout, hashed by this side's rules."""
    place = folder / f"codes-{side.home.parent.name}{'-again' if facts else ''}.json"
    answer = _asked(side, place, {"kind": "codes", **({"facts": facts} if facts else {})})
    return Checkout(answer["facts"], {pair: (digest, parts) for pair, (digest, parts) in answer["found"].items()})


def _asked(side: Side, place: Path, order: dict[str, Json]) -> Answer:
    words = place.with_suffix(".order.json")
    words.write_text(json.dumps({**order, "answer": str(place)}), encoding="utf-8")
    side.run([str(PROBE), str(words)], seconds=SECONDS)
    answer: Answer = json.loads(place.read_text(encoding="utf-8"))
    return answer


def _version_went_up(pair: str, before: CodeFacts, after: CodeFacts) -> bool:
    """Whether the method, the task or one of its metrics has another version."""
    method, task, _ = pair.split("/")
    named = [("methods", method), ("tasks", task), *(("metrics", name) for name in after["metrics"].get(task, ()))]
    return any(before["versions"][kind].get(name) != after["versions"][kind].get(name) for kind, name in named if name)


def _without_equal_bits(
    pairs: Sequence[str], theirs: Checkout, ours: Checkout, both: tuple[Side, Side], listener: Listener
) -> dict[str, str]:
    """Pairs whose results differ, with the reason.  A pair whose own cell is not run gets the verdict of its method and its task.

    A method that refuses a task on both sides proves nothing, so another is tried, up to `ROUNDS` times.
    """
    bad: dict[str, str] = {}
    scored: set[str] = set()
    left = {pair for pair in pairs if pair[0] != "/"}
    needed = changed_sides(pairs, theirs.codes, ours.codes)
    for _ in range(ROUNDS):
        if not (cells := cover(left, needed)):
            break
        listener(f"{len(cells)} cells are run on both sides: {', '.join(cell.name for cell in cells)}")
        for cell, *found in zip(cells, *(sides.facts(side, cells, CellOptions()) for side in both), strict=True):
            if all(isinstance(one, Unable) for one in found) and str(found[0]) == str(found[1]):
                left -= {pair for pair in left if pair.startswith(f"{cell.method}/{cell.task}/")}
                continue
            reason = _difference(*found)
            if not reason and cell.task not in scored:  # one method is enough to show a task's scoring
                scored.add(cell.task)
                reason = _score_difference(cell, *both)
            listener(f"{cell.name}: {reason or 'the same bits'}")
            needed -= {("method", cell.method), ("task", cell.task)}
            if reason:
                bad |= {cell.method: f"{cell.name}: {reason}", cell.task: f"{cell.name}: {reason}"}
    bad |= {name: f"no cell of this {kind} can be run" for kind, name in needed}
    return {pair: bad[name] for pair in pairs for name in pair.split("/")[:2] if name in bad}


def changed_sides(pairs: Iterable[str], before: Codes, after: Codes) -> set[tuple[str, str]]:
    """("method", name) and ("task", name) with a changed part of code, among "method/task/device" with other digests."""
    needed: set[tuple[str, str]] = set()
    for pair in pairs:
        method, task, _ = pair.split("/")
        parts, now = before[pair][1], after[pair][1]
        changed = {name for name in parts.keys() | now.keys() if parts.get(name) != now.get(name)}
        if method:
            needed |= {("method", method)} if changed - OF_THE_TASK or not changed else set()
            needed |= {("task", task)} if changed - {"method"} or not changed else set()
    return needed


def cover(pairs: Iterable[str], needed: set[tuple[str, str]]) -> list[Cell]:
    """Cells from some "method/task/device" that cover everything needed; cells that cover two needed names come first."""
    left, cells = set(needed), []
    known = sorted({(method, task) for method, task, _ in (pair.split("/") for pair in pairs) if method})
    for least in (2, 1):
        for method, task in known:
            new = {("method", method), ("task", task)} & left
            if len(new) >= least:
                left -= new
                cells.append(Cell(method=method, task=task, preset="smoke", seeds="0"))
    return cells


def _difference(theirs: sides.Facts | Unable, ours: sides.Facts | Unable) -> str:
    for one in (theirs, ours):
        if isinstance(one, Unable):
            return f"cannot be run: {one}"
    assert not isinstance(theirs, Unable)
    assert not isinstance(ours, Unable)
    return next((f"{name} differ" for name in BITS if theirs.values.get(name) != ours.values.get(name)), "")


def _score_difference(cell: Cell, before: Side, after: Side) -> str:
    try:
        theirs, ours = (sides.all_scores(side, cell, CellOptions()) for side in (before, after))
    except Unable as error:
        return f"cannot be run: {error}"
    return next((f"{name} differs" for name in sorted(theirs.keys() | ours.keys()) if theirs.get(name) != ours.get(name)), "")


def _gpu_texts(pairs: Iterable[str], after: Side, folder: Path, theirs: Checkout, ours: Checkout) -> dict[str, str]:
    """Pairs on a GPU whose GPU-only code has another text."""
    waiting = [pair for pair in pairs if pair.endswith("/gpu") and ours.codes[pair][0] != ours.codes[f"{pair[:-4]}/cpu"][0]]
    if not waiting:
        return {}
    before, now = (
        _asked(after, folder / f"gpu-{name}.json", {"kind": "gpu", "facts": one.facts})["found"]
        for name, one in (("old", theirs), ("new", ours))
    )
    return {pair: "what only a GPU runs has changed" for pair in waiting if before.get(pair[:-4]) != now.get(pair[:-4])}


def _rows(theirs: tuple[str, dict[str, str]], ours: tuple[str, dict[str, str]], commit: str, proof: str) -> list[Equal]:
    (old, old_parts), (new, new_parts) = theirs, ours
    found = [(old, new), *((old_parts[name], new_parts[name]) for name in old_parts.keys() & new_parts.keys())]
    return [Equal(one, other, commit, proof) for one, other in found if one != other]


def _unambiguous(rows: Iterable[Equal]) -> tuple[Equal, ...]:
    """The rows whose old and new digests correspond one to one; others occur if a part of the code was split or joined."""
    after, before = defaultdict(set), defaultdict(set)
    known = set(rows)
    for row in known:
        after[row.old].add(row.new)
        before[row.new].add(row.old)
    return tuple(sorted(row for row in known if len(after[row.old]) == len(before[row.new]) == 1))
