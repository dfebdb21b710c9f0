"""Print the gate's table for a terminal, for a pull request and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from compbench.gate.rows import EXIT, Row, Verdict, answer
from compbench.system.files import Json

SHOWN = ("cell", "what", "against", "base", "head", "change", "verdict", "note")
COLOURS: dict[Verdict, str] = {
    "pass": "green",
    "better": "green",
    "notice": "cyan",
    "accepted": "cyan",
    "inconclusive": "yellow",
    "could not run": "magenta",
    "regression": "red",
}
MEANINGS: dict[Verdict, str] = {
    "pass": "nothing got worse or slower",
    "regression": "something got worse or slower",
    "inconclusive": "nothing is significantly worse, but some rows have too few pairs to exclude a regression",
    "could not run": "something could not be compared",
}


def sentence(rows: Sequence[Row]) -> str:
    """The answer in one line, with the number of rows of each verdict."""
    verdict = answer(rows)
    counts = {name: sum(row.verdict == name for row in rows) for name in COLOURS}
    shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{verdict}: {MEANINGS[verdict]} ({shown or 'no rows'})"


def terminal(rows: Sequence[Row]) -> None:
    """Print the table; if there are many unchanged rows, only their number is shown."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in SHOWN:
        table.add_column(name, justify="right" if name in ("base", "head") else "left", overflow="fold")
    for row in _reported(rows):
        cells = [row.cell, row.what or row.gate, row.against, _number(row.base), _number(row.head), row.change]
        table.add_row(*(Text(cell) for cell in cells), Text(row.verdict, style=COLOURS[row.verdict]), Text(row.note))
    console.print(table)
    silent = len(rows) - len(_reported(rows))
    if silent:
        console.print(f"and {silent} exact facts are the same", style="dim")
    console.print(Text(sentence(rows), style=f"bold {COLOURS[answer(rows)]}"))


def markdown(rows: Sequence[Row]) -> str:
    """A comment for a pull request: the answer, the rows to look at, and all rows in a collapsed section."""
    looked_at = [row for row in rows if row.verdict not in ("pass", "better")]
    parts = [f"### compbench gate: {_escaped(sentence(rows))}", ""]
    if looked_at:
        parts += [*_markdown_table(looked_at), ""]
    parts += ["<details><summary>all rows</summary>", "", *_markdown_table(rows), "", "</details>", ""]
    return "\n".join(parts)


def as_json(rows: Sequence[Row], facts: dict[str, Json]) -> str:
    """The table with the answer and exit status, and `facts` of the comparison."""
    verdict = answer(rows)
    found = {"answer": verdict, "exit_status": EXIT[verdict], **facts, "rows": [row._asdict() for row in rows]}
    return json.dumps(found, sort_keys=True, allow_nan=False)


def _reported(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not (row.gate == "exact" and row.verdict == "pass" and not row.note)]


def _markdown_table(rows: Sequence[Row]) -> list[str]:
    lines = ["| " + " | ".join(SHOWN) + " |", "|" + " --- |" * len(SHOWN)]
    for row in rows:
        verdict = f"**{row.verdict}**" if row.verdict == "regression" else row.verdict
        cells = [row.cell, row.what or row.gate, row.against, _number(row.base), _number(row.head), row.change]
        lines.append("| " + " | ".join([*map(_escaped, cells), verdict, _escaped(row.note)]) + " |")
    return lines


def _escaped(text: str) -> str:
    """Escape text, so that Markdown shows it unchanged: a method's name or error is untrusted."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for mark in "\\`*_[]|~!@#":
        plain = plain.replace(mark, f"&#{ord(mark)};" if mark in "@#|" else f"\\{mark}")
    return plain


def _number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e12 else f"{value:.4g}"
