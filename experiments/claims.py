"""What the four papers say comes out ahead, and what our records say: claim, what we found, how sure.

    python experiments/claims.py                         a table for each preset that has records, from leaderboards/records
    python experiments/claims.py --preset standard       one of them
    python experiments/claims.py --records FOLDER        other records
    python experiments/claims.py --write docs/results.md between the two marks in that file; --check says whether it is fresh

Two rows are compared by the seeds that both have: the mean of the paired differences, its 95 % interval by Student's t, and
Holm's correction over the claims of that paper, so that runs of another paper's tasks move no verdict.  A difference whose
corrected interval leaves zero *holds* or is *reversed*; else it is *open*.
Where the winner has less than 0.8 of the ceiling on combinations that it was trained on, the order says little, and that is said.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from documents import put

from compbench.board.statistics import holm, interval, mean, p_value, sample_std
from compbench.interfaces import PRESETS
from compbench.schemas import Record
from compbench.store.records import read_published

ROOT = Path(__file__).parent.parent
MARK = "experiments/claims.py"
LEARNT = 0.8
"""Share of the ceiling on seen combinations below which a model has not learnt what it was shown."""


class Side(NamedTuple):
    """A method, under settings that differ from its own where some are given."""

    method: str
    settings: Mapping[str, object] = {}

    @property
    def label(self) -> str:
        changed = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{self.method} ({changed})" if changed else self.method


class Claim(NamedTuple):
    """`better` beats `worse` on a task, says a paper, and where in it."""

    paper: str
    place: str
    task: str
    better: Side
    worse: Side


class Found(NamedTuple):
    """What the records say of a claim; `gain` is positive where the better side is better."""

    claim: Claim
    better: tuple[float, ...]
    worse: tuple[float, ...]
    gains: tuple[float, ...]
    seen: float | None
    score: str


def claims() -> list[Claim]:
    """Every order that a paper states and that two rows of one board can decide."""
    found = []
    for task in ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy", "mpi3d-medium"):
        found += [Claim("FVF", "table 1", task, Side("factored"), Side("mono"))]
        found += [Claim("FVF", "table 1", task, Side("mono"), Side("slice-cfg"))]
    planes = ("gauss2d-fact-id", "gauss2d-nonfact-id", "gauss2d-fact-ood", "gauss2d-nonfact-ood", "gmm-id", "gmm-ood")
    found += [Claim("FKC", "exact scores", task, Side("fkc-oracle"), Side("naive-sde-oracle")) for task in planes]
    for task in planes:  # a correction helps among the sources, and hurts far from them
        sides = (Side("fkc"), Side("naive-sde"))
        found.append(Claim("FKC", "learnt scores", task, *(sides if task.endswith("-id") else sides[::-1])))
    for task in ("cmnist-noniid", "planning-noniid"):
        for method in ("dcfm-a", "dcfm-b"):
            found += [Claim("DCFM", "tables 1 and 2", task, Side(method), Side(other)) for other in ("fedflow", "ddm", "dfd")]
    both, entropy, variance = ({"entropy_weight": e, "variance_weight": v} for e, v in ((0.1, 0.01), (0.1, 0.0), (0.0, 0.01)))
    for task in ("bump-corner", "bump-center"):
        for less in (entropy, variance, {"entropy_weight": 0.0, "variance_weight": 0.0}):
            found.append(Claim("Forced rendering", "figure 5", task, Side("low-rank", both), Side("low-rank", less)))
        for decoder in ("mlp-decoder", "cnn-decoder", "transformer-decoder"):
            found.append(Claim("Forced rendering", "figure 3", task, Side("low-rank", both), Side(decoder)))
    return found


def examine(records: Sequence[Record], preset: str) -> list[Found]:
    """Each claim that both rows of have at least one seed in common."""
    own = usable(records, preset)
    found = []
    for claim in claims():
        on_task = [record for record in own if record.spec.task == claim.task]
        better, worse = (by_seed(on_task, side) for side in (claim.better, claim.worse))
        common = sorted(better.keys() & worse.keys())
        if not common:
            continue
        score = next(score for score in better[common[0]].scores if score.primary)
        sign = 1 if score.direction == "higher" else -1
        left, right = (tuple(primary(rows[seed]) for seed in common) for rows in (better, worse))
        gains = tuple(sign * (a - b) for a, b in zip(left, right, strict=True))
        found.append(Found(claim, left, right, gains, learnt(better[common[0]]), score.name))
    return found


def usable(records: Sequence[Record], preset: str) -> list[Record]:
    """Finished runs of a preset at its own budget, on the newest version of their task."""
    newest: dict[str, int] = {}
    for record in records:
        newest[record.spec.task] = max(newest.get(record.spec.task, 0), record.spec.task_version)
    return [
        record
        for record in records
        if record.status == "ok"
        and record.spec.preset == preset
        and not record.spec.budget_changed
        and record.spec.task_version == newest[record.spec.task]
    ]


def by_seed(records: Iterable[Record], side: Side) -> dict[int, Record]:
    """The latest record of each seed whose task settings most runs of the side share."""
    own = [
        record
        for record in records
        if record.spec.method == side.method
        and all(record.spec.settings.get(name) == value for name, value in side.settings.items())
    ]
    groups: dict[str, dict[int, Record]] = {}
    for record in sorted(own, key=lambda record: record.started):
        other = {name: value for name, value in record.spec.settings.items() if name not in side.settings}
        groups.setdefault(f"{sorted(record.spec.task_settings.items())}{sorted(other.items())}", {})[record.spec.seed] = record
    return max(groups.values(), key=len, default={})


def primary(record: Record) -> float:
    value = next(score.value for score in record.scores if score.primary)
    return math.nan if value is None else value


def learnt(record: Record) -> float | None:
    """Share of the ceiling on seen combinations; None where the task has no such score."""
    name = next(score.name for score in record.scores if score.primary).replace("heldout", "seen")
    seen = next((score for score in record.scores if score.name == name), None)
    return seen.value / seen.ceiling if seen and seen.value is not None and seen.ceiling else None


def verdicts(found: Sequence[Found], *, at_once: bool = False) -> list[str]:
    """`holds`, `reversed` or `open` for each.

    Holm's correction goes over a paper's claims that have two seeds or more, or over those of all papers at once.
    """
    p_values = [two_sided(each.gains) for each in found]
    fallen: dict[int, bool] = {}
    families = ["" if at_once else each.claim.paper for each in found]
    for family in set(families):
        tested = [index for index, own in enumerate(families) if own == family and len(found[index].gains) > 1]
        fallen |= zip(tested, holm([p_values[index] for index in tested]), strict=True)
    said = []
    for index, (each, alone) in enumerate(zip(found, p_values, strict=True)):
        falls = fallen.get(index, False)
        verdict = ("**holds**" if mean(each.gains) > 0 else "**reversed**") if falls else "open"
        if not falls and alone <= 0.05:
            verdict += f" (p {alone:.2g} alone)"
        if each.seen is not None and each.seen < LEARNT:
            verdict += f"; not learnt: {each.seen:.2f} of the ceiling on seen"
        said.append(verdict)
    return said


def two_sided(gains: Sequence[float]) -> float:
    """The p-value of paired differences against zero; 1 for one seed."""
    n = len(gains)
    return p_value(mean(gains), sample_std(gains) ** 2, n, n - 1) if n > 1 else 1.0


def counted(found: Sequence[Found]) -> str:
    """How many orders there are, and what became of them."""
    settled, against = (how_many(verdicts(found), word) for word in ("holds", "reversed"))
    return f"of {len(found)} orders with records {settled} hold, {against} are reversed, the rest are open"


def how_many(said: Sequence[str], word: str) -> int:
    return sum(verdict.startswith(f"**{word}") for verdict in said)


def table(found: Sequence[Found]) -> str:
    """A paper's claims."""
    lines = ["| where | task | claim | found | seeds | gain, 95 % | |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for each, verdict in zip(found, verdicts(found), strict=True):
        claim, spread = each.claim, interval(each.gains)
        sure = f"{mean(each.gains):+.3g} [{spread.low:+.3g}, {spread.high:+.3g}]" if spread else f"{mean(each.gains):+.3g}"
        values = f"{mean(each.better):.3g} : {mean(each.worse):.3g}"
        order = f"{claim.better.label} > {claim.worse.label}"
        lines.append(f"| {claim.place} | {claim.task} | {order} | {values} | {len(each.gains)} | {sure} | {verdict} |")
    return "\n".join(lines)


def report(folder: Path, preset: str) -> str:
    """The tables of the presets that have records, or of one; a table a paper."""
    records, _ = read_published(folder)
    parts = []
    for name in [preset] if preset else PRESETS[::-1]:
        found = examine(records, name)
        if found:
            strict = how_many(verdicts(found, at_once=True), "holds")
            parts.append(f"`{name}`: {counted(found)} (corrected over all papers at once {strict} hold).")
        for paper, claims in itertools.groupby(found, lambda each: each.claim.paper):
            own = list(claims)
            parts += [f"{paper}: {counted(own)}.", table(own)]
    return "\n\n".join(parts) or "no records of any claim"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=ROOT / "leaderboards" / "records")
    parser.add_argument("--preset", choices=PRESETS, default="")
    parser.add_argument("--write", type=Path, help="a Markdown file with the two marks")
    parser.add_argument("--check", action="store_true", help="do not write; fail where the file is not fresh")
    asked = parser.parse_args()
    text = report(asked.records, asked.preset)
    if not asked.write:
        print(text)
        return
    put(asked.write, {MARK: text}, check=asked.check, command=MARK)


if __name__ == "__main__":
    main()
