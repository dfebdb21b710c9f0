"""Compare the four papers' claims that one method beats another with our records: claim, result, certainty.

    python experiments/claims.py                         a table for each preset that has records, from leaderboards/records
    python experiments/claims.py --preset standard       one of them
    python experiments/claims.py --records FOLDER        other records

`results_pages.py` puts the tables of `standard` into docs/results/, each on the page of its tasks' family.

Two rows are compared as a board compares them (`compbench.board.ranking`): by the differences at equal seeds, with a variance
that borrows from the other rows of the task, and p-values corrected over all claims of a paper (Holm), also those not run yet.
An order *holds* or is *reversed* if it is significant after the correction; otherwise it is *open*.  If a row has an older
version of its method or task, which has been repaired, the order *waits* for new runs, whatever the old ones say.  If the winner
has less than 0.9 of the ceiling on combinations that it was trained on, the order means little, and the table says so.  If the
rows of a paper's table had less than half of the training examples of the paper's protocol (the `paper` preset), a line above the
table gives the share.  Forced rendering compares penalties of one architecture (figure 3), not architectures.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.api.context import PRESETS
from compbench.api.interfaces import Budget, Score
from compbench.api.schemas import Record
from compbench.board.aggregate import one_a_seed
from compbench.board.cells import trials_of, whole_of
from compbench.board.ranking import p_values
from compbench.board.statistics import holm, mean
from compbench.board.verdict import LEARNT
from compbench.registry.registry import Registry
from compbench.store.records import read_published

ROOT = Path(__file__).parent.parent
WAITS = "waits"


class Side(NamedTuple):
    """A method, with settings that replace its defaults if some are given."""

    method: str
    settings: Mapping[str, object] = {}

    @property
    def label(self) -> str:
        changed = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{self.method} ({changed})" if changed else self.method


class Claim(NamedTuple):
    """A paper's claim, with its place in the paper, that `better` beats `worse` on a task."""

    paper: str
    place: str
    task: str
    better: Side
    worse: Side


class Found(NamedTuple):
    """The evidence of the records on a claim: values at the seeds that both sides have.

    Attributes:
        gain: mean of the differences, positive where the better side is better.
        p: p value of "the sides are equal"; None with fewer than two seeds.
        seen: mean share of the ceiling that the better side has on seen combinations; None if the task has no such score.
        examples: training examples that the budget of the rows grants to one party.
        older: the sides and the task, where the records have an older version of them, as in `dfd 1, now 3`.
    """

    claim: Claim
    better: tuple[float, ...]
    worse: tuple[float, ...]
    gain: float
    p: float | None
    seen: float | None
    examples: int
    older: tuple[str, ...] = ()


def claims() -> list[Claim]:
    """Every order that a paper claims and that two rows of one board can decide."""
    found = []
    for task in ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy", "mpi3d-medium"):
        found.append(Claim("FVF", "table 1", task, Side("factored"), Side("mono")))
        if task in ("shapes3d-medium", "shapes3d-heavy"):
            found.append(Claim("FVF", "table 2", task, Side("mono"), Side("slice-cfg")))
    planes = ("gauss2d-fact-id", "gauss2d-nonfact-id", "gauss2d-fact-ood", "gauss2d-nonfact-ood", "gmm-id", "gmm-ood")
    found += [Claim("FKC", "exact scores", task, Side("fkc-oracle"), Side("naive-sde-oracle")) for task in planes]
    for task in planes:  # the claim: a correction helps among the sources, and hurts far from them
        sides = (Side("fkc"), Side("naive-sde"))
        found.append(Claim("FKC", "learnt scores", task, *(sides if task.endswith("-id") else sides[::-1])))
    for place, task, others in (("table 1", "cmnist-noniid", {}), ("table 2", "planning-noniid", {"local_ci": True})):
        for method in ("dcfm-a", "dcfm-b"):  # table 2 has the baselines with the local penalty alone
            found += [Claim("DCFM", place, task, Side(method), Side(other, others)) for other in ("fedflow", "ddm", "dfd")]
    both, entropy, variance = ({"entropy_weight": e, "variance_weight": v} for e, v in ((0.1, 0.01), (0.1, 0.0), (0.0, 0.01)))
    for task in ("bump-corner", "bump-center"):
        for less in (entropy, variance, {"entropy_weight": 0.0, "variance_weight": 0.0}):
            found.append(Claim("Forced rendering", "figure 3, c to e", task, Side("low-rank", both), Side("low-rank", less)))
    return found


