"""Pictures of cells on the board: all held-out cells of a run, and films, each of one held-out cell during training."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from compbench.api.schemas import Artifact, Record
from compbench.board.groups import Section
from compbench.board.row import BoardRow
from compbench.board.view import value_words
from compbench.store.cell_picture import FILM, HELDOUT, CellPicture, facts_of
from compbench.store.format import clean
from compbench.store.records import Store, read_artifact
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

PART = re.compile(rf"\.{HELDOUT}-(\d{{1,2}})\.png$")
FRAME = re.compile(rf"\.{FILM}-(\d{{1,12}})\.png$")


class Tiles(NamedTuple):
    """A picture of cells.

    Attributes:
        content: PNG.
        facts: which cell each tile shows.
        address: where the page finds the picture; "" if the page contains it.
    """

    content: bytes
    facts: CellPicture
    address: str = ""

    @property
    def uri(self) -> str:
        """The address of the picture, or a data URI with its bytes."""
        return self.address or "data:image/png;base64," + base64.b64encode(self.content).decode()


class Frame(NamedTuple):
    """A frame of a film: the training step, the ranking score at that step in words, and the samples."""

    step: int
    score: str
    tiles: Tiles


class Film(NamedTuple):
    """One held-out cell during the training of a run; `cell` is in the order of the holdout's factors."""

    method: str
    variant: str
    seed: int
    cell: tuple[int, ...]
    frames: tuple[Frame, ...]


def numbered(
    store: Store, record: Record, pattern: re.Pattern[str], address: Callable[[Artifact], str]
) -> tuple[tuple[int, Tiles], ...]:
    """The pictures of a record whose names match, sorted by the number in the name; damaged ones are left out."""
    found = {}
    for artifact in record.artifacts:
        match = pattern.search(artifact.name)
        if match is None or "/" in artifact.name:
            continue
        try:
            content = read_artifact(store.folder, artifact)
        except CompbenchError:
            continue
        if (facts := facts_of(content)) is not None:
            found[int(match[1])] = Tiles(content, facts, address(artifact))
    return tuple(sorted(found.items()))


def films(
    rows: Sequence[BoardRow], records: Sequence[Record], reel: Callable[[Record], Sequence[tuple[int, Tiles]]]
) -> dict[Section, tuple[Film, ...]]:
    """The films of each section: one per row, from the row's smallest seed.

    Args:
        rows: rows of the board; the films keep their order.
        records: the records of all rows.
        reel: a record's pictures of one cell, by step.
    """
    by_name = {record.name: record for record in records if any(FRAME.search(artifact.name) for artifact in record.artifacts)}
    found: dict[Section, list[Film]] = {}
    for row in rows:
        for name in row.records:  # by seed
            record = by_name.get(name)
            frames = tuple(_frames(row, record, reel(record))) if record is not None else ()
            if record is not None and len(frames) > 1:
                cell = frames[-1].tiles.facts.cells[0]
                found.setdefault(row.section, []).append(Film(row.method, row.variant, record.spec.seed, cell, frames))
                break
    return {section: tuple(own) for section, own in found.items()}


def _frames(row: BoardRow, record: Record, reel: Sequence[tuple[int, Tiles]]) -> Iterator[Frame]:
    cell = row.scores.get(row.primary)
    end = record.score(row.primary)
    values = {point.step: point.scores.get(row.primary) for point in record.curve}
    for step, tiles in reel:
        value = values.get(step, end.value if end is not None and step == record.spec.budget.train_steps else None)
        yield Frame(step, "" if value is None or cell is None else value_words(cell, value), tiles)


def film_data(found: Sequence[Film]) -> list[Json]:
    """The films of a section as JSON for the page."""
    return [
        {
            "method": film.method,
            "variant": clean(film.variant),
            "seed": film.seed,
            "cell": list(film.cell),
            "frames": [{"step": frame.step, "score": frame.score, **_tile_data(frame.tiles)} for frame in film.frames],
        }
        for film in found
    ]


def parts_data(parts: Sequence[Tiles], known: dict[tuple[tuple[int, ...], ...], int]) -> Json:
    """A run's pictures of all held-out cells as JSON for the page; None if it has none.

    Args:
        parts: the pictures in their order.
        known: the lists of cells on the page and their positions; new lists are added, so that methods share them.
    """
    if not parts:
        return None
    own = [{**_tile_data(tiles), "cells": known.setdefault(tiles.facts.cells, len(known))} for tiles in parts]
    return {"of": parts[0].facts.of, "parts": own}


def _tile_data(tiles: Tiles) -> Mapping[str, Json]:
    facts = tiles.facts
    return {
        "uri": tiles.uri,
        "side": list(facts.side),
        "columns": facts.columns,
        "count": len(facts.cells),
        "real": facts.real,
    }
