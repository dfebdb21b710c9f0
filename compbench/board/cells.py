"""One score of a row: mean over seeds, spread, interval, and whether it is a share of trials."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from compbench.api.factors import distance
from compbench.api.interfaces import CellCount, Score
from compbench.api.schemas import Record
from compbench.board.statistics import Interval, interval, mean, sample_std

PERCENT = 100.0


class Cell(NamedTuple):
    """One score of a row: mean over seeds, sample standard deviation, means of ceiling and floor.

    Only the primary score has `interval`, `even_interval` and `values` (by seed).

    Attributes:
        interval: 95 % interval of the mean.  If the task has a scale, it is widened by how far failed fits that were not
            observed could pull the mean (`statistics.reaching`).
        even_interval: 95 % interval by Student's t, which assumes that fits vary evenly; None without a scale.
        relative: mean over seeds of the score divided by the run's own floor: a distance in floors (1 is real data), or a
            precision or recall as a share of real data's.  It makes runs with different judges comparable.  None without a
            positive floor.
        trials: number of trials of each run if every value is a share of successful trials; else 0.
        by_cell: counts of correct samples in each cell of the lattice, summed over the seeds.
    """

    name: str
    split: str
    metric_version: int
    unit: str
    direction: str
    mean: float
    std: float
    num_seeds: int
    ceiling: float | None
    floor: float | None
    interval: Interval | None = None
    values: tuple[tuple[int, float], ...] = ()
    trials: int = 0
    by_cell: tuple[CellCount, ...] = ()
    even_interval: Interval | None = None
    relative: float | None = None

    @property
    def whole(self) -> float:
        """The value that means all trials: 100 for a percentage, otherwise 1."""
        return whole_of(self.unit)


def whole_of(unit: str) -> float:
    """The value that means all trials: 100 for a percentage, otherwise 1."""
    return PERCENT if unit == "%" else 1.0


def cells(ok: Sequence[Record], newest: Mapping[str, int], primary: str) -> tuple[dict[str, Cell], dict[str, str]]:
    """Cells and reasons of unavailable scores of a row's successful records, by column.

    Args:
        newest: version of each score's metric that the section compares by; older ones have columns of their own.
        primary: the section's primary column.
    """
    found: dict[str, dict[int, Score]] = defaultdict(dict)
    unavailable: dict[str, str] = {}
    for record in ok:
        for score in record.scores:
            old = score.metric_version != newest[score.name]
            column = f"{score.name}@v{score.metric_version}" if old else score.name
            if score.value is None:
                unavailable.setdefault(column, score.reason)
            else:
                found[column][record.spec.seed] = score
    made = {column: _cell(scores, primary=column == primary) for column, scores in sorted(found.items())}
    return made, {column: reason for column, reason in sorted(unavailable.items()) if column not in made}


def _cell(scores: Mapping[int, Score], *, primary: bool) -> Cell:
    by_seed = [(seed, score.value) for seed, score in scores.items() if score.value is not None]
    values = [value for _, value in by_seed]
    first, centre = next(iter(scores.values())), mean(values)
    counts = [score.by_cell for score in scores.values() if score.by_cell]
    cell = Cell(
        name=first.name,
        split=first.split,
        metric_version=first.metric_version,
        unit=first.unit,
        direction=first.direction,
        mean=centre,
        std=sample_std(values, centre),
        num_seeds=len(values),
        ceiling=known_mean([score.ceiling for score in scores.values()]),
        floor=known_mean([score.floor for score in scores.values()]),
        by_cell=together(counts) if counts else (),
        relative=relative(scores.values()),
    )
    if not primary:
        return cell
    trials = trials_of(scores.values(), cell.whole)
    found = interval([value / cell.whole for value in values], trials)
    span = found and Interval(found.low * cell.whole, found.high * cell.whole)
    return cell._replace(interval=span, values=tuple(by_seed), trials=trials)


def relative(scores: Iterable[Score]) -> float | None:
    """Mean of scores divided by their own floors; None if a floor is not positive, as it can be for an unbiased distance."""
    ratios = [
        score.value / score.floor if score.floor and score.floor > 0 else None for score in scores if score.value is not None
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    return mean(known) if known and len(known) == len(ratios) else None


def trials_of(scores: Iterable[Score], whole: float) -> int:
    """The fewest trials of any run if all values are shares of successful trials, to float32's precision; else 0."""
    fewest = 0
    for score in scores:
        if score.value is None or score.n < 1 or score.direction != "higher" or not 0 <= score.value <= whole * (1 + 1e-6):
            return 0
        successes = score.value / whole * score.n
        if abs(successes - round(successes)) > 1e-6 * score.n + 1e-6:
            return 0
        fewest = min(fewest or score.n, score.n)
    return fewest


def together(counts: Iterable[Sequence[CellCount]]) -> tuple[CellCount, ...]:
    """Counts of several runs, added: correct samples and all samples of each cell."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for count in itertools.chain.from_iterable(counts):
        right, n = found.get(count.cell, (0, 0))
        found[count.cell] = right + count.right, n + count.n
    return tuple(CellCount(cell, *both) for cell, both in sorted(found.items()))


def by_distance(heldout: Sequence[CellCount], seen: Sequence[CellCount]) -> dict[int, tuple[int, int]]:
    """(correct samples, samples) of held-out cells, by the cells' Hamming distance to the seen cells."""
    found: dict[int, tuple[int, int]] = {}
    cells = [count.cell for count in seen]
    for count in heldout if cells else ():
        away = distance(count.cell, cells)
        right, n = found.get(away, (0, 0))
        found[away] = right + count.right, n + count.n
    return dict(sorted(found.items()))


def known_mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known values; None if no value is known."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None
