"""How many seeds a family needs until at most three ranks are open for its best method, projected from published records.

    python experiments/seeds_needed.py leaderboards/records

The ranked methods of a family are resampled with more seeds and ranked with the same functions that a board uses.  A drawn seed
is Gaussian with the means mu (M,) and the sample covariance of the k existing seeds, so that effects of a seed that are common to
methods are kept, and it is clipped to the range of a share:

    x = mu + sum_i (x_i - mu) g_i / sqrt(k - 1)          g_i ~ N(0, 1), x_i the shares (M,) of seed i

The observed means are taken as the true means.  Truly equal methods would need more seeds, and no number would separate them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy

from compbench.api.context import PRESETS
from compbench.board.build import tables
from compbench.board.families import Family
from compbench.board.ranking import Rank, ranks
from compbench.board.site import read
from compbench.system.home import Home

SEEDS = (3, 5, 10, 20, 40, 80)
WIDTH = 3
"""Largest number of ranks that may be open for the best method."""


def shares(family: Family) -> tuple[list[str], numpy.ndarray]:
    """Names of the ranked methods (M), the board's best first, and their shares (M, k) by the k seeds that all of them have."""
    ranked = sorted(
        (found.rank.rank, name, dict(found.shares)) for (name, _), found in family.standings.items() if found.rank is not None
    )
    common = sorted(set.intersection(*(set(own) for _, _, own in ranked))) if ranked else []
    return [name for _, name, _ in ranked], numpy.array([[own[seed] for seed in common] for _, _, own in ranked])


def drawn(found: numpy.ndarray, num_seeds: int, rng: numpy.random.Generator) -> numpy.ndarray:
    """Shares (M, num_seeds) drawn with the means and the covariance of the observed shares (M, k), k >= 2."""
    centre = found.mean(axis=1, keepdims=True)
    parts = (found - centre) / math.sqrt(found.shape[1] - 1)
    values: numpy.ndarray = centre + parts @ rng.normal(size=(found.shape[1], num_seeds))
    return values.clip(0.0, 1.0)


def widths(found: numpy.ndarray, num_seeds: int, *, repeats: int, seed: int = 0) -> list[int]:
    """Number of ranks that are open for the first method in each of `repeats` drawn tables."""
    rng = numpy.random.default_rng(seed)
    made = (drawn(found, num_seeds, rng).tolist() for _ in range(repeats))
    return [_width(ranks([dict(enumerate(row)) for row in table], higher=True, trials=math.inf)[0]) for table in made]


def _width(rank: Rank) -> int:
    return rank.worst - rank.best + 1


def families(folder: Path, preset: str) -> Sequence[Family]:
    """The families of a folder's records at a preset, as the board has them."""
    _, found = tables(read(folder, folder)[0])
    return [family for contest in found if contest.preset == preset for family in contest.families]


def _line(family: Family, repeats: int) -> str:
    """The family's line of the table; if the methods have fewer than two common seeds, the line says so."""
    names, found = shares(family)
    if len(names) < 2 or found.shape[1] < 2:
        return f"{family.name:10}{len(names):>5}  nothing to compare: two methods need two seeds in common"
    now = min(standing.rank for standing in family.standings.values() if standing.rank is not None)
    many = [widths(found, count, repeats=repeats) for count in SEEDS]
    cells = [f"{median(own):.0f}, {sum(width <= WIDTH for width in own) / len(own):.0%}" for own in many]
    start = f"{family.name:10}{len(names):>5}{found.shape[1]:>6}{_width(now):>5}"
    return start + "".join(f"{cell:>10}" for cell in cells) + f"  {names[0]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="records; default: those of COMPBENCH_HOME")
    parser.add_argument("--preset", choices=PRESETS, default="standard")
    parser.add_argument("--repeats", type=int, default=200, help="drawn tables per family and number of seeds")
    arguments = parser.parse_args()
    folder = arguments.folder or Home.of_user().records
    found = families(folder, arguments.preset)
    if not found:
        parser.error(
            f"no record of a core task at {arguments.preset} in {folder}; name a folder of records, such as leaderboards/records."
        )
    print(f"ranks left open for a family's best method: now, then by number of seeds the median and how often at most {WIDTH}")
    print(f"{'family':10}{'rows':>5}{'seeds':>6}{'now':>5}" + "".join(f"{count:>10}" for count in SEEDS) + "  best")
    for family in found:
        print(_line(family, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
