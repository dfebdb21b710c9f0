"""Ranks of the rows of a table: which rows differ significantly over the seeds, and which ranks that leaves open.

Runs of one seed share data order, noise and judge, so two rows are compared by their differences at equal seeds, by a t test
with n - 1 degrees of freedom.  Three seeds alone say little about a difference's variance, so the estimate borrows from the
table's other pairs as far as these agree (the moderated t of Smyth 2004).  With s_p^2 the variance of pair p on d_p degrees of
freedom,

    s~_p^2 = (d_0 s_0^2 + d_p s_p^2) / (d_0 + d_p)        t_p = mean difference / (s~_p / sqrt(n)) on d_0 + d_p degrees

d_0 and s_0^2 are the parameters of a scaled inverse chi-squared distribution that is fitted to the table's variances: d_0 is
large if all rows have about the same variance, and near 0 if they do not.  Holm's correction holds the whole table at 5 %.

Before the test, shares are transformed to arcsin sqrt(p), which stabilises their variance near 0 and 1; with n trials, their
binomial variance 1 / 4n is a lower bound of a run's variance.  Positive scores without an upper bound, such as distances, are
replaced by their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from compbench.board.statistics import CONFIDENCE, digamma, holm, mean, p_value, sample_std, trigamma

SAME = 1e-9
"""Means with a smaller relative difference count as equal, so that float noise does not decide a rank."""

BySeed = Mapping[int, float]
PValues = dict[tuple[int, int], float]
"""A p value for each pair of rows (i, j), i < j."""

Law = Literal["by value", "as they are"]
"""Values are compared after `stabilised`, or unchanged (shares attained, which can leave [0, 1])."""


class Rank(NamedTuple):
    """1 is best; equal means share a rank.

    Attributes:
        best, worst: the ranks that the comparisons leave open.
        group: number of the row's group; rows of one group do not differ significantly.
    """

    rank: int
    best: int
    worst: int
    group: int


class Pair(NamedTuple):
    """Differences of two rows at equal seeds: their number, mean, variance, and the least variance that they can have."""

    num_seeds: int
    difference: float
    variance: float
    least: float


class Prior(NamedTuple):
    """The distribution of a table's variances: `degrees` d_0 (infinite if they all look equal) and `variance` s_0^2."""

    degrees: float
    variance: float


def ranks(rows: Sequence[BySeed], *, higher: bool, trials: float = 0, law: Law = "by value") -> list[Rank]:
    """Rank each row among all.

    Args:
        rows: values by seed, at least one row; a row's mean is over all of its seeds.
        higher: whether higher is better.
        trials: number of trials of each run if values are shares of trials; math.inf for other shares, which have no binomial
            error; else 0.
        law: see `Law`.
    """
    return ranks_and_best(rows, higher=higher, trials=trials, law=law)[0]


def ranks_and_best(
    rows: Sequence[BySeed], *, higher: bool, trials: float = 0, law: Law = "by value"
) -> tuple[list[Rank], list[bool]]:
    """The results of `ranks` and `may_be_best` for these rows; each pair is tested only once."""
    found = p_values(rows, trials=trials, law=law)
    changed = stabilised(rows, trials=trials, law=law)
    return _ranks(rows, changed, found, higher=higher), _may_be_best(changed, found, higher=higher)


def _ranks(rows: Sequence[BySeed], changed: Sequence[BySeed], found: PValues, *, higher: bool) -> list[Rank]:
    sign = 1.0 if higher else -1.0
    means = [sign * mean(list(row.values())) for row in rows]
    better, worse = [0] * len(rows), [0] * len(rows)
    apart = _significant(found)
    for i, j in apart:
        first, second = (i, j) if sign * _ahead(changed[i], changed[j]) > 0 else (j, i)
        worse[first] += 1
        better[second] += 1
    places = [1 + sum(_clearly_above(other, own) for other in means) for own in means]
    groups = _groups(places, apart)
    return [
        Rank(place, 1 + ahead, len(rows) - behind, group)
        for place, ahead, behind, group in zip(places, better, worse, groups, strict=True)
    ]


def significant_pairs(rows: Sequence[BySeed], *, trials: float = 0, law: Law = "by value") -> set[tuple[int, int]]:
    """Pairs of rows that differ significantly, as positions (i, j), i < j; if all rows are equal, 95 % of tables have no pair."""
    return _significant(p_values(rows, trials=trials, law=law))


def _significant(found: PValues) -> set[tuple[int, int]]:
    return {place for place, falls in zip(found, holm(list(found.values())), strict=True) if falls}


def may_be_best(rows: Sequence[BySeed], *, higher: bool, trials: float = 0, law: Law = "by value") -> list[bool]:
    """Which rows may be the best: a set that contains the true best (subset selection, as in Hsu's comparisons with the best).

    A row leaves the set if some other row is better at one-sided 0.05 / (M - 1), by the moderated test of `p_values`: each
    row takes part in only M - 1 comparisons, so this needs less evidence than the ranks, which compare all M (M - 1) / 2 pairs.
    With three seeds and spreads of up to 10 : 1 the set contains the true best in at least 93 % of simulated tables
    (`experiments/best_set.py`).  A row cannot exclude another with which it has fewer than two seeds in common.

    Args:
        rows, trials, law: as for `p_values`.
        higher: whether higher is better.
    """
    return ranks_and_best(rows, higher=higher, trials=trials, law=law)[1]


