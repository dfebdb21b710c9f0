"""What the board answers, as one object: questions, their tasks, and each method's entry at a task, with text.

The Markdown file, the terminal, the figures and the page's questions draw this object; none of them chooses or computes
anything.  The CSV files and the page's tables read `BoardRow` (`board/row.py`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

from compbench.board.catalogue import Catalogue
from compbench.board.cells import Cell
from compbench.board.competition import scale_of_rows, seen_scale_of_rows
from compbench.board.families import Contest, Families, Standing, seniority
from compbench.board.groups import Section
from compbench.board.notation import count, failure, notes, number
from compbench.board.question_table import QUESTIONS, Asked
from compbench.board.row import Board, BoardRow
from compbench.board.scale import Scale, real_of
from compbench.board.statistics import mean, sample_std
from compbench.board.verdict import MEANINGS

SAMPLES = 10_000
"""A cost includes the training and this number of samples."""

COMPANIONS = {False: ("factored", "mono"), True: ("fedflow", "dcfm-b")}
"""Methods to run next to a single method so that it can be ranked: for data in one place (False), and in silos (True)."""

State = Literal["best", "worse", "means", "unranked", "reference", "failed"]
"""State of an entry: see `Entry`."""
STATE_WORDS: dict[State, str] = {
    "best": "may be best",
    "worse": "shown to be worse",
    "means": "draws means",
    "unranked": "not ranked",
    "reference": "reference",
    "failed": "failed",
}
"""The states in words, for the page, the terminal and docs/boards.md."""


OUTDATED = "scored by an older version of the metric"


class Entry(NamedTuple):
    """One method on one task.

    Attributes:
        state: `best` may be the best; `worse` is shown to be worse than another; `means` draws means and is not eligible for
            first; `unranked` has too few seeds or no order; `reference` does not compete; `failed` has no score.
        shares: share of the way from the best constant answer (0) to real data (1), by seed.
        share: mean of `shares`; None where the task has no scale.
        low, high: ends of the 95 % interval of the score, as shares.
        seen: the share on seen combinations, from the best constant answer there to real data there; None where it is not known.
        score: the score in words.
        interval: the 95 % interval's ends in the unit of the score, as in 20-94; "" without one.
        cost: FLOPs of the training and of `SAMPLES` samples; None where they are not known.
        seconds: duration of the training and of these samples on the profiled machine; None where that is not known.
        notes: other facts that a reader must know.
    """

    row: BoardRow
    state: State
    shares: tuple[float, ...]
    share: float | None
    low: float | None
    high: float | None
    seen: float | None
    score: str
    cost: float | None
    seconds: float | None
    interval: str = ""
    notes: tuple[str, ...] = ()

    @property
    def cell(self) -> Cell | None:
        """The primary score."""
        return self.row.scores.get(self.row.primary)

    @property
    def cost_words(self) -> str:
        return flop_words(self.cost)


class Crossing(NamedTuple):
    """Two entries of a task: `kept` may be best, and `out`, which has the better mean, is shown to be worse than some other."""

    kept: Entry
    out: Entry

    @property
    def words(self) -> str:
        """Why the tests, which compare seed by seed, keep one and exclude the other."""
        name = self.kept.row.method
        if len(self.kept.shares) < len(self.out.shares):
            why = f"{name} has fewer seeds"
        elif sample_std(self.kept.shares) > sample_std(self.out.shares):
            why = f"{name}'s seeds vary more"
        else:
            why = f"{name}'s distance to others varies more"
        return f"{name} may be best, {self.out.row.method} not: {why}."


class Answer(NamedTuple):
    """A task's entries, best first.

    Attributes:
        label: a few words that distinguish the task from others of its question.
        verdict: one word; "" if the score has no scale.
        real: the score of real data in words.
        unit: head of the column of scores, and what it means.
        missing: methods without which the task is not ranked (`families.REQUIRED`), and that have no two seeds.
        newer_version: the task's version today if all of its runs have an older one, else 0.
    """

    section: Section
    label: str
    entries: tuple[Entry, ...]
    verdict: str
    real: str
    unit: tuple[str, str] = ("", "")
    missing: tuple[str, ...] = ()
    newer_version: int = 0

    @property
    def best(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.state == "best")

    @property
    def cheapest(self) -> Entry | None:
        """The entry with the lowest known cost among those that may be best; None if no cost is known."""
        known = [entry for entry in self.best if entry.cost is not None]
        return min(known, key=lambda entry: (entry.cost or 0.0, entry.row.method)) if known else None

    @property
    def furthest(self) -> Entry | None:
        """The entry with the largest mean share among those that may be best; None if the verdict does not depend on a share."""
        known = (
            [entry for entry in self.best if entry.share is not None] if self.verdict in ("solved", "open", "unsolved") else []
        )
        return max(known, key=lambda entry: entry.share or 0.0, default=None)

    @property
    def way(self) -> str:
        """How much of the way from ignoring the request to real data the furthest entry goes, as in 67 %; "" without one.

        It is rounded down, so that it agrees with the verdict.  A score can exceed that of real data by chance; it then counts as
        100 %.
        """
        found = self.furthest
        return "" if found is None else f"{min(100, math.floor(100 * (found.share or 0.0) + 1e-9))} %"

    @property
    def verdict_words(self) -> str:
        """The verdict, and how far the furthest entry goes, as in open 67 %."""
        return f"{self.verdict} {self.way}".strip()

    @property
    def meaning(self) -> str:
        """A sentence that says what the verdict means and which method goes how far; "" without a verdict."""
        found = self.furthest
        goes = "" if found is None else f"; {found.row.method} goes {self.way}"
        return f"{self.verdict}: {MEANINGS[self.verdict]}{goes}." if self.verdict in MEANINGS else ""

    @property
    def older(self) -> str:
        """A sentence that says that the task has a newer version than these runs; "" if it has not."""
        old = self.section.task_version
        return f"Runs of version {old} of this task; today's is {self.newer_version}." if self.newer_version else ""

    @property
    def competing(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.state in ("best", "worse"))

    @property
    def alike(self) -> bool:
        """Whether methods with enough seeds have no order: runs of one differ as much as the methods do."""
        return not self.missing and sum(entry.state == "unranked" and len(entry.row.seeds) > 1 for entry in self.entries) > 1

    @property
    def waits_for(self) -> str:
        """What keeps the task from being ranked, as in `lacks additive, nearest`; "" if it is ranked or separates no methods."""
        if self.competing or self.alike:
            return ""
        return f"lacks {', '.join(self.missing)}" if self.missing else "too few seeds"

    @property
    def crossing(self) -> Crossing | None:
        """The worst entry that may be best and the best entry that may not, if the second has the better mean."""
        out = [entry for entry in self.competing if entry.state == "worse" and entry.share is not None]
        kept = [entry for entry in self.best if entry.share is not None]
        if not out or not kept:
            return None
        above = max(out, key=lambda entry: (entry.share or 0.0, entry.row.method))
        below = min(kept, key=lambda entry: (entry.share or 0.0, entry.row.method))
        return Crossing(below, above) if (below.share or 0.0) < (above.share or 0.0) else None


class Question(NamedTuple):
    """A question with the answer of each of its tasks; `silos` says whether the data lie in several places."""

    asked: Asked
    family: str
    silos: bool
    answers: tuple[Answer, ...]

    @property
    def best_everywhere(self) -> tuple[str, ...]:
        """Methods that may be best at all tasks, best mean share first."""
        sets = [{entry.row.method for entry in answer.best} for answer in self.answers]
        common = set.intersection(*sets) if sets else set()
        return tuple(dict.fromkeys(entry.row.method for entry in self.answers[0].best if entry.row.method in common))


class Pace(NamedTuple):
    """Duration of one TFLOP: `seconds` is the median over methods that were timed on `hardware`."""

    seconds: float
    hardware: str


class View(NamedTuple):
    """All questions that some method ran at a preset."""

    preset: str
    questions: tuple[Question, ...]

    @property
    def pace(self) -> Pace | None:
        """How long a TFLOP of training and samples takes on the machine that timed most methods; None if none was timed."""
        found: dict[str, list[float]] = defaultdict(list)
        for _, answer in self.answers():
            for entry in answer.competing:
                if entry.row.timing and entry.seconds and entry.cost:
                    found[entry.row.timing.hardware].append(1e12 * entry.seconds / entry.cost)
        if not found:
            return None
        hardware = max(found, key=lambda name: (len(found[name]), name))
        return Pace(median(found[hardware]), hardware)

    def answers(self) -> Iterator[tuple[Question, Answer]]:
        for question in self.questions:
            for answer in question.answers:
                yield question, answer


def views(board: Board, contests: Sequence[Contest], families: Families, catalogue: Catalogue) -> tuple[View, ...]:
    """One view for each contest, in their order."""
    return tuple(_view(board, contest.preset, families, catalogue) for contest in contests)


def _view(board: Board, preset: str, families: Families, catalogue: Catalogue) -> View:
    found: dict[str, dict[Section, list[BoardRow]]] = defaultdict(lambda: defaultdict(list))
    for row in board.rows:
        if row.section.preset == preset and not row.section.changed:
            found[row.section.task][row.section].append(row)
    newest = {task: min(sections.items(), key=seniority) for task, sections in found.items()}
    family_of = {task: family for family, tasks in families.items() for task in tasks}
    named = {task for asked in QUESTIONS for task, _ in asked.tasks}
    others = [Asked(task, "", ((task, ""),)) for task in family_of if task not in named]
    versions = {task: facts.version for task, facts in catalogue.items()}
    made = []
    for asked in (*QUESTIONS, *others):
        answers = tuple(
            _dated(answer_of(*newest[task], board, label), versions.get(task, 0))
            for task, label in asked.tasks
            if task in newest and any(row.seeds for row in newest[task][1])
        )
        if answers:
            task = answers[0].section.task
            silos = task in catalogue and catalogue[task].silos > 1
            made.append(Question(asked, family_of.get(task, ""), silos, answers))
    return View(preset, tuple(made))


def answer_of(section: Section, rows: Sequence[BoardRow], board: Board, label: str = "") -> Answer:
    """Entries of a section's rows except ablations; rows that may be best come first.

    Args:
        board: tells the section's verdict and which methods it lacks.
        label: a few words that distinguish the task from others of its question.
    """
    scale, of_seen = scale_of_rows(rows), seen_scale_of_rows(rows)
    entries = [_entry(row, scale, of_seen) for row in rows if row.kind != "ablation"]
    order = list(STATE_WORDS)

    def place(entry: Entry) -> tuple[object, ...]:
        cell = entry.cell
        merit = 0.0 if cell is None else cell.mean if cell.direction == "lower" else -cell.mean
        return order.index(entry.state), merit, entry.row.method, entry.row.variant

    cells = [row.scores[row.primary] for row in rows if row.primary in row.scores]
    unit = unit_words(cells[0]) if cells else ("", "")
    word, missing = verdict(board, section), board.missing.get(section, ())
    return Answer(section, label, tuple(sorted(entries, key=place)), word, real_words(cells), unit, missing)


def _dated(answer: Answer, version: int) -> Answer:
    return answer._replace(newer_version=version) if version > answer.section.task_version else answer


def _entry(row: BoardRow, scale: Scale | None, of_seen: Scale | None) -> Entry:
    cell, said = row.scores.get(row.primary), (*notes(row), *map(failure, row.failures))
    if cell is None:
        statuses = ", ".join(sorted(row.statuses))
        unscored = Entry(row, "failed", (), None, None, None, None, statuses, cost(row), time(row), notes=said)
        outdated = any(column.startswith(f"{row.primary}@v") for column in row.scores)
        return unscored._replace(state="unranked", score=OUTDATED) if outdated else unscored
    twin = row.seen
    shares = tuple(share for _, share in row.fits.shares) if row.fits else ()
    ends = sorted(scale.share(end) for end in cell.interval) if scale and cell.interval else [None, None]
    return Entry(
        row=row,
        state=state(row),
        shares=shares,
        share=mean(shares) if shares else None,
        low=ends[0],
        high=ends[1],
        seen=of_seen.share(twin.mean) if of_seen and twin else None,
        score=value_words(cell, cell.mean),
        cost=cost(row),
        seconds=time(row),
        interval=interval_words(cell),
        notes=said,
    )


def state(row: BoardRow) -> State:
    """Whether a row may be the best of its task."""
    if row.kind == "reference":
        return "reference"
    if row.draws_means:
        return "means"
    if row.may_be_best is None:
        return "unranked"
    return "best" if row.may_be_best else "worse"


def verdict(board: Board, section: Section) -> str:
    """The verdict on a section's question, in one word; "" if its score has no scale."""
    found = board.verdicts.get(section)
    return found.word if found else ""


