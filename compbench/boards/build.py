"""The board's files: CSV, Markdown, and one HTML page that works offline.  The same records give the same bytes."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compbench.boards.aggregate import Cell, Row, rows, shown_label
from compbench.boards.papers import PaperFigure, read
from compbench.records import write_atomically
from compbench.schemas import Record

HIDDEN = ("_shape", "_hue", "_colour")
"""Scores of single factors go in the CSV and behind a switch on the page, not in the Markdown."""


def build(
    records: Sequence[Record],
    destination: Path,
    *,
    papers: Path | None,
    pictures: Callable[[Record], bytes | None],
) -> tuple[Path, ...]:
    """Write board.csv, board.md and index.html.

    Args:
        records: in any order.
        destination: folder; made if need be.
        papers: the papers' figures, or None.
        pictures: record -> its sample grid as PNG, if it has one.

    Returns:
        the files written.
    """
    board = rows(records)
    figures = read(papers)
    files = {
        "board.csv": to_csv(board, figures),
        "board.md": to_markdown(board, figures),
        "index.html": to_html(board, figures, _grids(board, records, pictures)),
    }
    for name, content in files.items():
        write_atomically(destination / name, content.encode())
    return tuple(destination / name for name in files)


def to_csv(board: Sequence[Row], figures: Sequence[PaperFigure]) -> str:
    """One line a score, long format."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(
        ["kind", "task", "task_version", "preset", "source", "device", "method", "seeds", "rank", "score", "mean", "std",
         "low", "high", "ceiling", "floor", "train_steps_per_second", "sample_samples_per_second", "parameters",
         "evaluations_per_sample", "note"]
    )  # fmt: skip
    for row in board:
        head = [row.kind, *row.section[:4], row.device, shown_label(row, board), len(row.seeds), _rank(row)]
        tail = [
            _number(row.speeds.get("train_steps_per_second")),
            _number(row.speeds.get("sample_samples_per_second")),
            row.parameters or "",
            row.evaluations or "",
        ]
        for name, cell in sorted(row.scores.items()):
            values = (cell.mean, cell.std, cell.low, cell.high, cell.ceiling, cell.floor)
            writer.writerow([_plain(part) for part in [*head, name, *map(_number, values), *tail, _note(row)]])
        for name, reason in sorted(row.unavailable.items()):
            writer.writerow([_plain(part) for part in [*head, name, *[""] * 6, *tail, f"unavailable: {reason}"]])
        if not row.scores:
            writer.writerow([_plain(part) for part in [*head, "", *[""] * 6, *tail, _note(row)]])
    for figure in figures:
        line = ["paper", figure.task, "", "paper", "official", "", figure.method, "", "", figure.score]
        line += [_number(figure.mean), _number(figure.std), *[""] * 8, f"{figure.paper}, table {figure.table}. {figure.note}"]
        writer.writerow([_plain(part) for part in line])
    return output.getvalue()


def to_markdown(board: Sequence[Row], figures: Sequence[PaperFigure]) -> str:
    """One table a section, scores as columns; the papers' figures below each."""
    lines = ["# Board", "", "Made by `compbench board`; do not edit.  Accuracies are shown with the judge's ceiling.", ""]
    for section in sorted({row.section for row in board}):
        own = [row for row in board if row.section == section]
        names = [name for name in _score_names(own) if not name.endswith(HIDDEN)]
        lines += [f"## {_cell_text(section.task)}, {section.preset}, {section.source} data", ""]
        header = ["rank", "method", "seeds", *names, "samples/s", "steps/s", "parameters", "note"]
        lines += [f"| {' | '.join(header)} |", f"|{'|'.join(['---'] * len(header))}|"]
        for row in own:
            cells = [_markdown_score(row, name) for name in names]
            star = "*" if row.shared else ""
            speeds = [_short(row.speeds.get(k)) + star for k in ("sample_samples_per_second", "train_steps_per_second")]
            parameters = f"{row.parameters / 1e6:.2f} M" if row.parameters else ""
            line = [_rank(row), _cell_text(shown_label(row, board)), str(len(row.seeds)), *cells, *speeds, parameters]
            lines.append(f"| {' | '.join([*line, _cell_text(_note(row))])} |")
        for method in sorted({figure.method for figure in figures if figure.task == section.task}):
            known = {f.score: f for f in figures if f.task == section.task and f.method == method}
            cells = [_paper(known[name]) if name in known else "" for name in names]
            lines.append(f"| paper | {_cell_text(method)} | | {' | '.join(cells)} | | | | official data, paper's protocol |")
        lines.append("")
    lines += ["`*` measured while several runs shared the machine: a lower bound.", ""]
    return "\n".join(lines)


