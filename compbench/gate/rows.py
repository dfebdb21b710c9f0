"""The gate's table: rows of facts, scores and speeds, each with a verdict, and the overall verdict."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from compbench.board.statistics import holm
from compbench.gate.paired_test import Comparison, compare_scores
from compbench.gate.sides import Facts, ScoreBySeed, Scores
from compbench.gate.speed import Lap
from compbench.gate.suite import Gate

Verdict = Literal["pass", "better", "notice", "accepted", "inconclusive", "could not run", "regression"]
EXIT: dict[Verdict, int] = {"pass": 0, "regression": 1, "inconclusive": 3, "could not run": 4}
"""Exit status of each verdict; 2 means wrong usage, as everywhere."""

EXACT_COSTS = ("parameters", "evaluations", "flops_per_fit", "flops_per_sample")
BYTES = ("training_bytes", "sampling_bytes")
BYTES_SLACK, LEAST_BYTES = 0.01, 4096
"""Allocations may grow by this share or number of bytes and still pass, because one more scalar does not matter."""
BYTES_OF_PEAK, MOST_BYTES = 0.1, 2**20
"""More memory is a regression only beyond this share of the larger of the two peaks, and beyond this number of bytes."""
WORK = ("evaluations", "flops_per_fit", "flops_per_sample")
HASH = "samples_sha256"
TRAILER = re.compile(r"^Gate-accept:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE | re.IGNORECASE)


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        cell, gate, what: identify the number.
        against: label of the base or baseline.
        base, head: the two values; None if a side has no value.
        change: the difference in words.
        verdict, note: what follows from it, and why.
    """

    cell: str
    gate: Gate
    what: str
    against: str
    base: float | str | None
    head: float | str | None
    change: str
    verdict: Verdict
    note: str = ""


def answer(rows: Sequence[Row]) -> Verdict:
    """The overall verdict: a regression if any row is one, else "could not run", else "inconclusive", else "pass".

    If nothing could be compared with a base, the verdict is "could not run".
    """
    verdicts = {row.verdict for row in rows}
    for verdict in ("regression", "could not run", "inconclusive"):
        if verdict in verdicts:
            return verdict
    compared = {row.against for row in rows if row.base is not None and row.head is not None}
    return "pass" if rows and compared == {row.against for row in rows} else "could not run"


def fact_rows(cell: str, against: str, base: Facts, head: Facts) -> list[Row]:
    """Exact facts: more parameters, evaluations or FLOPs, or much more memory, is a regression; changed samples are a notice.

    More memory for less work, as from one forward pass for two batches, is a notice too.
    """
    same_machine = base.machine == head.machine
    peak = max((float(base.values.get(name) or 0) for name in BYTES), default=0.0)
    less_work = _less_work(base, head)
    rows = []
    for name in (*EXACT_COSTS, *BYTES):
        before, after = base.values.get(name), head.values.get(name)
        if before is None and after is None:
            continue
        if name in BYTES:
            verdict, note = _memory(before, after, peak, same_machine=same_machine, less_work=less_work)
        else:
            verdict, note = _cost(before, after)
        if verdict == "notice" and not same_machine and name in BYTES:
            note = f"measured elsewhere ({base.machine}; here {head.machine})"
        rows.append(Row(cell, "exact", name, against, before, after, _relative(before, after), verdict, note))
    return [*rows, _hash_row(cell, against, base, head)]


def _less_work(base: Facts, head: Facts) -> bool:
    """Whether the head does less work by at least one count and more work by none."""
    pairs = [(base.values.get(name), head.values.get(name)) for name in WORK]
    known = [(float(before), float(after)) for before, after in pairs if before is not None and after is not None]
    return any(after < before for before, after in known) and all(after <= before for before, after in known)


def _cost(before: float | None, after: float | None) -> tuple[Verdict, str]:
    if before is None or after is None:
        return "notice", "only one side has it"
    if after > before:
        return "regression", "exact: no increase is allowed"
    return ("pass" if after == before else "better"), ""


