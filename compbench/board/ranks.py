"""Ranks of values with intervals: the rank of the mean, and the range that the intervals leave open."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from compbench.board.statistics import Interval


class Rank(NamedTuple):
    """1 is best; equal means share a rank.  The true rank lies in [best, worst] as far as the intervals tell."""

    rank: int
    best: int
    worst: int


def ranks(means: Sequence[float], intervals: Sequence[Interval | None], *, higher: bool) -> list[Rank]:
    """Rank each entry among all.

    A pair is told apart when both intervals exist and do not overlap; one seed has no interval, so its range is open.

    Args:
        means: one an entry.
        intervals: of the means; None where there is none.
        higher: whether higher is better.
    """
    sign = 1.0 if higher else -1.0
    signed = [sign * value for value in means]  # higher is better from here on
    spans = [None if i is None else sorted((sign * i.low, sign * i.high)) for i in intervals]
    ordered = sorted(signed)
    lows, highs = (sorted(span[side] for span in spans if span is not None) for side in (0, 1))
    return [
        Rank(
            rank=1 + len(ordered) - bisect_right(ordered, value),
            best=1 if span is None else 1 + len(lows) - bisect_right(lows, span[1]),
            worst=len(ordered) if span is None else len(ordered) - bisect_left(highs, span[0]),
        )
        for value, span in zip(signed, spans, strict=True)
    ]