def rank_commands(answer: Answer, preset: str, *, silos: bool) -> tuple[str, ...]:
    """Commands that run three seeds of each method that a rank needs: those that are missing, or two; () if it ranks."""
    if not answer.waits_for:
        return ()
    if answer.missing:
        lacked = ",".join(answer.missing)
        return (f"compbench sweep --method {lacked} --task {answer.section.task} --preset {preset} --seed 0-2",)
    ran = [entry.row.method for entry in answer.entries if entry.row.kind == "run"]
    names = list(dict.fromkeys([*ran, *COMPANIONS[silos]]))[:2]
    long = "quick" if preset == "smoke" else preset
    return tuple(f"compbench run --method {name} --task {answer.section.task} --preset {long} --seed 0-2" for name in names)


def cost(row: BoardRow) -> float | None:
    """FLOPs of a method's training and of `SAMPLES` samples; None where either is not known."""
    return row.timing.flops(SAMPLES) if row.timing else None


def time(row: BoardRow) -> float | None:
    """Seconds that a method's training and `SAMPLES` samples take on the profiled machine; None where that is not known."""
    return row.timing.wall_seconds(SAMPLES) if row.timing else None


def family_cost(found: Standing) -> float | None:
    """Mean cost over the tasks of a family that a method ran; None where one of them is not known."""
    costs = [cost(row) for row in found.rows]
    known = [one for one in costs if one is not None]
    return mean(known) if known and len(known) == len(costs) else None