def _memory(
    before: float | None, after: float | None, peak: float, *, same_machine: bool, less_work: bool
) -> tuple[Verdict, str]:
    """The verdict on the bytes that one stage held, compared with the larger peak of the base's stages."""
    if before is None or after is None:
        return "notice", "only one side has it"
    if not same_machine:
        return "notice", ""
    grown = after - before
    if grown <= 0:
        return ("pass" if not grown else "better"), ""
    if grown <= max(LEAST_BYTES, BYTES_SLACK * before):
        return "pass", f"within {BYTES_SLACK:.0%} or {LEAST_BYTES} bytes"
    if grown <= max(MOST_BYTES, BYTES_OF_PEAK * peak):
        return "notice", f"more, but within {BYTES_OF_PEAK:.0%} of the peak or 1 MiB"
    if less_work:
        return "notice", "more memory for less work"
    return "regression", f"more than {BYTES_OF_PEAK:.0%} of the peak and 1 MiB"


def _hash_row(cell: str, against: str, base: Facts, head: Facts) -> Row:
    before, after = base.values.get(HASH), head.values.get(HASH)
    verdict: Verdict = "pass" if before and before == after else "notice"
    if not before or not after:
        change, note = "", "only one side has it"
    elif before == after:
        change, note = "the same to the bit", ""
    elif base.machine != head.machine:
        change, note = "differ", f"measured elsewhere ({base.machine}; here {head.machine})"
    else:
        change, note = "differ", "it computes other samples now, which alone is not a regression"
    base_shown, head_shown = (found[:12] if found else None for found in (before, after))
    return Row(cell, "exact", "samples", against, base_shown, head_shown, change, verdict, note)


class ScoreRow(NamedTuple):
    """A row whose verdict depends on Holm's test over the table."""

    row: Row
    comparison: Comparison | None


def score_rows(cell: str, against: str, base: Scores, head: Scores, margins: Mapping[str, float]) -> list[ScoreRow]:
    """Paired differences of each score against its metric's margin; `settled` gives the verdicts."""
    rows = []
    for name in sorted(base.scores.keys() | head.scores.keys()):
        before, after = base.scores.get(name), head.scores.get(name)
        why = _other_data(base, head) or _incomparable(before, after, base.task_version, head.task_version)
        if before is None or after is None or why:
            row = Row(cell, "scores", name, against, _mean(before), _mean(after), "", "notice", why)
            rows.append(ScoreRow(row, None))
            continue
        margin = margins.get(after.metric, 0.0)
        found = compare_scores(before.values, after.values, direction=after.direction, margin=margin)
        assert found is not None
        seeds = before.values.keys() & after.values.keys()
        before_mean, after_mean = (math.fsum(side.values[seed] for seed in seeds) / len(seeds) for side in (before, after))
        change = f"{after_mean - before_mean:+.4g}" + (f", {_bounds(found)}" if any((found.low, found.high)) else "")
        note = f"margin {margin:g}, {found.n} seed{'s' if found.n > 1 else ''}"
        rows.append(ScoreRow(Row(cell, "scores", name, against, before_mean, after_mean, change, "pass", note), found))
    return rows


def _other_data(base: Scores, head: Scores) -> str:
    """Why scores of different data are not compared; "" if the data is the same or one side does not name its data."""
    before, after = (base.source, base.fingerprint), (head.source, head.fingerprint)
    if before == after or not all((*before, *after)):
        return ""
    return f"other data, not comparable ({' '.join(before)}; here {' '.join(after)})"


def _incomparable(before: ScoreBySeed | None, after: ScoreBySeed | None, *versions: int) -> str:
    if before is None or after is None:
        return "only one side has it"
    if before.metric_version != after.metric_version or versions[0] != versions[1]:
        return "the task or metric has another version: not comparable, as intended"
    if not before.values.keys() & after.values.keys():
        return "no seed in common"
    return ""


