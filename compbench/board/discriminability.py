"""How well a task separates methods: the variance between methods as a share of the variance of single runs.

With M methods at the same n seeds, MS_m the mean square between methods and MS_e the residual mean square of the additive model
method + seed,

    F = MS_m / MS_e        share = (F - 1) / (F + n - 1)

which is the intraclass correlation ICC(C,1) (McGraw & Wong 1996); its interval divides and multiplies F by quantiles of
Fisher's F.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from compbench.board.ranking import BySeed, stabilised
from compbench.board.statistics import CONFIDENCE, f_quantile, mean

LEAST = 0.5
"""A task below this share does not rank, because runs vary more by seed than by method."""


class Discriminability(NamedTuple):
    """The share, its 95 % interval, and the numbers of methods and seeds behind them."""

    share: float
    low: float
    high: float
    num_methods: int
    num_seeds: int

    @property
    def ranks(self) -> bool:
        return self.share >= LEAST


def discriminability(rows: Sequence[BySeed], *, trials: int = 0) -> Discriminability | None:
    """Compute the share from values by method and seed, on the scale on which methods are ranked.

    Args:
        rows: values by seed, one row per method; a row counts if it has every seed that more than half of the rows have.
        trials: number of trials of each run if values are shares of trials; else 0.

    Returns:
        the share with its interval; None with fewer than two methods or two seeds.
    """
    counted = Counter(seed for row in rows for seed in row)
    seeds = sorted(seed for seed, times in counted.items() if 2 * times > len(rows))
    complete = [[row[seed] for seed in seeds] for row in stabilised(rows, trials=trials) if all(seed in row for seed in seeds)]
    m, n = len(complete), len(seeds)
    if m < 2 or n < 2:
        return None
    by_row, by_seed = [mean(row) for row in complete], [mean(column) for column in zip(*complete, strict=True)]
    centre = mean(by_row)
    between = n * sum((value - centre) ** 2 for value in by_row) / (m - 1)
    residual = sum((complete[i][s] - by_row[i] - by_seed[s] + centre) ** 2 for i in range(m) for s in range(n))
    residual = max(residual / ((m - 1) * (n - 1)), 1 / (4 * trials) if trials else 0.0)
    if residual == 0:
        share = 1.0 if between > 0 else 0.0
        return Discriminability(share, share, share, m, n)
    ratio, above, below = between / residual, m - 1, (m - 1) * (n - 1)
    high = (1 + CONFIDENCE) / 2
    ends = ratio / f_quantile(above, below, high), ratio * f_quantile(below, above, high)
    share, first, last = (min(1.0, max(0.0, (f - 1) / (f + n - 1))) for f in (ratio, *ends))
    return Discriminability(share, first, last, m, n)
