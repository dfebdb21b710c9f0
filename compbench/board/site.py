"""Build a board from a folder of records; `compbench board` calls this module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import TypeAdapter

from compbench.board.build import Material, build
from compbench.board.build import stale as stale_files
from compbench.board.catalogue import catalogue, lattices
from compbench.board.cell_tiles import FRAME, PART, numbered
from compbench.board.page_families import method_facts
from compbench.board.render_html import Picture
from compbench.store import verification
from compbench.store.profiles import Costs, read_profiles
from compbench.store.records import Problem, Store, read_published

if TYPE_CHECKING:
    from compbench.api.schemas import Artifact, Record

PAPERS = "papers.csv"
MATRIX = "matrix.json"
"""File next to the records: the output of `compbench list --matrix --json`, which tells why a cell of the board is empty."""

PROFILES = "profiles"
"""Folder next to the records: the measurements of `compbench profile`."""


def rebuild(records: Path, output: Path, *, link: bool = False) -> tuple[tuple[Path, ...], list[Problem]]:
    """Build the board of all records in a folder.

    Args:
        records: folder of records, with their pictures next to them.
        output: where the board's files go.
        link: the page links to the pictures next to the records instead of embedding them.

    Returns:
        the written files, and the files of records and levels that cannot be used.
    """
    material, problems = read(records, output, link=link)
    return build(material, output), problems


def stale(records: Path, output: Path, *, link: bool = False, hardware: str = "") -> list[Path]:
    """The files of a board that differ from what the records give."""
    material, _ = read(records, output, link=link, hardware=hardware)
    return stale_files(material, output)


def read(
    records: Path, output: Path, *, link: bool = False, names: Sequence[str] | None = None, hardware: str = ""
) -> tuple[Material, list[Problem]]:
    """Everything that a board is made from, and the files that cannot be used.

    Args:
        records: folder of records, with their pictures next to them.
        output: folder of the page, from which its links are written.
        link: the page links to the pictures instead of embedding them.
        names: files of the records to read; None reads all.
        hardware: part of the name of the machine whose speeds are shown; "" means the machine with most measurements.

    Raises:
        CompbenchError: no measured machine, or more than one, has such a name.
    """
    store = Store(records)
    found, problems = read_published(records, names)
    standings, more = verification.read(verification.beside(records), found, records)
    way = quote(os.path.relpath(records.resolve(), output.resolve()).replace(os.sep, "/"))

    def picture(record: Record) -> Picture | None:
        grid, content = store.sample_grid(record), store.picture(record)
        if grid is None or content is None:
            return None

        def address(artifact: Artifact) -> str:
            return f"{way}/{quote(artifact.name)}" if link else ""

        heldout = tuple(tiles for _, tiles in numbered(store, record, PART, address))
        film = numbered(store, record, FRAME, address)
        return Picture(record.spec.seed, content, address(grid), heldout=heldout, film=film)

    tasks = catalogue(record.spec.task for record in found)
    measured, bad = read_profiles(records.parent / PROFILES)
    modules = {record.spec.method: record.plugin.module for record in sorted(found, key=lambda record: record.started)}
    methods = method_facts(modules, output, records.resolve().parent.parent)
    papers = papers_beside(records)
    reasons, wrong = matrix_beside(records)
    material = Material(
        records=found,
        papers=papers,
        pictures=picture,
        standings=standings,
        catalogue=tasks,
        costs=Costs(measured, {name: facts.kind for name, facts in tasks.items() if facts.kind}, hardware),
        methods=methods,
        reasons=reasons,
        way=way,
        lattices=lattices(found),
        links=links(output, records.resolve().parent.parent),
    )
    return material, [*problems, *more, *bad, *wrong]


PAGES = (
    ("how it is judged", "docs/boards.md"),
    ("papers", "docs/papers.md"),
    ("methods", "docs/methods.md"),
    ("code", "README.md"),
)
"""The page's head links to these files of the repository that holds the records."""


def links(output: Path, root: Path) -> tuple[tuple[str, str], ...]:
    """Text and address of the `PAGES` that exist in the repository, relative to the page."""
    found = ((words, root / name) for words, name in PAGES)
    return tuple(
        (words, quote(os.path.relpath(path, output.resolve()).replace(os.sep, "/"))) for words, path in found if path.is_file()
    )


def papers_beside(records: Path) -> Path | None:
    """The papers' own figures: `papers.csv` next to the folder of records, else the installed copy."""
    for path in (records.parent / PAPERS, Path(__file__).with_name(PAPERS)):
        if path.is_file():
            return path
    return None


def matrix_beside(records: Path) -> tuple[dict[str, dict[str, str]], list[Problem]]:
    """The matrix next to a folder of records; empty if there is none, or, with a problem that says why, if it is unreadable."""
    path = records.parent / MATRIX
    if not path.is_file():
        return {}, []
    try:
        return TypeAdapter(dict[str, dict[str, str]]).validate_json(path.read_bytes()), []
    except ValueError as error:
        return {}, [Problem(path, f"is not what `compbench list --matrix --json` prints: {str(error).splitlines()[0]}")]
