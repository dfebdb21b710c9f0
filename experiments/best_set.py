"""How often the set of methods that may be best contains the true best, and how often intervals cover the mean if some fits fail.

    python experiments/best_set.py

Tables of M methods are simulated and evaluated with the same functions that a board uses:

    kept       how often `may_be_best` keeps the method with the best true mean, if one row, half of the rows, or random rows have
               up to ten times the standard deviation of the others, or if a part of the fits fails
    covered    how often `interval` and `reaching` contain the true mean if a part of the fits fails
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy

from compbench.board.ranking import may_be_best
from compbench.board.statistics import interval, reaching

Table = Callable[[numpy.random.Generator, int, int], tuple[numpy.ndarray, int]]
"""A function: (generator, rows, seeds) -> values (rows, seeds), higher is better, and the row with the best true mean."""


def scattered(spreads: Callable[[numpy.random.Generator, int], numpy.ndarray], lead: float) -> Table:
    """Normal rows, each with its own standard deviation; the best mean exceeds the others, which are equal, by `lead`."""

    def draw(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, int]:
        best = int(rng.integers(rows))
        means = numpy.where(numpy.arange(rows) == best, lead, 0.0)[:, None]
        return means + rng.normal(size=(rows, seeds)) * spreads(rng, rows)[:, None], best

    return draw


def two_kinds(failing: float, lead: float) -> Table:
    """A share `failing` of the fits of each row fails and attains a fifth of what the others attain."""

    def draw(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, int]:
        best = int(rng.integers(rows))
        good = numpy.where(numpy.arange(rows) == best, 0.8 + lead, 0.8)[:, None] + 0.02 * rng.normal(size=(rows, seeds))
        return numpy.where(rng.random((rows, seeds)) < failing, good / 5, good), best

    return draw


def best_scatters(rng: numpy.random.Generator, rows: int) -> numpy.ndarray:
    return numpy.where(rng.permutation(rows) == 0, 10.0, 1.0)


def half_scatter(rng: numpy.random.Generator, rows: int) -> numpy.ndarray:
    return numpy.where(rng.permutation(rows) < rows // 2, 10.0, 1.0)


def any_scatter(rng: numpy.random.Generator, rows: int) -> numpy.ndarray:
    return 10 ** rng.uniform(0, 1, size=rows)


LAWS: dict[str, Table] = {
    "all scatter alike": scattered(lambda rng, rows: numpy.ones(rows), 0.1),
    "one row scatters tenfold": scattered(best_scatters, 0.1),
    "half scatter tenfold": scattered(half_scatter, 0.1),
    "spreads from 1 to 10": scattered(any_scatter, 0.1),
    "a third of the fits fails": two_kinds(1 / 3, 0.01),
    "a tenth of the fits fails": two_kinds(0.1, 0.01),
}


def kept(law: str, rows: int, seeds: int, *, repeats: int, seed: int = 0) -> tuple[float, float]:
    """(share of tables whose set keeps the true best, mean size of the set)."""
    rng = numpy.random.default_rng(seed)
    hits = size = 0
    for _ in range(repeats):
        values, best = LAWS[law](rng, rows, seeds)
        found = may_be_best([dict(enumerate(row)) for row in values.tolist()], higher=True, law="as they are")
        hits += found[best]
        size += sum(found)
    return hits / repeats, size / repeats


def covered(failing: float, seeds: int, *, poor: float, repeats: int, seed: int = 0) -> float:
    """Share of the intervals that contain the true mean: fits attain 0.9 +- 0.02, a share `failing` of them `poor` +- 0.02."""
    rng = numpy.random.default_rng(seed)
    fails = rng.random((repeats, seeds)) < failing
    values = numpy.where(fails, poor, 0.9) + 0.02 * rng.normal(size=(repeats, seeds))
    truth = failing * poor + (1 - failing) * 0.9
    hits = 0
    for row in values.tolist():
        even = interval(row)
        assert even is not None
        span = reaching(even, sum(row) / seeds, seeds, 0.0)
        hits += span.low <= truth <= span.high
    return hits / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    asked = parser.parse_args()
    print("kept (mean size of the set)")
    for law in LAWS:
        for rows in (3, 11, 23):
            cells = [kept(law, rows, seeds, repeats=asked.repeats) for seeds in (3, 5)]
            print(f"  {law}, {rows} rows: " + ", ".join(f"{share:.3f} ({size:.1f})" for share, size in cells))
    print("covered at 3, 5 and 10 seeds")
    for failing in (0.0, 0.1, 0.2, 1 / 3):
        for poor in (0.0, 0.2, 0.6):
            cells = [covered(failing, seeds, poor=poor, repeats=10 * asked.repeats) for seeds in (3, 5, 10)]
            print(f"  {failing:.0%} fail at {poor}: " + ", ".join(f"{share:.3f}" for share in cells))


if __name__ == "__main__":
    main()