def to_html(board: Sequence[Row], figures: Sequence[PaperFigure], grids: Sequence[dict[str, str]]) -> str:
    """The page: data as JSON inside, drawn by its own script; nothing is fetched."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, keep_trailing_newline=True
    )
    data = {"rows": [_json_row(row, board) for row in board], "papers": [figure._asdict() for figure in figures]}
    return environment.get_template("board.html.jinja").render(data=embedded_json(data), grids=grids)


def embedded_json(data: Any) -> Any:
    """JSON that can stand inside a script element whatever strings it holds."""
    import markupsafe

    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    for mark, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(mark, escape)
    return markupsafe.Markup(text)  # every mark that HTML knows is escaped above


def _json_row(row: Row, board: Sequence[Row]) -> dict[str, Any]:
    return {
        "task": row.section.task,
        "version": row.section.task_version,
        "preset": row.section.preset,
        "source": row.section.source,
        "device": row.device,
        "method": shown_label(row, board),
        "kind": row.kind,
        "rank": _rank(row),
        "seeds": list(row.seeds),
        "scores": {name: _json_cell(cell) for name, cell in row.scores.items()},
        "unavailable": row.unavailable,
        "primary": row.primary,
        "speeds": {name: float(f"{value:.4g}") for name, value in row.speeds.items()},
        "shared": row.shared,
        "parameters": row.parameters,
        "evaluations": row.evaluations,
        "seconds": None if row.seconds is None else round(row.seconds, 1),
        "failures": list(row.failures),
    }


def _json_cell(cell: Cell) -> dict[str, Any]:
    keep = {key: value for key, value in cell._asdict().items() if key not in ("metric_version",)}
    return {key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in keep.items()}


def _grids(
    board: Sequence[Row], records: Sequence[Record], pictures: Callable[[Record], bytes | None]
) -> list[dict[str, str]]:
    """At most one sample grid for each row: of its smallest seed."""
    by_name = {record.name: record for record in records}
    found = []
    for row in board:
        own = sorted((by_name[name] for name in row.records if by_name[name].status == "ok"), key=lambda r: r.spec.seed)
        content = pictures(own[0]) if own else None
        if content is not None:
            found.append(
                {
                    "task": row.section.task,
                    "preset": row.section.preset,
                    "source": row.section.source,
                    "device": row.device,
                    "method": shown_label(row, board),
                    "seed": str(own[0].spec.seed),
                    "uri": "data:image/png;base64," + base64.b64encode(content).decode(),
                }
            )
    return found


def _score_names(board: Sequence[Row]) -> list[str]:
    """Score names, the primary first, then held-out before seen."""
    primary = {row.primary for row in board}
    names = {name for row in board for name in (*row.scores, *row.unavailable)}
    order = {"heldout": 0, "all": 1, "seen": 2}
    return sorted(names, key=lambda name: (name not in primary, order.get(name.split("_")[0], 3), name))


def _markdown_score(row: Row, name: str) -> str:
    cell = row.scores.get(name)
    if cell is None:
        return "n/a" if name in row.unavailable else ""
    spread = f" ± {_short(cell.std)}" if cell.num_seeds > 1 else ""
    limit = f" / {_short(cell.ceiling)}" if cell.ceiling is not None else ""
    floor = f" (floor {_short(cell.floor)})" if cell.floor is not None else ""
    text = f"{_short(cell.mean)}{spread}{limit}{floor}"
    return f"**{text}**" if name == row.primary else text


def _paper(figure: PaperFigure) -> str:
    return _short(figure.mean) + (f" ± {_short(figure.std)}" if figure.std is not None else "")


def _note(row: Row) -> str:
    notes = list(row.failures)
    if row.kind == "reference":
        notes.insert(0, "reference, does not compete")
    return "; ".join(notes)


def _rank(row: Row) -> str:
    if row.rank is None:
        return ""
    return str(row.rank[0]) if row.rank[0] == row.rank[1] else f"{row.rank[0]}-{row.rank[1]}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _plain(value: Any) -> Any:
    """A spreadsheet must not take a record's text for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") and not _numeric(value) else value


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cell_text(text: str) -> str:
    """Text that cannot break out of a Markdown table cell or become markup."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.split()).replace("|", "\\|").replace("`", "'").replace("[", "\\[")
