"""Check the coverage of the board's intervals by simulation: `python -m experiments.interval_coverage` or run the file.

Equal and unequal methods are simulated with a few seeds each, and evaluated with the same functions that a board uses:

    coverage      how often a "95 %" interval of a row's mean contains the true mean        at least 93 %
    false         how often any two methods of a table of equal ones differ significantly   at most 5 %
    found         how often two methods that differ by a given number of run standard deviations differ significantly
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import numpy

from compbench.board.ranking import ranks, significant_pairs
from compbench.board.statistics import interval

Draw = Callable[[numpy.random.Generator, int, int], tuple[numpy.ndarray, float]]
"""(generator, rows, seeds) -> values (rows, seeds) of equal methods, and their true mean."""

TRIALS = 300


def normal(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    return 5 + rng.normal(size=(rows, seeds)) * 0.5, 5.0


def uniform(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    return rng.uniform(1, 2, size=(rows, seeds)), 1.5


def heavy(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    return 20 + rng.standard_t(5, size=(rows, seeds)), 20.0


def lognormal(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    return numpy.exp(0.2 * rng.normal(size=(rows, seeds))), math.exp(0.02)


def binomial(share: float) -> Draw:
    """Runs of `TRIALS` trials with one probability: the only error is binomial."""

    def draw(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
        return rng.binomial(TRIALS, share, size=(rows, seeds)) / TRIALS, share

    return draw


def trained(share: float, spread: float) -> Draw:
    """Each run has its own probability, beta distributed with a standard deviation, and its binomial error."""

    def draw(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
        total = share * (1 - share) / spread**2 - 1
        own = rng.beta(share * total, (1 - share) * total, size=(rows, seeds))
        return rng.binomial(TRIALS, own) / TRIALS, share

    return draw


def shared_seeds(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    """Seeds with an effect common to all methods, as a judge has; only pairing removes it."""
    return 10 + rng.normal(size=(rows, seeds)) + 3 * rng.normal(size=(1, seeds)), 10.0


def uneven(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    """Rows whose standard deviations differ, by up to a factor of three either way."""
    return 50 + rng.normal(size=(rows, seeds)) * numpy.exp(rng.uniform(-1.1, 1.1, size=(rows, 1))), 50.0


def outliers(number: int, factor: float) -> Draw:
    """`number` rows have `factor` times the standard deviation of the others."""

    def draw(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
        spread = numpy.where(numpy.arange(rows) < number, factor, 1.0)[:, None]
        return 100 + rng.normal(size=(rows, seeds)) * spread, 100.0

    return draw


alike, one_outlier, two_outliers = outliers(0, 1), outliers(1, 6), outliers(2, 10)


def at_an_end(end: float) -> Draw:
    """Shares attained near 0 or 1: half of the runs lie beyond that end and are clipped to it."""

    def draw(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
        off = abs(numpy.maximum(0.0, 0.03 * rng.normal(size=(rows, seeds))))
        return abs(end - off), abs(end - 0.03 / math.sqrt(2 * math.pi))

    return draw


def two_tasks(rng: numpy.random.Generator, rows: int, seeds: int) -> tuple[numpy.ndarray, float]:
    """Means of the shares attained on two tasks."""
    first, second = (trained(share, 0.05)(rng, rows, seeds)[0] for share in (0.4, 0.85))
    return (first + second) / 2, 0.625


LAWS: dict[str, tuple[Draw, float]] = {
    "normal": (normal, 0),
    "uniform": (uniform, 0),
    "Student's t, 5 degrees": (heavy, 0),
    "lognormal, sigma 0.2": (lognormal, 0),
    "binomial, p = 0.5": (binomial(0.5), TRIALS),
    "binomial, p = 0.03": (binomial(0.03), TRIALS),
    "beta 0.5 +- 0.05, binomial": (trained(0.5, 0.05), TRIALS),
    "beta 0.9 +- 0.03, binomial": (trained(0.9, 0.03), TRIALS),
    "share attained, about 0": (at_an_end(0.0), math.inf),
    "share attained, about 1": (at_an_end(1.0), math.inf),
    "share attained, two tasks": (two_tasks, math.inf),
    "a seed's effect on all rows": (shared_seeds, 0),
    "rows that scatter unevenly": (uneven, 0),
    "one row that scatters sixfold": (one_outlier, 0),
    "two rows that scatter tenfold": (two_outliers, 0),
}


DEPENDENT = (shared_seeds, uneven, one_outlier, two_outliers)
"""Laws whose rows are not independent draws of one law, which the estimate of coverage assumes."""


def coverage(draw: Draw, seeds: int, *, trials: float, repeats: int, seed: int = 0) -> float:
    """Share of the intervals of a row's mean that contain the true mean."""
    values, truth = draw(numpy.random.default_rng(seed), repeats, seeds)
    spans = [interval(row.tolist(), trials) for row in values]
    return sum(span is not None and span.low <= truth <= span.high for span in spans) / repeats


