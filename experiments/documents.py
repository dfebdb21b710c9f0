"""What experiments write into a document: text between two marks, which a test can find stale."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path


def marks(name: str) -> tuple[str, str]:
    """The lines around the text of a name."""
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def between(document: str, name: str) -> str:
    """The text of a name.  Exits where a mark is missing."""
    begin, end = marks(name)
    if begin not in document or end not in document:
        sys.exit(f"the document has no lines {begin} and {end}: put them where the text belongs.")
    return document.split(begin)[1].split(end)[0].strip()


def line(cells: Iterable[str]) -> str:
    """A line of a table of Markdown."""
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def put(path: Path, texts: Mapping[str, str], *, check: bool, command: str) -> None:
    """Write each text between the marks of its name; with `check` only exit where one is not there already."""
    document = path.read_text("utf-8")
    stale = [name for name, text in texts.items() if between(document, name) != text.strip()]
    if check and stale:
        sys.exit(f"{path} is not fresh ({', '.join(stale)}): run python {command} --write {path}")
    for name in stale:
        begin, end = marks(name)
        document = f"{document.split(begin)[0]}{begin}\n\n{texts[name].strip()}\n\n{end}{document.split(end, 1)[1]}"
    if stale:
        path.write_text(document, "utf-8")
