"""Draw the decomposition as SVG: each row has a bar of inference-time error, then one of estimation error up to the total."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from compbench.board.groups import Section
from compbench.board.notation import by_section, heading, number
from compbench.board.row import BoardRow
from compbench.store.format import clean

WIDTH, LABEL, VALUES, LINE, TITLE, FOOT = 900, 330, 110, 16, 34, 14
INFERENCE, ESTIMATION, FLOOR = "#3b6ea5", "#d9822b", "#777777"


def to_svg(rows: Sequence[BoardRow]) -> str:
    """One panel for each section with decomposed rows, best total first; "" if there is none."""
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
        f'<text x="368" y="18">error that estimated scores add; hatched if they reduce it</text>'
        f'<line x1="730" x2="730" y1="6" y2="22" stroke="{FLOOR}" stroke-dasharray="3 2"/><text x="738" y="18">real data</text>'
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
    if any(cell.direction == "higher" for row in rows if (cell := row.scores.get(row.primary))):
        primary += ", what is lacking to real data"
    words = f"{heading(section, among)}: {primary}"
    title = f'<text x="8" y="{top + 16}" font-weight="bold">{escape(words, quote=False)}</text>'
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
        f'<text x="{LABEL - 6}" y="{top + 10}" text-anchor="end">{escape(label, quote=False)}</text>'
        f'<rect x="{LABEL}" y="{top}" width="{min(total, inference):.1f}" height="{LINE - 5}" fill="{INFERENCE}"/>'
        f'<rect x="{LABEL + low:.1f}" y="{top}" width="{high - low:.1f}" height="{LINE - 5}" fill="{fill}"/>'
        f'<text x="{LABEL + high + 6:.1f}" y="{top + 10}">{number(row.parts.inference)} '
        f"{'+' if row.parts.estimation >= 0 else '&#8722;'} {number(abs(row.parts.estimation))}</text>"
    )
