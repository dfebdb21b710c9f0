"""Write "What is zero-shot worth?": a table and a chart of held-out scores over shots, and one sentence per method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from compbench.board.groups import Section
from compbench.board.notation import heading, number
from compbench.board.render_csv import csv_text
from compbench.board.render_markdown import escape as plain
from compbench.board.render_markdown import line
from compbench.board.row import BoardRow
from compbench.board.shot_prices import REFERENCE, Prices, in_words
from compbench.store.format import clean

COLUMNS = ("task", "preset", "method", "score", "shots", "mean", "low", "high", "runs", "worth", "worth_low", "worth_high")
TITLE = "What is zero-shot worth?"
LEAD = (
    "Scores of held-out combinations after training on a number of real examples of each. A method's score without examples is "
    f"worth as many examples as {REFERENCE}, which has no rule of composition, needs to reach the same score (docs/shots.md)."
)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT = 640, 300, 46, 190, 30, 34
COLOURS = ("#3b6ea5", "#d9822b", "#4c9a4c", "#b04a5a", "#7a5aa6", "#8a6d3b", "#c05fa0", "#5f6b73")


def shots_csv(found: Sequence[Prices]) -> str:
    """One line per method and number of shots; the line of zero shots also says how many examples the score is worth."""
    lines: list[list[object]] = []
    for one in found:
        for name, curve in one.curves.items():
            for count, row in curve.items():
                cell, worth = row.scores[row.primary], one.worths.get(name) if count == 0 else None
                known = [one.section.task, one.section.preset, clean(name), row.primary, count, cell.mean]
                ends = worth.interval or (None, None) if worth else (None, None)
                own = [*(cell.interval or ("", "")), cell.num_seeds, worth and worth.shots, *ends]
                lines.append([*known, *own])
    return csv_text(COLUMNS, lines)


def shots_markdown(found: Sequence[Prices], chart: str) -> str:
    """The section of the board; "" without a run with shots."""
    if not found:
        return ""
    parts = [f"## {TITLE}", "", plain(LEAD), ""]
    for one in found:
        counts = sorted({count for curve in one.curves.values() for count in curve})
        parts += [f"**{plain(_title(one, found))}**", ""]
        parts += [
            line(["method", *(f"{count} shot{'' if count == 1 else 's'}" for count in counts)]),
            line(["---"] * (len(counts) + 1)),
        ]
        for name, curve in one.curves.items():
            parts.append(line([plain(name), *(_value(curve.get(count)) for count in counts)]))
        parts += ["", *(f"- {plain(words)}." for words in sentences(one)), ""]
    return "\n".join([*parts, f"![held-out score over shots]({chart})", "", ""])


def sentences(one: Prices) -> list[str]:
    """What composition without examples is worth, one sentence per method."""
    return [in_words(clean(name), worth, one.curves[name][0], one.most) for name, worth in one.worths.items()]


def shots_html(found: Sequence[Prices]) -> str:
    """The section of the page; "" without a run with shots."""
    if not found:
        return ""
    panels = "".join(
        f'<div class="card body"><h3>{escape(_title(one, found))}</h3>{_svg(one, 0)}<ul>'
        + "".join(f"<li>{escape(words)}.</li>" for words in sentences(one))
        + "</ul></div>"
        for one in found
    )
    return (
        f'<section id="shots" aria-label="scores over shots"><h2>{TITLE}</h2><p class="lead">{escape(LEAD)}</p>{panels}</section>'
    )


def shots_svg(found: Sequence[Prices]) -> str:
    """One chart per task, stacked."""
    charts = "".join(_svg(one, HEIGHT * place, title=_title(one, found)) for place, one in enumerate(found))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(found)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT * len(found)}" fill="#ffffff"/>{charts}</svg>\n'
    )


def _svg(one: Prices, top: int, *, title: str = "") -> str:
    """Means over seeds and their 95 % intervals against log2(1 + shots), of methods that were run with shots."""
    drawn = {name: curve for name, curve in one.curves.items() if max(curve)}
    counts = sorted({count for curve in drawn.values() for count in curve})
    cells = [row.scores[row.primary] for curve in drawn.values() for row in curve.values()]
    ends = [end for cell in cells for end in (cell.mean, *(cell.interval or ()))]
    low, high = min([0.0, *ends]), max([*ends, *(cell.ceiling or 0.0 for cell in cells)]) or 1.0
    most = math.log2(1 + counts[-1]) or 1.0

    def x(count: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(1 + count) / most

    def y(value: float) -> float:
        return float(HEIGHT - FOOT - (HEIGHT - TOP - FOOT) * (value - low) / (high - low))

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>'] if title else []
    parts += [
        f'<text x="{x(count):.1f}" y="{HEIGHT - FOOT + 16}" text-anchor="middle">{count}</text>'
        f'<line x1="{x(count):.1f}" x2="{x(count):.1f}" y1="{TOP}" y2="{HEIGHT - FOOT}" stroke="#bbbbbb" stroke-width="0.5"/>'
        for count in counts
    ]
    parts += [f'<text x="{LEFT - 6}" y="{y(end) + 4:.1f}" text-anchor="end">{number(end)}</text>' for end in (low, high)]
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">examples of each held-out cell</text>'
    )
    labels: list[tuple[float, float, str]] = []  # height, end of the curve, text
    for place, (name, curve) in enumerate(drawn.items()):
        colour = COLOURS[place % len(COLOURS)]
        points = [(x(count), row.scores[row.primary]) for count, row in curve.items()]
        path = " ".join(f"{at:.1f},{y(cell.mean):.1f}" for at, cell in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        for at, cell in points:
            parts.append(f'<circle cx="{at:.1f}" cy="{y(cell.mean):.1f}" r="2.6" fill="{colour}"/>')
            if cell.interval:
                ends_at = [y(end) for end in cell.interval]
                parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{ends_at[0]:.1f}" y2="{ends_at[1]:.1f}" stroke="{colour}"/>')
        label = clean(name)
        label = escape(label if len(label) <= 32 else f"{label[:31]}…")
        labels.append((y(points[-1][1].mean) + 4, points[-1][0] + 8, f'fill="{colour}">{label}</text>'))
    free = 0.0
    for height, at, text in sorted(labels):
        free = max(height, free + 12)  # labels must not overlap
        parts.append(f'<text x="{at:.1f}" y="{free:.1f}" {text}')
    inside, said = "".join(parts), f"{escape(one.section.task)}: held-out score over shots"
    return (
        f'<svg y="{top}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="currentColor" role="img" aria-label="{said}">{inside}</svg>'
    )


def _title(one: Prices, found: Sequence[Prices]) -> str:
    among: list[Section] = [other.section for other in found]
    return heading(one.section, among)


def _value(row: BoardRow | None) -> str:
    if row is None:
        return ""
    cell = row.scores[row.primary]
    return number(cell.mean) + (f" ± {cell.std:.2g}" if cell.num_seeds > 1 else "")
