"""Charts of docs/results.md as SVG: forest plots, scatter plots and lattice maps.  The same values give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from compbench.board.view import Answer, Entry

BEST, WORSE, MEANS, INK, PALE = "#0d6b55", "#8a9199", "#b4561f", "#17191c", "#d5d9dd"
COLOURS = ("#0d6b55", "#b4561f", "#3b6ea5", "#8a4f9e", "#a08a1e", "#c0392b", "#5b6770")
LINE, LABEL, PANEL, SIDE = 13, 130, 250, 260
"""Pixels: height of a method's line, width of its name, width of a forest plot's axis, and side of a scatter plot."""
SHADES, LIGHTEST = 10, 0.04
"""Number of shades of a lattice map except the lightest, and the opacity of a cell without a correct sample."""
MOST_IN_TWO = 4
"""Up to this many maps are in two columns."""
LEAST = -0.5
"""The left end of a forest plot's axis; smaller values are drawn at this end."""
WIDE = 6.2
"""Approximate width of a character in pixels."""


class Dot(NamedTuple):
    """A point of a scatter plot: position, name, colour, whether it is filled, and whether its name is written next to it."""

    x: float
    y: float
    name: str
    colour: str = BEST
    filled: bool = True
    named: bool = False


class Scatter(NamedTuple):
    """A scatter plot: title, names of the axes, dots, whether axes are logarithmic, and whether the diagonal is drawn."""

    title: str
    x_name: str
    y_name: str
    dots: tuple[Dot, ...]
    log: tuple[bool, bool] = (False, False)
    diagonal: bool = False


class Map(NamedTuple):
    """A lattice: its sizes, the share of correct samples of each cell, and the held-out cells, which have a frame."""

    title: str
    sizes: tuple[int, int]
    parts: Mapping[tuple[int, ...], float]
    held: frozenset[tuple[int, ...]]


def page(width: float, height: float, body: str) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">'
    return f'{head}<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>{body}</svg>\n'


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{INK}"{more}>{escape(words)}</text>'


def circle(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}" stroke="{colour}"/>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}"{more}/>'


# -- forest plots


def forest(answers: Sequence[tuple[str, Answer]]) -> str:
    """Panels of tasks, three in a row: a dot is a seed, a bar the 95 % interval; filled may be best, hollow is worse."""
    rows = [answers[start : start + 3] for start in range(0, len(answers), 3)]
    body, top = [], 0.0
    for row in rows:
        for place, (title, answer) in enumerate(row):
            body.append(_forest_panel(title, answer, place * (LABEL + PANEL + 20), top))
        top += 46 + LINE * max(len(answer.competing) for _, answer in row)
    columns = max(len(row) for row in rows)
    return page(columns * (LABEL + PANEL + 20), top, "".join(body))


def _forest_panel(title: str, answer: Answer, left: float, top: float) -> str:
    start, entries = left + LABEL, answer.competing
    values = [value for entry in entries for value in (*entry.shares, entry.low, entry.high) if value is not None]
    low, high = max(LEAST, min([0.0, *values])), max([1.0, *values])
    high = min(high, 1.2)

    def at(share: float) -> float:
        return start + 8 + (PANEL - 16) * (min(max(share, low), high) - low) / (high - low)

    first, last = top + 22, top + 26 + LINE * len(entries)
    parts = [text(left + 4, top + 14, title, ' font-weight="bold"')]
    parts += [line(at(0), first, at(0), last, INK), line(at(1), first, at(1), last, INK, ' stroke-dasharray="3 2"')]
    parts += [text(at(0), last + 12, "constant answer", ' text-anchor="middle"'), text(at(1) + 8, last + 12, "real data", _END)]
    parts += [_forest_line(entry, at, start, first + LINE * place + 9) for place, entry in enumerate(entries)]
    return "".join(parts)


_END = ' text-anchor="end"'


def _forest_line(entry: Entry, at: Callable[[float], float], start: float, height: float) -> str:
    best = entry.state == "best"
    colour = BEST if best else WORSE
    parts = [text(start - 4, height + 1, entry.row.method, _END)]
    if entry.low is not None and entry.high is not None:
        parts.append(line(at(entry.low), height - 2, at(entry.high), height - 2, colour, ' stroke-width="2" opacity=".5"'))
    dots = "".join(f'<circle cx="{at(share):.1f}" cy="{height - 2:.1f}" r="2.6"/>' for share in entry.shares)
    return "".join([*parts, f'<g fill="{colour if best else "#fff"}" stroke="{colour}">{dots}</g>'])


# -- scatter plots