def family_rate(found: Standing) -> float | None:
    """Geometric mean of samples/s over the tasks of a family that a method ran; None where one of them is not known."""
    rates = [row.timing.sample_samples_per_second if row.timing else None for row in found.rows]
    known = [one for one in rates if one]
    return math.exp(mean([math.log(one) for one in known])) if known and len(known) == len(rates) else None


def flop_words(cost: float | None) -> str:
    """FLOPs to two digits: 2.1 TFLOP, 130 TFLOP; ? where they are not known."""
    if cost is None:
        return "?"
    size, _, letter = count(float(f"{cost:.2g}")).partition(" ")
    return f"{float(size):g} {letter}FLOP"


def value_words(cell: Cell, value: float) -> str:
    """A value of a primary score in words: 68 % right, or distance 0.130."""
    if cell.direction == "lower":
        return f"distance {number(value)}"
    whole = cell.whole
    if "success" in cell.name:
        return f"{100 * value / whole:.0f} % reached"
    if "validity" in cell.name:
        return f"{100 * value / whole:.0f} % valid"
    return f"{100 * value / whole:.0f} % right" if "accuracy" in cell.name else number(value)


def interval_words(cell: Cell) -> str:
    """The ends of a primary score's interval without their unit; "" without an interval."""
    if cell.interval is None:
        return ""
    ends = [_bare(value_words(cell, end)) for end in cell.interval]
    return ends[0] if ends[0] == ends[1] else "-".join(ends)


def _bare(words: str) -> str:
    return words.removeprefix("distance ").split(" %", 1)[0]


def unit_words(cell: Cell) -> tuple[str, str]:
    """The head of a column of primary scores, and what it means."""
    if cell.direction == "lower":
        points = "sliced Wasserstein distance to real points, in units of their coordinates"
        what = points if "sw2" in cell.name else f"{cell.name.replace('_', ' ')} between generated and real samples"
        return "distance ↓", f"{what}"
    if "success" in cell.name:
        return "% reached", "plans that reach their goal"
    if "validity" in cell.name:
        return "% valid", "answers that break no rule"
    if "accuracy" in cell.name:
        return "% right", "samples that show what was asked"
    return f"{cell.name.replace('_', ' ')} ↑", "higher is better"


def real_words(cells: Sequence[Cell]) -> str:
    """The score of real data in words; "" where it is not known."""
    if not cells:
        return ""
    known = [end for cell in cells if (end := real_of(cell)) is not None]
    return value_words(cells[0], sum(known) / len(known)).removeprefix("distance ") if known else ""
