"""Charts as SVG.

The decomposition chart has for each row a bar of inference-time error, and from its end to the total one of estimation error.
Performance profiles show for each method on which share of the tasks it attains at least so much.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from compbench.board.aggregate import BoardRow, Section
from compbench.board.notation import by_section, heading, number
from compbench.board.overall import Contender, Contest
from compbench.board.statistics import profile
from compbench.store.text import clean

WIDTH, LABEL, VALUES, LINE, TITLE, FOOT = 900, 330, 110, 16, 34, 14
INFERENCE, ESTIMATION, FLOOR = "#3b6ea5", "#d9822b", "#777777"

PLOT_LEFT, PLOT_WIDTH, PLOT_HEIGHT, PANEL = 46, 430, 220, 300
COLOURS = ("#0d6b55", "#b4530a", "#4a5fc1", "#a13670", "#7a7a00", "#1f8fb3", "#8a4b2a", "#5d6670")


def to_svg(rows: Sequence[BoardRow]) -> str:
    """One panel a section that has decomposed rows, best total first; "" if there is none."""
    panels = {section: [row for row in own if row.parts] for section, own in by_section(rows).items()}
    panels = {section: own for section, own in panels.items() if own}
    if not panels:
        return ""
    parts, top = [], 44
    for section, own in panels.items():
        parts.append(_panel(section, own, list(panels), top))
        top += TITLE + LINE * len(own) + FOOT
    legend = (
        f'<rect x="8" y="8" width="12" height="12" fill="{INFERENCE}"/><text x="26" y="18">error with exact scores '
        f'(inference-time approximation)</text><rect x="350" y="8" width="12" height="12" fill="{ESTIMATION}"/>'
        f'<text x="368" y="18">what estimating the scores adds; hatched if it takes away</text>'
        f'<line x1="730" x2="730" y1="6" y2="22" stroke="{FLOOR}" stroke-dasharray="3 2"/><text x="738" y="18">noise floor</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" font-family="sans-serif" font-size="11">'
        f'<defs><pattern id="back" width="4" height="4" patternUnits="userSpaceOnUse"><path d="M0 4L4 0" '
        f'stroke="{ESTIMATION}" stroke-width="1.4"/></pattern></defs>'
        f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>{legend}{"".join(parts)}</svg>\n'
    )


def _panel(section: Section, rows: Sequence[BoardRow], among: Sequence[Section], top: int) -> str:
    largest = max(max(row.parts.total, row.parts.inference) for row in rows if row.parts) or 1.0
    scale = (WIDTH - LABEL - VALUES) / max(largest, 1e-12)
    rows = sorted(rows, key=lambda row: row.parts.total if row.parts else 0.0)
    primary = clean(rows[0].primary.replace("_", " "))
    title = f'<text x="8" y="{top + 16}" font-weight="bold">{escape(heading(section, among))}: {escape(primary)}</text>'
    lines = "".join(_bar(row, top + TITLE + LINE * index, scale) for index, row in enumerate(rows))
    floors = [cell.floor for row in rows if (cell := row.scores.get(row.primary)) and cell.floor is not None]
    if floors:
        x = LABEL + scale * sum(floors) / len(floors)
        bottom = top + TITLE + LINE * len(rows)
        lines += f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + TITLE - 4}" y2="{bottom}" stroke="{FLOOR}" stroke-dasharray="3 2"/>'
    return title + lines


def _bar(row: BoardRow, top: int, scale: float) -> str:
    assert row.parts is not None
    total, inference = row.parts.total * scale, row.parts.inference * scale
    low, high = sorted((total, inference))
    fill = ESTIMATION if total >= inference else "url(#back)"
    label = clean(row.label)
    label = label if len(label) <= 58 else label[:57] + "…"
    return (
        f'<text x="{LABEL - 6}" y="{top + 10}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{LABEL}" y="{top}" width="{min(total, inference):.1f}" height="{LINE - 5}" fill="{INFERENCE}"/>'
        f'<rect x="{LABEL + low:.1f}" y="{top}" width="{high - low:.1f}" height="{LINE - 5}" fill="{fill}"/>'
        f'<text x="{LABEL + high + 6:.1f}" y="{top + 10}">{number(row.parts.inference)} '
        f"{'+' if row.parts.estimation >= 0 else '&#8722;'} {number(abs(row.parts.estimation))}</text>"
    )


def profiles(contests: Sequence[Contest]) -> str:
    """One panel a contest with the methods that rank first, at most eight; "" if none competes.

    A task that a method did not run counts as not attained: the line shows what is proven.
    """
    panels = [
        (contest, [one for one in contest.contenders if one.rank and one.num_counted][: len(COLOURS)]) for contest in contests
    ]
    panels = [(contest, shown) for contest, shown in panels if shown]
    if not panels:
        return ""
    height = PANEL * len(panels)
    drawn = "".join(_profiles(contest, shown, PANEL * index) for index, (contest, shown) in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>{drawn}</svg>\n'
    )


def _profiles(contest: Contest, shown: Sequence[Contender], top: int) -> str:
    base, left = top + 34 + PLOT_HEIGHT, PLOT_LEFT
    parts = [
        f'<text x="8" y="{top + 16}" font-weight="bold">{contest.preset}, {contest.source} data: share of the '
        f"{len(contest.sections)} tasks (up) on which a method attains at least so much of what real data attain (right)</text>"
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + PLOT_WIDTH * tick, base - PLOT_HEIGHT * tick
        parts.append(
            f'<path d="M{left} {y:.1f}H{left + PLOT_WIDTH}M{x:.1f} {base}V{base - PLOT_HEIGHT}" stroke="#e2e4e1" fill="none"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
            f'<text x="{x:.1f}" y="{base + 15}" text-anchor="middle">{tick:g}</text>'
        )
    for index, one in enumerate(shown):
        label = clean(one.label)
        label = label if len(label) <= 56 else label[:55] + "…"
        y = top + 44 + 18 * index
        parts.append(
            f'<path d="{_steps(one, left, base)}" stroke="{COLOURS[index]}" stroke-width="2" fill="none"/>'
            f'<rect x="{left + PLOT_WIDTH + 22}" y="{y - 8}" width="14" height="4" fill="{COLOURS[index]}"/>'
            f'<text x="{left + PLOT_WIDTH + 42}" y="{y}">{escape(label)}: {one.num_counted} of {len(one.cells)} tasks</text>'
        )
    return "".join(parts)


def _steps(one: Contender, left: int, base: int) -> str:
    """The path of a profile: level up to each share that some task attains, then down."""
    shares = [cell.share if cell.counts else 0.0 for cell in one.cells]
    edges = sorted({share for share in shares if share > 0})
    heights = profile(shares, edges)
    path = f"M{left} {base - PLOT_HEIGHT * (heights[0] if heights else 0.0):.1f}"
    for edge, below in zip(edges, [*heights, 0.0][1:], strict=True):
        path += f"H{left + PLOT_WIDTH * edge:.1f}V{base - PLOT_HEIGHT * below:.1f}"
    return path + f"H{left + PLOT_WIDTH}"
