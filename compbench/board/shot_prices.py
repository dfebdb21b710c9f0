"""What is zero-shot worth?  Held-out scores over shots, and the shots at which a method without composition catches up.

With u(n) = log2(1 + n), r_s the reference's score at seed s, linear in u between the shots that were run, and m_s the method's at
zero shots, all scores read so that higher is better:

    worth = the smallest n with  mean_s (r_s(u(n)) - m_s) >= 0

The interval of `worth` reaches from the first n at which the 95 % interval of that mean, paired by seed
(`comparison.paired_interval`), is not wholly below 0, to the first n at which no part of it is.  The method and the reference
have the same budget, and the shots of a cell are drawn as often as a seen cell's examples (`compbench.api.shots`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from compbench.api.shots import SETTING
from compbench.board.comparison import paired_interval
from compbench.board.groups import Section
from compbench.board.row import BoardRow
from compbench.board.statistics import Interval, mean

REFERENCE = "mono"
"""The reference that converts a score to a number of examples: one network for whole conditions, with no rule of composition."""
STEPS = 200
"""Between two numbers of shots, the ends of the interval are searched at this many points and interpolated linearly."""

Curve = Mapping[int, BoardRow]
"""A method's rows by their number of shots, increasing."""


class Worth(NamedTuple):
    """How many examples of each held-out cell composition without examples is worth.

    Attributes:
        shots: number of shots at which the reference reaches the score; None if no number that was run is enough.
        interval: None for fewer than two common seeds; its high end is None if the reference may never reach the score.
        num_seeds: number of common seeds.
    """

    shots: float | None
    interval: tuple[float, float | None] | None
    num_seeds: int


class Prices(NamedTuple):
    """All curves of one task under one protocol.

    Attributes:
        section: the section of the zero-shot rows.
        curves: curve of each method that was run with shots or has a worth, by the method's label.
        worths: worth of each method that was run at zero shots, against the reference; {} without the reference.
        most: largest number of shots that the reference was run with.
    """

    section: Section
    curves: Mapping[str, Curve]
    worths: Mapping[str, Worth]
    most: int


