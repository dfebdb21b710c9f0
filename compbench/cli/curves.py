"""Print the loss curves of a record: a line of bars, the first and the last loss, and the speed."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compbench.api.schemas import LossCurve

BARS = "▁▂▃▄▅▆▇█"
WIDEST = 32
"""Largest number of bars in a line."""
MOST_LINES = 4
"""Number of curves that are drawn unless all are requested."""


def lines(curves: Sequence[LossCurve], *, whole: bool = False) -> Iterator[str]:
    """One line per curve: its name, bars from the lowest loss to the highest, first and last loss, and examples per second."""
    shown = curves if whole else curves[:MOST_LINES]
    for curve in shown:
        bars = f"{sparkline(curve.loss)} " if len(curve.loss) > 1 and _has_bars() else ""
        first, last = (f"{curve.loss[k]:.4g} at step {curve.steps[k]}" for k in (0, -1))
        course = f"{first}, {last}" if len(curve.loss) > 1 else first
        yield f"{curve.name}: {bars}{course}; {statistics.median(curve.examples_per_second):.0f} examples/s"
    if len(curves) > len(shown):
        yield f"and {len(curves) - len(shown)} more (--verbose)"


def sparkline(values: Sequence[float], width: int = WIDEST) -> str:
    """Values as bars of eight heights, from the lowest to the highest; more values than `width` are averaged in groups.

    Heights are logarithmic if all values are positive, because a loss falls by factors, and mostly at the start.
    """
    count = min(width, len(values))
    edges = [round(k * len(values) / count) for k in range(count + 1)]
    means = [statistics.fmean(values[start:end]) for start, end in pairwise(edges)]
    if min(means) > 0:
        means = [math.log(value) for value in means]
    low, high = min(means), max(means)
    top = len(BARS) - 1
    return "".join(BARS[round(top * (value - low) / (high - low)) if high > low else 0] for value in means)


def _has_bars() -> bool:
    """Return whether the output can show bars."""
    try:
        BARS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
