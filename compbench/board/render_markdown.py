"""Write the board as Markdown for code hosts: one table per section, with the scores that matter as columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compbench.board.groups import Section
from compbench.board.notation import (
    MARK,
    SPLIT_TITLES,
    Column,
    by_section,
    columns,
    count,
    discriminability_words,
    duration,
    failure,
    heading,
    notes,
    number,
    open_ranks,
    spread,
)
from compbench.board.papers import PaperFigure, rows_of
from compbench.board.row import Board, BoardRow
from compbench.board.timing import Timing
from compbench.store.text import clean

MARKS = re.compile(r"([\\`*_\[\]{}|~#!])")
SPEEDS = {"samples/s": "sample_samples_per_second", "steps/s": "train_steps_per_second"}
"""Columns that a table has if `compbench profile` measured one of its rows."""
SILOS = ("sent/silo", "received/silo", "compute/silo")
LONGEST = 200
"""Largest number of characters of a note in Markdown; the page and the CSV contain the whole note."""

PREAMBLE = """# Board

Made by `compbench board` from records; do not edit. `board.csv` has every score, `rows.csv` what each row costs, `families.csv`
the first tables, `tasks.csv` how well each task tells methods apart, `index.html` sorts, filters and plots.

Scores are means over seeds ± sample standard deviation. After a slash stands the ceiling: the same judge on *real*
images. Distances have their noise floor in brackets. A judge that was trained on another type of processor is another network:
distances in its features are left out where most runs of a task have a common one. A rank such as 1 (1-3) is the rank of the
mean, and the ranks that paired comparisons leave open. Speeds stand in tables of which `compbench profile` measured some: `≥`
marks one measured while others shared the machine, `?` what was not measured. Rows marked *paper* are the papers' own figures:
official data, their protocol, their judge; they are not ranked. *Ablations* are methods under other than their default
settings. Beside **(!)** stands in the notes what runs took beyond their budget. The level says who vouches for a row:
*self-reported* is its author alone, *reproduced* someone who ran the same specs again and found the same scores.
"""


def to_markdown(board: Board, figures: Sequence[PaperFigure], *, overall: str = "", chart: str = "") -> str:
    """The whole board: the primary score's split in full, other splits by the primary's metric alone.

    Args:
        board: as `aggregate` gives it.
        figures: the papers'.
        overall: the tables over all families, as Markdown; they come first.
        chart: file of the decomposition chart; "" for none.
    """
    sections = by_section(board.rows)
    parts = [PREAMBLE] + [overall] * bool(overall)
    if not sections:
        parts.append("There are no records yet.\n")
    for section, own in sections.items():
        parts.append(f"## {escape(heading(section, list(sections)))}\n")
        parts.append(f"{discriminability_words(board.discriminability.get(section))}\n")
        parts.append(_table(section, own, tuple(figures)))
    if chart:
        parts.append(
            f"## Inference-time and estimation error\n\n![error with exact scores, and what estimating them adds]({chart})\n"
        )
    return "\n".join(parts)


def _table(section: Section, rows: Sequence[BoardRow], figures: tuple[PaperFigure, ...]) -> str:
    papers = rows_of(figures, section.task)
    known = [column for column in columns(rows, [f for f in figures if f.task == section.task]) if not column.detail]
    shown = _shown([column for column in known if not column.reason])
    silos = SILOS if any(row.timing and row.timing.silos for row in rows) else ()
    speeds = SPEEDS if any(row.timing and row.timing.hardware for row in rows) else {}
    header = [
        "rank",
        "method",
        "seeds",
        *map(_header, shown),
        *speeds,
        "training FLOPs",
        "FLOPs/sample",
        *silos,
        "parameters",
        "level",
        "notes",
    ]
    lines = [line(header), line(["---"] * len(header))]
    lines += [line(_row(row, shown, speeds.values(), with_silos=bool(silos))) for row in rows]
    for (paper, method), own in papers.items():
        cells = [_paper(own.get(column.key)) for column in shown]
        if any(cells):
            lines.append(
                line(["*paper*", escape(method), "", *cells, *("" for _ in (*speeds, *silos)), "", "", "", "", escape(paper)])
            )
    missing = [f"{column.split}: {column.title} ({column.reason})" for column in known if column.reason]
    if missing:
        lines += ["", f"Not available: {escape(_shortened('; '.join(missing)))}"]
    return "\n".join([*lines, ""])


def _shown(known: Sequence[Column]) -> list[Column]:
    first = known[0] if known else None
    return [column for column in known if first is None or column.split == first.split or column.title == first.title]


def _header(column: Column) -> str:
    arrow = {"higher": " ↑", "lower": " ↓"}.get(column.direction, "")
    split = SPLIT_TITLES[column.split].split(" ")[0]
    name = f"{split} {escape(column.title)}".strip() + arrow
    return f"**{name}**" if column.primary else name


def _row(row: BoardRow, shown: Sequence[Column], speeds: Iterable[str], *, with_silos: bool) -> list[str]:
    rank = "" if row.rank is None else f"{row.rank.rank} ({open_ranks(row.rank)})"
    seeds = f"{len(row.seeds)}/{sum(row.statuses.values())}"
    remarks = [*notes(row), *map(failure, row.failures)]
    return [
        {"reference": "*ref*", "ablation": "*ablation*"}.get(row.kind, rank),
        escape(row.label)
        + ("" if row.device == "cpu" else f" on {escape(row.device)}")
        + (f" **{escape(MARK)}**" if row.beyond else ""),
        seeds,
        *(_score(row, column) for column in shown),
        *(_speed(row.timing, name) for name in speeds),
        count(row.timing and row.timing.train_flops) or "?",
        count(row.timing and row.timing.sample_flops) or "?",
        *(_silos(row.timing) if with_silos else ()),
        count(row.parameters),
        row.level,
        escape(_shortened("; ".join(remarks))),
    ]


def _score(row: BoardRow, column: Column) -> str:
    cell = row.scores.get(column.key)
    if cell is None:
        return "n/a" if column.key in row.unavailable else ""
    value = number(cell.mean) + (f" ± {spread(cell.std, cell.mean)}" if cell.num_seeds > 1 else "")
    value = f"**{value}**" if column.primary else value
    ceiling = f" / {number(cell.ceiling)}" if cell.ceiling is not None else ""
    return value + ceiling + (f" ({number(cell.floor)})" if cell.floor is not None else "")


def _speed(timing: Timing | None, name: str) -> str:
    value = getattr(timing, name) if timing else None
    if timing is None or value is None:
        return "?" if timing else ""
    return ("" if timing.clean else "≥ ") + number(value)


def _silos(timing: Timing | None) -> tuple[str, str, str]:
    """Sent, received and computed, a silo; nothing where the data were in one place."""
    if timing is None or timing.silos is None:
        return "", "", ""
    sent, received = (f"{count(value)}B" for value in (timing.silos.bytes_out, timing.silos.bytes_in))
    return sent, received, duration(timing.silos.seconds)


def _paper(figure: PaperFigure | None) -> str:
    if figure is None:
        return ""
    beside = "" if figure.std is None else f" ± {spread(figure.std, figure.mean)}"
    return f"*{number(figure.mean)}{beside}*"


def line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def escape(text: str) -> str:
    """Text that stays text: it neither leaves its table cell nor becomes markup, HTML or a link."""
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//")
    return MARKS.sub(r"\\\1", text)
