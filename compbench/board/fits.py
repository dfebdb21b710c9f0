"""The fits of one row: every seed's value, the median and the worst value, and how many fits failed.

A method may succeed with one seed and fail with the next.  A mean over both kinds of fits describes neither, so the board shows
the values next to the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from compbench.board.scale import Scale

GOOD = 0.5
"""Share attained that a row's best fit must have before another fit of the row can be called failed."""
FAILED = 0.5
"""A fit failed if it attained less than this part of the share that the row's best fit attained."""


class Fits(NamedTuple):
    """The share that each fit of a row attained.

    Attributes:
        values: the primary score of each seed, as (seed, value), in the score's own unit.
        shares: the same on the task's scale (0 the best constant answer, 1 real data); () if the task has no scale.
        median, worst: of the values; the worst is the largest value if lower is better.
        num_failed: fits that ended without a score, and fits that attained less than half of the share of the row's best fit
            if that share is at least one half.
        num_fits: number of all fits.
    """

    values: tuple[tuple[int, float], ...]
    shares: tuple[tuple[int, float], ...]
    median: float
    worst: float
    num_failed: int
    num_fits: int

    @property
    def words(self) -> str:
        """A phrase such as "1 of 3 fits failed"; "" if none failed."""
        return f"{self.num_failed} of {self.num_fits} fits failed" if self.num_failed else ""


def fits_of(values: Mapping[int, float], *, higher: bool, scale: Scale | None, crashed: Sequence[int] = ()) -> Fits | None:
    """The fits of a row; None if it has no value.

    Args:
        values: primary score by seed.
        higher: whether higher is better.
        scale: scale of the task; without one, only fits that ended without a score count as failed.
        crashed: seeds whose run ended without a score.
    """
    if not values:
        return None
    shares = {seed: scale.share(value) for seed, value in values.items()} if scale else {}
    best = max(shares.values(), default=0.0)
    poor = sum(share < FAILED * best for share in shares.values()) if best >= GOOD else 0
    worst = min(values.values()) if higher else max(values.values())
    lost = set(crashed) - values.keys()
    return Fits(
        tuple(sorted(values.items())),
        tuple(sorted(shares.items())),
        median(values.values()),
        worst,
        poor + len(lost),
        len(values) + len(lost),
    )