def _may_be_best(changed: Sequence[BySeed], found: PValues, *, higher: bool) -> list[bool]:
    sign = 1.0 if higher else -1.0
    kept = [True] * len(changed)
    for (i, j), p in found.items():
        if p / 2 <= (1 - CONFIDENCE) / (len(changed) - 1):
            kept[j if sign * _ahead(changed[i], changed[j]) > 0 else i] = False
    return kept


def _ahead(one: BySeed, other: BySeed) -> float:
    """Sum of the differences at common seeds, which are what is tested; means over all seeds may differ the other way."""
    return sum(one[seed] - other[seed] for seed in one.keys() & other.keys())


def p_values(rows: Sequence[BySeed], *, trials: float = 0, law: Law = "by value") -> PValues:
    """Uncorrected p values of the moderated test, for pairs of rows (i, j), i < j, with two common seeds."""
    least = 1 / (4 * trials) if trials else 0.0
    changed = stabilised(rows, trials=trials, law=law)
    pairs = {
        (i, j): pair for i, j in combinations(range(len(rows)), 2) if (pair := _pair(changed[i], changed[j], least)) is not None
    }
    prior = _prior(list(pairs.values()), rows)
    return {place: _p_value(pair, prior) for place, pair in pairs.items()}


def stabilised(rows: Sequence[BySeed], *, trials: float = 0, law: Law = "by value") -> list[dict[int, float]]:
    """Values on a variance-stabilising scale: arcsin sqrt of shares, log of positive scores, otherwise unchanged."""
    if law == "as they are":
        return [dict(row) for row in rows]
    if trials:
        return [{seed: math.asin(math.sqrt(min(1.0, max(0.0, value)))) for seed, value in row.items()} for row in rows]
    if all(value > 0 for row in rows for value in row.values()):
        return [{seed: math.log(value) for seed, value in row.items()} for row in rows]
    return [dict(row) for row in rows]


def _clearly_above(one: float, other: float) -> bool:
    return one - other > SAME * max(abs(one), abs(other))


def _groups(places: Sequence[int], apart: set[tuple[int, int]]) -> list[int]:
    """From the best row down: a group holds its first row and each later row that differs significantly from none in it."""
    groups = [0] * len(places)
    order = sorted(range(len(places)), key=lambda row: (places[row], row))
    while left := [row for row in order if not groups[row]]:
        number = 1 + max(groups)
        members: list[int] = []
        for row in left:
            if not any((min(row, other), max(row, other)) in apart for other in members):
                groups[row] = number
                members.append(row)
    return groups


def _pair(one: BySeed, other: BySeed, least: float) -> Pair | None:
    """The pair's differences; None with fewer than two seeds in common."""
    seeds = sorted(one.keys() & other.keys())
    if len(seeds) < 2:
        return None
    differences = [one[seed] - other[seed] for seed in seeds]
    return Pair(len(seeds), mean(differences), sample_std(differences) ** 2, 2 * least)


def _p_value(pair: Pair, prior: Prior) -> float:
    """Two-sided p value of "the rows are equal"."""
    own = pair.num_seeds - 1
    degrees = own + prior.degrees
    variance = pair.variance if not prior.degrees else (own * pair.variance + prior.degrees * prior.variance) / degrees
    variance = max(variance, pair.least)
    return p_value(pair.difference, variance, pair.num_seeds, degrees)


def _prior(pairs: Sequence[Pair], rows: Sequence[BySeed]) -> Prior:
    """Fit d_0 and s_0^2 by the moments of the log variances, as in Smyth 2004, section 6.2.

    The spread of the log variances beyond that of chi-squared gives d_0.  The pairs of M rows are not independent, so d_0 is at
    most the degrees of freedom of the rows' residuals, and it is multiplied by (M - 2) / M, which keeps tables of three and four
    rows at 5 % (`experiments/interval_coverage.py`).
    """
    known = [pair for pair in pairs if pair.variance > 0]
    if len(rows) < 3 or len(known) < 2:
        return Prior(0.0, 0.0)
    degrees = [pair.num_seeds - 1 for pair in known]
    logs = [math.log(pair.variance) - digamma(d / 2) + math.log(d / 2) for pair, d in zip(known, degrees, strict=True)]
    excess = sample_std(logs) ** 2 - mean([trigamma(d / 2) for d in degrees])
    own = sorted(len(row) - 1 for row in rows)
    most = sum(own[:-1]) - min(degrees)
    counted = (len(rows) - 2) / len(rows)
    if excess <= 0 or 2 * _trigamma_inverse(excess) >= most:
        return Prior(counted * most, sum(d * p.variance for d, p in zip(degrees, known, strict=True)) / sum(degrees))
    prior = 2 * _trigamma_inverse(excess)
    return Prior(counted * prior, math.exp(mean(logs) + digamma(prior / 2) - math.log(prior / 2)))


def _trigamma_inverse(value: float) -> float:
    """x with trigamma(x) = value > 0, by bisection of the falling function."""
    low, high = 1e-8, 1e8
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