def examine(records: Sequence[Record], preset: str, versions: Mapping[str, int] = {}) -> list[Found]:
    """Each claim whose two rows have at least one common seed; `versions` are today's, by the name of a method or a task."""
    own = usable(records, preset)
    found = []
    for claim in claims():
        on_task = [record for record in own if record.spec.task == claim.task]
        better, worse = (by_seed(on_task, side) for side in (claim.better, claim.worse))
        common = sorted(better.keys() & worse.keys())
        if not common:
            continue
        first = better[common[0]]
        sign = 1 if primary_of(first).direction == "higher" else -1
        left, right = (tuple(primary(rows[seed]) for seed in common) for rows in (better, worse))
        gain = sign * (mean(left) - mean(right))
        examples = examples_of(first.spec.budget)
        fits = [share for seed in common if (share := learnt(better[seed])) is not None]
        seen = mean(fits) if fits else None
        ran = [(rows[common[0]].spec.method, rows[common[0]].spec.method_version) for rows in (better, worse)]
        ran.append((claim.task, first.spec.task_version))
        older = tuple(f"{name} {old}, now {new}" for name, old in dict.fromkeys(ran) if (new := versions.get(name, 0)) > old)
        found.append(Found(claim, left, right, gain, compared(claim, on_task), seen, examples, older))
    return found


def compared(claim: Claim, on_task: Sequence[Record]) -> float | None:
    """The p-value of a claim's two rows, computed among only those rows of their kind that its paper compares on the task.

    With few seeds, the variance estimate borrows from these rows, so methods that join the board later do not change a claim.
    """
    own = [one for one in claims() if (one.paper, one.task) == (claim.paper, claim.task)]
    pair = [by_seed(on_task, side) for side in (claim.better, claim.worse)]
    kinds = {(record.oracle, record.pooled_silos) for row in pair for record in row.values()}
    alike = [record for record in on_task if (record.oracle, record.pooled_silos) in kinds]
    found = [*pair, *(row for one in own for side in (one.better, one.worse) if (row := by_seed(alike, side)))]
    rows = list({tuple(sorted(record.identity for record in row.values())): row for row in found}.values())
    scores = [primary_of(record) for row in rows for record in row.values()]
    whole = whole_of(scores[0].unit)
    values = [{seed: primary(record) / whole for seed, record in row.items()} for row in rows]
    return p_values(values, trials=trials_of(scores, whole)).get((0, 1))


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
    """For each seed the record that counts on the board: of the newest version, with the task settings that most of it share."""
    own = [
        record
        for record in records
        if record.spec.method == side.method
        and all(record.spec.settings.get(name) == value for name, value in side.settings.items())
    ]
    newest = max((record.spec.method_version for record in own), default=0)
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(own, key=lambda record: record.started):
        if record.spec.method_version == newest:
            other = {name: value for name, value in record.spec.settings.items() if name not in side.settings}
            groups[f"{sorted(record.spec.task_settings.items())}{sorted(other.items())}"].append(record)
    found = [{record.spec.seed: record for record in one_a_seed(group)} for group in groups.values()]
    return max(found, key=len, default={})


def primary_of(record: Record) -> Score:
    return next(score for score in record.scores if score.primary)


def primary(record: Record) -> float:
    value = primary_of(record).value
    return math.nan if value is None else value


def learnt(record: Record) -> float | None:
    """Share of the ceiling on seen combinations; None where the task has no such score."""
    seen = record.score(primary_of(record).name.replace("heldout", "seen"))
    return seen.value / seen.ceiling if seen and seen.value is not None and seen.ceiling else None


def examples_of(budget: Budget) -> int:
    return budget.train_steps * budget.batch_size


def shares_of_examples(found: Sequence[Found], registry: Registry) -> str:
    """By task, the rows' share of the training examples of the paper's protocol; "" if it is at least a half."""
    tasks: dict[str, list[str]] = {}
    for task, examples in {each.claim.task: each.examples for each in found}.items():
        paper = registry.load("tasks", task).budgets.get("paper")
        if paper is not None and 2 * examples <= examples_of(paper):
            share = f"1/{examples_of(paper) / examples:.0f} ({examples:,} of {examples_of(paper):,})"
            tasks.setdefault(share, []).append(task)
    said = "; ".join(f"{share} on {', '.join(names)}" for share, names in tasks.items())
    return f"Training examples, as a share of those of the paper's protocol: {said}." if said else ""