def prices(rows: Sequence[BoardRow]) -> tuple[Prices, ...]:
    """The curves of a board's rows, by task; a task that was never run with shots has none."""
    found: dict[Section, dict[tuple[object, ...], dict[int, BoardRow]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.primary in row.scores and row.kind != "reference":
            count, section = _shots_of(row.section)
            found[section][row.group.without_task][count] = row
    made = []
    for section in sorted(found, key=lambda section: section.place):
        curves = [dict(sorted(curve.items())) for curve in found[section].values()]
        if any(max(curve) for curve in curves):
            made.append(_prices(section, curves))
    return tuple(made)


def _prices(section: Section, curves: Sequence[Curve]) -> Prices:
    named = {curve[min(curve)].label: curve for curve in curves}
    reference = max((curve for curve in curves if curve[min(curve)].method == REFERENCE), key=_size, default={})
    most = max(reference, default=0)
    worths = {}
    if len(reference) > 1 and 0 in reference:
        worths = {
            name: found
            for name, curve in sorted(named.items())
            if curve is not reference and 0 in curve and (found := worth(curve[0], reference)) is not None
        }
    shown = {name: curve for name, curve in sorted(named.items()) if max(curve) or name in worths}
    return Prices(section, shown, worths, most)


def _size(curve: Curve) -> tuple[bool, int, int]:
    """Sort key of the reference's curves: default settings first, then most shots, then most seeds."""
    return all(row.kind == "run" for row in curve.values()), len(curve), sum(len(row.seeds) for row in curve.values())


def _shots_of(section: Section) -> tuple[int, Section]:
    """The number of shots of a section, and the section without them."""
    words = [word for word in section.changed if word.startswith(f"{SETTING}=")]
    count = int(words[0].partition("=")[2]) if words and words[0].partition("=")[2].isdecimal() else 0
    return count, section._replace(changed=tuple(word for word in section.changed if word not in words)) if count else section


def worth(row: BoardRow, reference: Curve) -> Worth | None:
    """What a method's score at zero shots is worth in shots of the reference; None if no seed is common to all rows.

    Args:
        row: the method's row at zero shots.
        reference: the rows of the method without composition, at zero shots and at other numbers.
    """
    cells = [row.scores[row.primary], *(one.scores[one.primary] for one in reference.values())]
    if len({(cell.name, cell.direction) for cell in cells}) > 1:
        return None
    seeds = sorted(set.intersection(*({seed for seed, _ in cell.values} for cell in cells)))
    if not seeds:
        return None
    sign = 1.0 if cells[0].direction == "higher" else -1.0
    own, *others = ([dict(cell.values)[seed] for seed in seeds] for cell in cells)
    places = [math.log2(1 + count) for count in reference]
    trials, whole = min(cell.trials for cell in cells), cells[0].whole

    def scores_at(u: float) -> list[float]:
        """The reference's score of each seed, interpolated between the shots that were run."""
        k = next((k for k, place in enumerate(places[1:]) if u <= place), len(places) - 2)
        share = (u - places[k]) / (places[k + 1] - places[k])
        return [(1 - share) * a + share * b for a, b in zip(others[k], others[k + 1], strict=True)]

    def difference(u: float) -> float:
        return sign * (mean(scores_at(u)) - mean(own))

    def span(u: float) -> Interval:
        at = scores_at(u)
        found = paired_interval([sign * (a - b) for a, b in zip(at, own, strict=True)], trials, whole, (mean(own), mean(at)))
        assert found is not None
        return found

    level = first_root(difference, places)
    if len(seeds) < 2:
        return Worth(_count(level), None, len(seeds))
    grid = [a + (b - a) * k / STEPS for a, b in pairwise(places) for k in range(STEPS)] + [places[-1]]
    spans = {u: span(u) for u in grid}
    low, high = first_root(lambda u: spans[u].high, grid), first_root(lambda u: spans[u].low, grid)
    if low is None:
        return Worth(None, (2 ** places[-1] - 1, None), len(seeds))  # the reference is below the score everywhere
    return Worth(_count(level), (2**low - 1, _count(high)), len(seeds))


def first_root(function: Callable[[float], float], places: Sequence[float]) -> float | None:
    """The first place where a function, linear between some places, is 0 or more; None if it is below 0 at all of them."""
    before: tuple[float, float] | None = None
    for place in places:
        value = function(place)
        if value >= 0:
            if before is None or value == 0:
                return place
            return before[0] + (place - before[0]) * -before[1] / (value - before[1])
        before = place, value
    return None


def _count(u: float | None) -> float | None:
    return None if u is None else 2**u - 1


def in_words(name: str, found: Worth, row: BoardRow, most: int) -> str:
    """The sentence of one method, as Markdown without marks."""
    score = row.scores[row.primary]
    what = f"{row.primary.replace('_', ' ')} {score.mean:.3g}"
    if found.shots == 0:
        value = "no example"
    elif found.shots is None:
        value = f"more than {most} examples"
    else:
        value = f"{found.shots:.2g} example{'' if 0.995 <= found.shots < 1.05 else 's'}"
    if found.interval is None:
        sure = "one seed in common, so no interval"
    elif found.interval == (0, None):
        cannot = "cannot tell what composition without examples is worth (95 %: 0 or more)"
        return f"{name} ({what}): {found.num_seeds} seeds {cannot}"
    elif found.interval[1] is None:
        sure = f"95 %: {found.interval[0]:.2g} or more, {found.num_seeds} seeds"
    else:
        sure = f"95 %: {found.interval[0]:.2g} to {found.interval[1]:.2g}, {found.num_seeds} seeds"
    return f"{name} ({what}): composition without examples is worth {value} of each held-out cell ({sure})"