def settled(rows: Sequence[ScoreRow]) -> list[Row]:
    """Verdicts on scores: a regression must exceed the margin by its own bound, also after Holm's correction over all scores."""
    tested = [entry.comparison for entry in rows if entry.comparison is not None]
    fallen = iter(holm([found.p_value for found in tested]))
    done = []
    for row, found in rows:
        if found is None:
            done.append(row)
            continue
        falls = next(fallen)
        if found.finding == "worse" and falls:
            row = row._replace(verdict="regression")
        elif found.finding == "not worse":
            row = row._replace(verdict="better" if found.high < 0 else "pass")
        else:
            suspected = (
                "over the margin by its own bound, but not after correction for the number of rows; "
                if found.finding == "worse"
                else ""
            )
            row = row._replace(verdict="inconclusive", note=f"{row.note}; {suspected}{_would_do(found.needed or None, 'seeds')}")
        done.append(row)
    return done


def speed_row(lap: Lap, against: str, tolerance: float) -> Row:
    """A lap as a row: medians over processes, and the ratio with its one-sided bounds."""
    found = lap.comparison
    change = f"{math.expm1(found.mean):+.1%}, {math.expm1(found.low):+.1%} to {math.expm1(found.high):+.1%}"
    note = f"tolerance {tolerance:.0%}, {found.n} pairs"
    base, head = (sorted(times)[len(times) // 2] for times in (lap.base, lap.head))
    verdict: Verdict = "pass"
    if lap.regression:
        verdict, note = "regression", f"{note}; five fresh pairs repeat it"
    elif found.finding != "not worse":
        verdict = "inconclusive"
        if lap.suspected:
            note += "; suspected, but " + (
                "not significant after correction for the number of rows" if lap.repeated else "five fresh pairs do not repeat it"
            )
        note += f"; {_would_do(lap.needed, 'pairs')}"
    elif found.high < 0:
        verdict = "better"
    what = {"train": "training step", "sample": "sampling"}.get(lap.row, lap.row)
    return Row(lap.cell, "speed", what, against, base, head, change, verdict, note)


def unraced_row(cell: str, against: str) -> Row:
    """The row of a cell that needs no race, because both sides execute the same code."""
    return Row(cell, "speed", "", against, "the same", "the same", "", "pass", "code and packages have the same hash: no race")


def accepting(rows: Sequence[Row], patterns: Sequence[str]) -> list[Row]:
    """Mark intended regressions as accepted: 'factored/* parameters', or '*/gmm-id*' for all rows of a cell."""
    return [
        row._replace(verdict="accepted", note=f"accepted; {row.note}".rstrip("; "))
        if row.verdict == "regression" and any(_matches(row, pattern) for pattern in patterns)
        else row
        for row in rows
    ]


def accepted_in(message: str) -> list[str]:
    """Patterns of the `Gate-accept:` trailers of commit messages."""
    return TRAILER.findall(message)


def _matches(row: Row, pattern: str) -> bool:
    cell, _, what = pattern.strip().partition(" ")
    own = row.what.replace(" ", "_")
    return fnmatch.fnmatchcase(row.cell.partition(" ")[0], cell) and fnmatch.fnmatchcase(
        own, what.strip().replace(" ", "_") or "*"
    )


def _relative(before: float | None, after: float | None) -> str:
    if before is None or after is None or before == after:
        return ""
    return f"{after / before - 1:+.1%}" if before else f"+{after:g}"


def _bounds(found: Comparison) -> str:
    return "no bounds from one seed" if found.n == 1 else f"worse by {found.low:.4g} to {found.high:.4g}"


def _would_do(needed: int | None, unit: str) -> str:
    return (
        f"about {needed} {unit} would decide" if needed else f"no number of {unit} would decide: the difference is at the limit"
    )


def _mean(score: ScoreBySeed | None) -> float | None:
    return math.fsum(score.values.values()) / len(score.values) if score and score.values else None