def false_tables(draw: Draw, rows: int, seeds: int, *, trials: float, repeats: int, seed: int = 0) -> float:
    """Share of the tables of equal methods in which any two differ significantly."""
    rng = numpy.random.default_rng(seed)
    return sum(bool(significant_pairs(_by_seed(draw(rng, rows, seeds)[0]), trials=trials)) for _ in range(repeats)) / repeats


def false_after_two_looks(draw: Draw, rows: int, first: int, more: int, *, trials: float, repeats: int, seed: int = 0) -> float:
    """Share of the tables of equal methods in which any two differ significantly after rows that may be best got `more` seeds."""
    rng = numpy.random.default_rng(seed)
    wrong = 0
    for _ in range(repeats):
        values, _ = draw(rng, rows, first + more)
        looked = ranks(_by_seed(values[:, :first]), higher=True, trials=trials)
        kept = [row if rank.best == 1 else _first(row, first) for row, rank in zip(_by_seed(values), looked, strict=True)]
        wrong += bool(significant_pairs(kept, trials=trials))
    return wrong / repeats


def _first(row: dict[int, float], seeds: int) -> dict[int, float]:
    return {seed: row[seed] for seed in range(seeds)}


def found(distance: float, rows: int, seeds: int, *, repeats: int, draw: Draw = alike, seed: int = 0) -> float:
    """Share of the tables whose last two rows differ significantly; the last is better by `distance` run standard deviations."""
    rng = numpy.random.default_rng(seed)
    hits = 0
    for _ in range(repeats):
        values, _ = draw(rng, rows, seeds)
        values[-1] += distance
        hits += (rows - 2, rows - 1) in significant_pairs(_by_seed(values))
    return hits / repeats


def _by_seed(values: numpy.ndarray) -> Sequence[dict[int, float]]:
    return [dict(enumerate(row)) for row in values.tolist()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    repeats = parser.parse_args().repeats
    print(f"{'law':32}{'n':>3}{'coverage':>10}" + "".join(f"{f'false, {rows} rows':>16}" for rows in (2, 3, 6, 12)))
    for name, (draw, trials) in LAWS.items():
        for seeds in (2, 3, 5):
            held = None if draw in DEPENDENT else coverage(draw, seeds, trials=trials, repeats=5 * repeats)
            wrong = [false_tables(draw, rows, seeds, trials=trials, repeats=repeats // (1 + rows // 6)) for rows in (2, 3, 6, 12)]
            first = "         -" if held is None else f"{held:>10.3f}"
            print(f"{name:32}{seeds:>3}{first}" + "".join(f"{share:>16.3f}" for share in wrong), flush=True)
    print("\nfalse, five seeds a row, and five more for those that these leave possibly best")
    print(f"{'law':32}" + "".join(f"{f'{rows} rows':>10}" for rows in (2, 6, 12)))
    for name, (draw, trials) in LAWS.items():
        wrong = [
            false_after_two_looks(draw, rows, 5, 5, trials=trials, repeats=repeats // (1 + rows // 6)) for rows in (2, 6, 12)
        ]
        print(f"{name:32}" + "".join(f"{share:>10.3f}" for share in wrong), flush=True)
    print("\nhow often a difference of this many standard deviations is found, also if another row scatters sixfold")
    print(f"{'rows':>6}{'n':>4}" + "".join(f"{d:>8}" for d in (2, 3, 4, 6, 10)) + "".join(f"{d:>8}" for d in (6, 10)))
    for rows in (2, 6, 12):
        for seeds in (3, 5):
            shares = [found(d, rows, seeds, repeats=200) for d in (2, 3, 4, 6, 10)]
            shares += [found(d, rows, seeds, repeats=200, draw=one_outlier) for d in (6, 10)] if rows > 2 else []
            print(f"{rows:>6}{seeds:>4}" + "".join(f"{share:>8.2f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
