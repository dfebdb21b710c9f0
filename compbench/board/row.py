"""The row of a board (the results of one method under one protocol) and the board itself.

`aggregate` makes rows from records, `competition` ranks them and says which may be best, `verdict` sums up a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from compbench.api.schemas import Tuning
from compbench.board.cells import Cell
from compbench.board.decomposition import Parts
from compbench.board.discriminability import Discriminability
from compbench.board.fits import Fits
from compbench.board.groups import Group, Section
from compbench.board.ranking import Rank
from compbench.board.timing import Timing
from compbench.board.verdict import Verdict

Kind = Literal["run", "ablation", "reference"]
"""`run` competes; `ablation` is the same method under other settings, in another precision, or in an older version."""


CONSTANT = "constant", "compbench-methods"
"""Name and distribution of the method that ignores the request."""
BASELINES = frozenset({CONSTANT, ("nearest", "compbench-methods"), ("additive", "compbench-methods")})
"""Methods that learn nothing: they answer with real samples of the seen data."""
USUAL = "factored", "compbench-methods"
"""Name and distribution of the method with whose number of parameters those of other networks are compared."""
NEAR = 0.15
"""Competing networks have numbers of parameters within this share of the usual one; a row says if its network has not."""


class Failure(NamedTuple):
    """Runs that ended with the same status for the same reason, by their seeds."""

    status: str
    reason: str
    seeds: tuple[int, ...]


class BoardRow(NamedTuple):
    """A method under one protocol.

    Attributes:
        variant: what distinguishes the row from others of its method: settings, version, precision.
        device: devices of its successful runs, as in "cpu" or "NVIDIA H200 and cpu"; the device with the most runs comes first.
        kind: see `Kind`.  Oracles, rows with pooled silos or other training data, and samples whose training was not observed are
            references: they do not compete.
        seeds: seeds of the successful runs.
        statuses: number of runs by status.
        scores: cells by column; a column is a score's name, or name@vN for an outdated version of its metric.
        unavailable: reasons, by column.
        primary: the section's primary column.
        codes: how many versions of the code the runs came from; a change of GPU-only code does not count for CPUs.
        older: parts of the code that differ from those of newer records (`groups.older_code`).
        newer_version: the newest version of the method that is installed or that any record has; 0 if the row has it.
        other_judge: seeds whose distances use another judge's features than those of most runs: these distances are compared in
            floors (`Cell.relative`), and the kernel distance is left out.
        threads: numbers of CPU threads that the runs had.
        unrecovered_spikes: loss spikes of its runs that did not recover, one phrase each.
        beyond: how its runs exceeded their budget or the method's declared steps, one phrase each.
        untrained: kinds of conditions that were requested but hardly trained on, one phrase each.
        uncounted: whether its runs trained a network and none of them counted on which conditions.
        size: its number of parameters divided by that of the method `USUAL` in the same section, if the row competes and the two
            differ by more than `NEAR`; otherwise 0.
        tuned: the study that chose its settings, if one study of `compbench tune` chose those of all its runs.
        records: names of the records that count.
        parts: inference-time and estimation error, where the method also ran on exact scores.
        level: verification level of its successful runs.
        training: declared training data of its runs.
        group: all settings, budget and task settings.
        pooled: whether it had the data of all silos in one place: the centralised reference.
        pooled_steps: training steps of a pooled row, in units of one silo's steps; 0 where they are not known.
        rank: rank by Holm's procedure over all pairs of competing rows, shown only in the CSV; elsewhere `may_be_best` is shown.
        may_be_best: False where another row is significantly better (`ranking.may_be_best`); None for a row that is not
            eligible, and in a section that does not rank.
        recall: mean over its seeds of the recall on the primary score's split, divided by real data's recall with the same
            judge in the same run; None where the task scores none.
        draws_means: whether `recall` is below `competition.RECALL` (one half) on a task with several pictures per condition.
            The row then has no rank and is not eligible for first.
        worse_than_constant: whether its mean is worse than the best constant answer's, which ignores the request.
        fits: the value of every seed, the median and the worst value, and how many fits failed; None without a successful run.
    """

    section: Section
    method: str
    method_version: int
    variant: str
    device: str
    precision: str
    kind: Kind
    seeds: tuple[int, ...]
    statuses: dict[str, int]
    scores: dict[str, Cell]
    unavailable: dict[str, str]
    primary: str
    timing: Timing | None
    parameters: int | None
    evaluations: int | None
    failures: tuple[Failure, ...]
    codes: int
    records: tuple[str, ...]
    group: Group
    rank: Rank | None = None
    parts: Parts | None = None
    level: str = "self-reported"
    training: str = "undeclared"
    pooled: bool = False
    pooled_steps: float = 0.0
    older: tuple[str, ...] = ()
    newer_version: int = 0
    other_judge: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    unrecovered_spikes: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    uncounted: bool = False
    size: float = 0.0
    tuned: Tuning | None = None
    may_be_best: bool | None = None
    recall: float | None = None
    draws_means: bool = False
    worse_than_constant: bool = False
    fits: Fits | None = None

    @property
    def label(self) -> str:
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def seen(self) -> Cell | None:
        """The primary score on seen combinations, if it was computed; the primary score itself if the task holds nothing out."""
        return self.scores.get(self.primary.replace("heldout", "seen"))

    @property
    def ignores_request(self) -> bool:
        """Whether this is the method that ignores the request; its records give the zero of a task's scale."""
        return (self.method, self.group.distribution) == CONSTANT

    @property
    def learns_nothing(self) -> bool:
        """Whether its samples are real samples of the seen data; its score on seen combinations then does not show learning."""
        return (self.method, self.group.distribution) in BASELINES


class Board(NamedTuple):
    """All rows, sorted by section, then by whether they may be best, then by rank.

    Attributes:
        discriminability: how well each section separates its methods, if known.
        verdicts: the verdict on each section's question, if its score has a scale.
        missing: methods that a section must have before it ranks (`families.REQUIRED`), if it lacks some.
    """

    rows: tuple[BoardRow, ...]
    discriminability: Mapping[Section, Discriminability]
    verdicts: Mapping[Section, Verdict] = {}
    missing: Mapping[Section, tuple[str, ...]] = {}


def failed_seeds(row: BoardRow) -> tuple[int, ...]:
    """Seeds whose run failed, including by timeout or lack of memory, but not runs that were stopped by hand or refused."""
    return tuple(seed for entry in row.failures if entry.status not in ("killed", "refused") for seed in entry.seeds)
