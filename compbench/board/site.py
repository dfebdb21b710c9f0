"""A board from a folder of records: what `compbench board` calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from compbench.store.records import Problem, Store

if TYPE_CHECKING:
    from compbench.board.render_html import Picture
    from compbench.schemas import Record

PAPERS = "papers.csv"


def rebuild(records: Path, output: Path, *, link: bool = False) -> tuple[tuple[Path, ...], list[Problem]]:
    """Build the board of all records in a folder.

    Args:
        records: folder of records, with their pictures beside them.
        output: where board.csv, board.md and index.html go.
        link: the page refers to the pictures beside the records instead of holding them.

    Returns:
        the written files, and what in the folders of records and levels cannot be used.
    """
    from compbench.board.build import build

    facts, problems = _read(records, output if link else None)
    return build(destination=output, **facts), problems


def stale(records: Path, output: Path, *, link: bool = False) -> list[Path]:
    """The files of a board that differ from what the records give."""
    from compbench.board import build

    facts, _ = _read(records, output if link else None)
    return build.stale(destination=output, **facts)


def _read(records: Path, linked_from: Path | None) -> tuple[dict[str, Any], list[Problem]]:
    """What a board is made of, as arguments of `build`, and what was passed over."""
    from compbench.board.render_html import Picture
    from compbench.store import verification
    from compbench.store.load import read_records
    from compbench.store.scrutiny import plausible

    store = Store(records)
    found, problems = read_records(store.paths())  # the fast reader: boards are built from thousands
    found, odd = plausible(found, records)
    standings, more = verification.read(verification.beside(records), found, records)
    way = linked_from and os.path.relpath(records.resolve(), linked_from.resolve()).replace(os.sep, "/")

    def picture(record: Record) -> Picture | None:
        grid, content = store.sample_grid(record), store.picture(record)
        if grid is None or content is None:
            return None
        return Picture(record.spec.seed, content, quote(f"{way}/{grid.name}") if way else "")

    facts = {"records": found, "papers": papers_beside(records), "pictures": picture, "standings": standings}
    return facts, [*problems, *odd, *more]


def papers_beside(records: Path) -> Path | None:
    """The papers' own figures: `papers.csv` beside the folder of records, else the copy that is installed."""
    for path in (records.parent / PAPERS, Path(__file__).with_name(PAPERS)):
        if path.is_file():
            return path
    return None