def verdicts(found: Sequence[Found]) -> list[str]:
    """`holds`, `reversed`, `open` or `waits` for each claim; Holm's correction is over all claims of a paper, run or not."""
    said = [""] * len(found)
    every = Counter(claim.paper for claim in claims())
    for paper in {each.claim.paper for each in found}:
        own = [index for index, each in enumerate(found) if each.claim.paper == paper]
        tested = {index: p for index in own if (p := found[index].p) is not None}
        not_run = [1.0] * (every[paper] - len(tested))  # an order must not hold because others have not been run
        fallen = dict(zip(tested, holm([*tested.values(), *not_run]), strict=False))
        for index in own:
            each = found[index]
            said[index] = ("**holds**" if each.gain > 0 else "**reversed**") if fallen.get(index) else "open"
            if each.older:
                said[index] = f"{WAITS}: version of {'; '.join(each.older)}"
            elif each.seen is not None and each.seen < LEARNT:
                said[index] += f"; not learnt: {each.seen:.2f} of real data's score on seen"
    return said


class Tally(NamedTuple):
    """How many of some verdicts hold, are reversed, wait for runs, or are open."""

    holds: int
    against: int
    waiting: int
    open: int


def tally(said: Sequence[str]) -> Tally:
    """Count verdicts by their first word."""
    found = [sum(one.startswith(start) for one in said) for start in ("**holds", "**reversed", WAITS)]
    return Tally(*found, len(said) - sum(found))


def counted(said: Sequence[str]) -> str:
    """The number of orders, and how many hold, are reversed, wait or are open."""
    found = tally(said)
    orders = f"{len(said)} order{'' if len(said) == 1 else 's'}"
    waits = f", {found.waiting} wait for runs of a repaired method or task" if found.waiting else ""
    return f"of {orders} with records, {found.holds} hold, {found.against} are reversed{waits} and {found.open} are open"


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def rows(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line has its headings."""
    return "\n".join([line(lines[0]), line(["---"] * len(lines[0])), *map(line, lines[1:])])


def table(found: Sequence[Found], said: Sequence[str]) -> str:
    """The table of a paper's claims."""
    heads = ("where", "task", "claim", "found", "seeds", "gain", "p", "verdict")
    lines: list[Sequence[str]] = [heads]
    for each, verdict in zip(found, said, strict=True):
        claim, p = each.claim, "" if each.p is None else f"{each.p:.2g}"
        values = f"{mean(each.better):.3g} : {mean(each.worse):.3g}"
        order = f"{claim.better.label} > {claim.worse.label}"
        cells = (claim.place, claim.task, order, values, str(len(each.better)), f"{each.gain:+.3g}", p, verdict)
        lines.append(cells)
    return rows(lines)


def report(folder: Path, preset: str) -> str:
    """The tables of one preset, or of all presets that have records; one table per paper."""
    records, _ = read_published(folder)
    parts, registry = [], Registry()
    sides = {side.method for claim in claims() for side in (claim.better, claim.worse)}
    versions = {name: registry.load("methods", name).version for name in sides}
    versions |= {claim.task: registry.load("tasks", claim.task).version for claim in claims()}
    for name in [preset] if preset else PRESETS[::-1]:
        found = examine(records, name, versions)
        said = verdicts(found)
        if found:
            parts.append(f"`{name}`: {counted(said)}.")
        for paper, own in itertools.groupby(zip(found, said, strict=True), lambda pair: pair[0].claim.paper):
            rows_of, words = zip(*own, strict=True)
            shares = shares_of_examples(rows_of, registry)
            parts += [f"{paper}: {counted(words)}.{' ' if shares else ''}{shares}", table(rows_of, words)]
    return "\n\n".join(parts) or "no records of any claim"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=ROOT / "leaderboards" / "records")
    parser.add_argument("--preset", choices=PRESETS, default="")
    asked = parser.parse_args()
    print(report(asked.records, asked.preset))


if __name__ == "__main__":
    main()
