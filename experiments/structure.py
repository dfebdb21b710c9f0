"""Does the structure of hidden activations predict composition?  It is plotted against the share attained on held-out cells.

    compbench sweep --method 'factored,mono,slice-cfg,cfg,dit,cross-attention' --task 'dsprites-*,shapes3d-*' --seed 0-4
    python experiments/structure.py                                       the correlations
    python experiments/structure.py --out structure.svg                   and the figure

A point is an image run whose record has a structure (docs/hidden_structure.md; older records have none) and whose task has a
scale. R2 and cosine are measured on seen cells only, the share on held-out ones. The correlation is Spearman's, over all runs and
within tasks (of each run's deviations from its task's means at its preset). Its 95 % interval is a bootstrap over pairs of method
and task, because seeds of one method are not independent.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from results_svg import COLOURS, Dot, Scatter, scatters

from compbench.api.schemas import Record
from compbench.board.scale import Scale, zero_of
from compbench.registry.registry import Registry
from compbench.store.records import Store, read_records
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

FEWEST = 10
"""Smallest number of pairs of method and task for which a correlation is computed."""
DRAWS = 2000
SEEDS_MARKED = "dsprites-light"
"""One method's seeds differ most on this task (0.28, 0.64 and 0.79 of held-out pairs), so the figure names them."""


class Run(NamedTuple):
    """A run: its share of the way to real data on held-out cells, and the structure of its network."""

    task: str
    method: str
    seed: int
    share: float
    r2: float | None
    cosine: float | None
    preset: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.method, self.task


class Correlation(NamedTuple):
    """Spearman's correlation, with its bootstrap interval."""

    value: float
    low: float
    high: float
    num_runs: int
    num_pairs: int


def runs(folder: Path) -> list[Run]:
    """The image runs of a folder of records that have a structure and a share, sorted.

    Raises:
        CompbenchError: there is no such folder.
    """
    if not folder.is_dir():
        raise CompbenchError(f"there are no records in {folder}; `compbench run` writes some.")
    records, problems = read_records(Store(folder).paths())
    for name, why in problems:
        print(f"left out: {name} {why}")
    return of_records(records)


def of_records(records: Iterable[Record]) -> list[Run]:
    """The image runs among some records that have a structure and a share, sorted."""
    return sorted(found for record in records if (found := _run(record)) is not None)


def _run(record: Record) -> Run | None:
    score = next((score for score in record.scores if score.primary and score.split == "heldout"), None)
    if record.status != "ok" or record.structure is None or record.shots or score is None or score.value is None:
        return None
    zero = zero_of(record, score)
    if score.direction != "higher" or score.ceiling is None or zero is None or score.ceiling <= zero:
        return None
    if Registry().load("tasks", record.spec.task).event.kind != "image":
        return None
    share, found = Scale(zero, score.ceiling).share(score.value), record.structure
    return Run(record.spec.task, record.spec.method, record.spec.seed, share, found.r2, found.cosine, record.spec.preset)


VALUES: tuple[tuple[str, Callable[[Run], float | None]], ...] = (("R2", lambda run: run.r2), ("cosine", lambda run: run.cosine))
"""The two numbers of a network's structure, by name."""
Points = Sequence[tuple[tuple[str, str], float, float]]
"""(method and task, structure, share) of each run."""


def points(found: Sequence[Run], of: Callable[[Run], float | None], *, within: bool = False) -> Points:
    """The runs that have a value; `within` tasks, both numbers are deviations from the means of their task at their preset."""
    known = [(run, value) for run in found if (value := of(run)) is not None]
    if not within:
        return [(run.pair, value, run.share) for run, value in known]
    tasks: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for run, value in known:
        tasks[run.task, run.preset].append((value, run.share))
    means = {place: tuple(map(fmean, zip(*own, strict=True))) for place, own in tasks.items()}
    centred = [(run, value, means[run.task, run.preset]) for run, value in known]
    return [(run.pair, value - centre[0], run.share - centre[1]) for run, value, centre in centred]


def correlation(known: Points, seed: int = 0) -> Correlation:
    """Spearman's correlation of structure and share.

    Raises:
        CompbenchError: too few pairs of method and task, or one of the two numbers never differs.
    """
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for pair, value, share in known:
        pairs[pair].append((value, share))
    if len(pairs) < FEWEST:
        raise CompbenchError(
            f"{len(pairs)} pairs of method and task have a structure and a share, but a correlation needs {FEWEST}: "
            "records of runs from before record format 12 have no structure, so run some again."
        )
    groups, chance = [pairs[pair] for pair in sorted(pairs)], random.Random(seed)
    value = _spearman([point for group in groups for point in group])
    if value is None:
        raise CompbenchError("all runs have the same structure or the same share, so there is no correlation.")
    drawn = (_spearman([point for group in chance.choices(groups, k=len(groups)) for point in group]) for _ in range(DRAWS))
    ordered = sorted(one for one in drawn if one is not None)
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.025, 0.975))
    return Correlation(value, low, high, len(known), len(groups))


def _spearman(values: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's correlation of ranks, with ties at their mean rank; None if all values of one side are equal."""
    import numpy
    from scipy.stats import rankdata

    one, other = (rankdata(side) - (len(values) + 1) / 2 for side in zip(*values, strict=True))
    spread = float(numpy.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / spread if spread else None


def figure(found: Sequence[Run], said: Sequence[str] = ("", "")) -> str:
    """R2 and cosine against the share, as SVG: each task has a colour; only runs of dSprites have their names next to them."""
    colours = dict(zip(sorted({run.task for run in found}), cycle(COLOURS)))
    plots = []
    for (name, of), words in zip(VALUES, said, strict=True):
        known = [(run, value) for run in found if (value := of(run)) is not None]
        dots = [
            Dot(value, run.share, f"{run.method} {run.seed}", colours[run.task], named=run.task == SEEDS_MARKED)
            for run, value in known
        ]
        plots.append(Scatter(words or name, f"{name}, seen cells", "share attained, unseen", tuple(dots)))
    return scatters(plots, len(plots), list(colours.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Home.of_user().records)
    parser.add_argument("--out", type=Path, help="picture, SVG")
    asked = parser.parse_args()
    try:
        found, titles = runs(asked.records), []
        for name, of in VALUES:
            for how, within in (("over all runs", False), ("within tasks", True)):
                one = correlation(points(found, of, within=within))
                print(
                    f"{name} and share {how}: Spearman {one.value:+.2f} (95 % {one.low:+.2f} to {one.high:+.2f}), "
                    f"{one.num_runs} runs of {one.num_pairs} pairs of method and task"
                )
                titles += [] if within else [f"Spearman {one.value:+.2f} ({one.low:+.2f} to {one.high:+.2f})"]
    except CompbenchError as error:
        parser.error(str(error))
    if asked.out:
        asked.out.write_text(figure(found, titles), "utf-8")


if __name__ == "__main__":
    main()