def scatters(plots: Sequence[Scatter], columns: int, legend: Sequence[tuple[str, str]] = ()) -> str:
    """Plots side by side, with a legend of the colours below."""
    each, tall = SIDE + 72, SIDE + 66
    body = [_scatter(plot, (place % columns) * each, place // columns * tall) for place, plot in enumerate(plots)]
    rows, x = -(-len(plots) // columns), 12.0
    height = rows * tall + 4
    for name, colour in legend:
        body.append(circle(x, height, colour) + text(x + 6, height + 3, name))
        x += 20 + WIDE * len(name)
    return page(max(min(columns, len(plots)) * each, x), height + (14 if legend else 0), "".join(body))


def _scatter(plot: Scatter, left: float, top: float) -> str:
    dots = [dot for dot in plot.dots if all(value > 0 or not log for value, log in zip(dot[:2], plot.log, strict=True))]
    x, x_ticks = _axis([dot.x for dot in dots], log=plot.log[0])
    y, y_ticks = _axis([dot.y for dot in dots], log=plot.log[1])
    if plot.diagonal:
        x, x_ticks = y, y_ticks = _axis([value for dot in dots for value in dot[:2]], log=plot.log[0])
    start, base = left + 44, top + 24 + SIDE
    parts = [text(left + 6, top + 14, plot.title, ' font-weight="bold"')]
    parts += [line(start, base, start + SIDE, base, INK), line(start, base, start, base - SIDE, INK)]
    for share, words in x_ticks:
        parts.append(text(start + SIDE * share, base + 13, words, ' text-anchor="middle"'))
    for share, words in y_ticks:
        parts.append(text(start - 4, base - SIDE * share + 3, words, _END))
    parts.append(text(start + SIDE / 2, base + 28, plot.x_name, ' text-anchor="middle"'))
    turned = f' text-anchor="middle" transform="rotate(-90 {left + 12:.1f} {base - SIDE / 2:.1f})"'
    parts.append(text(left + 12, base - SIDE / 2, plot.y_name, turned))
    if plot.diagonal:
        parts.append(line(start, base, start + SIDE, base - SIDE, PALE))
    places = [(start + SIDE * x(dot.x), base - SIDE * y(dot.y), dot) for dot in dots]
    for look in dict.fromkeys((dot.colour, dot.filled) for *_, dot in places):
        parts.append(_dots([place for place in places if (place[2].colour, place[2].filled) == look], *look))
    return "".join([*parts, *_names(places, start + SIDE, base)])


def _dots(places: Sequence[tuple[float, float, Dot]], colour: str, filled: bool) -> str:
    """Dots of one look, which their group states once."""
    dots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(dot.name)}</title></circle>' for x, y, dot in places)
    return f'<g fill="{colour if filled else "#fff"}" stroke="{colour}">{"".join(dots)}</g>'


def _names(places: Sequence[tuple[float, float, Dot]], end: float, base: float) -> list[str]:
    """Names next to their dots if they hide no other name; each dot's name is in its title too."""
    taken: list[tuple[float, float, float]] = []
    parts = []
    for x, y, dot in places:
        wide = WIDE * len(dot.name)
        left = x + 6 if x + 6 + wide <= end + 20 else x - 6 - wide
        free = [
            shift
            for shift in (3, -7, 12, -16, 21)
            if y + shift < base - 1 and all(abs(y + shift - b) > 9 or left + wide < a or left > a + w for a, b, w in taken)
        ]
        if dot.named and free:
            taken.append((left, y + free[0], wide))
            parts.append(text(left, y + free[0], dot.name))
    return parts


def _axis(values: Sequence[float], *, log: bool) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    """A function from a value to its position in [0, 1], and the ticks."""
    if not log:
        low, high = min([0.0, *values]), max([1.0, *values])
        return (lambda value: (value - low) / (high - low)), [((tick - low) / (high - low), f"{tick:g}") for tick in (0, 0.5, 1)]
    low, high = math.floor(math.log10(min(values, default=1))), math.ceil(math.log10(max(values, default=10)))
    high = max(high, low + 1)
    ticks = [((power - low) / (high - low), f"{10.0**power:g}") for power in range(low, high + 1)]
    return (lambda value: (math.log10(value) - low) / (high - low)), ticks


# -- lattice maps


def maps(found: Sequence[Map]) -> str:
    """One map per method: the darker a cell, the more of its samples are correct; held-out cells have a frame."""
    if not found:
        return page(1, 1, "")
    rows, wide = found[0].sizes
    cell = max(8, min(20, 220 // wide))
    each, tall = max(wide * cell, 130) + 16, rows * cell + 28
    columns = min(len(found), max(1, 1000 // each), 6 if len(found) > MOST_IN_TWO else 2)
    held = [at for at in sorted(found[0].parts) if at in found[0].held]
    frame = "".join(f"M{at[1] * cell} {at[0] * cell}h{cell - 3}v{cell - 3}h{3 - cell}z" for at in held)
    frames = f'<defs><path id="held" d="{frame}" fill="none" stroke="{MEANS}"/></defs>'
    body = [_map(one, place % columns * each + 8, place // columns * tall + 20, cell) for place, one in enumerate(found)]
    return page(columns * each, -(-len(found) // columns) * tall, frames + "".join(body))


def _map(one: Map, left: int, top: int, cell: int) -> str:
    """One path for each shade, with a thick stroke per cell, and the frames of the held-out cells."""
    shades: dict[float, list[tuple[int, ...]]] = {}
    for at, part in sorted(one.parts.items()):
        shades.setdefault(max(round(part * SHADES) / SHADES, LIGHTEST), []).append(at)
    size = cell - 3
    strokes = (
        (shade, "".join(f"M{at[1] * cell} {at[0] * cell + size / 2:g}h{size}" for at in cells))
        for shade, cells in sorted(shades.items())
    )
    drawn = "".join(f'<path d="{stroke}" opacity="{shade:g}"/>' for shade, stroke in strokes)
    title = text(left, top - 5, one.title, ' font-weight="bold"')
    return f'{title}<g transform="translate({left} {top})" stroke="{BEST}" stroke-width="{size}">{drawn}</g>' + (
        f'<use href="#held" x="{left}" y="{top}"/>'
    )
