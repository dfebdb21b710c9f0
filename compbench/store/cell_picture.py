"""The facts in a picture of cells: which cell each of its tiles shows, stored in a text chunk of the PNG.

Tile i is in column i mod `columns`; in each block of rows the real pictures, if any, are above the generated ones.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated

from pydantic import Field, ValidationError

from compbench.api.schemas import Frozen

PNG = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"compbench\0"
"""Keyword at the start of the text chunk with the facts."""
HELDOUT, FILM = "heldout", "film"
"""Names of the pictures of every held-out cell (`heldout-1.png`, ...), and of one cell during training (`film-500.png`, ...)."""
MOST_CELLS, MOST_SIDE = 512, 512
MOST_TEXT = 2**16
Cell = Annotated[tuple[Annotated[int, Field(ge=0, le=10**6)], ...], Field(max_length=20)]


class CellPicture(Frozen):
    """Tiles of generated samples by cell, each below a real sample of the same condition."""

    side: tuple[Annotated[int, Field(ge=1, le=MOST_SIDE)], Annotated[int, Field(ge=1, le=MOST_SIDE)]] = Field(
        description="height and width of a tile in pixels"
    )
    columns: int = Field(ge=1, le=MOST_CELLS, description="tiles in a row")
    cells: tuple[Cell, ...] = Field(min_length=1, max_length=MOST_CELLS, description="cell of each tile, in order")
    real: bool = Field(description="whether a row of real pictures stands above each row of generated ones")
    of: int = Field(ge=1, description="number of all held-out cells")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture in pixels."""
        blocks = -(-len(self.cells) // self.columns)
        return self.columns * self.side[1], blocks * (1 + self.real) * self.side[0]


def film_at(step: int) -> str:
    """Name of the picture of one cell at a step of the training."""
    return f"{FILM}-{step}.png"


def with_facts(png: bytes, facts: CellPicture) -> bytes:
    """A PNG with the facts in a text chunk after its header."""
    text = KEYWORD + facts.model_dump_json().encode("ascii")
    chunk = struct.pack(">I", len(text)) + b"tEXt" + text + struct.pack(">I", zlib.crc32(b"tEXt" + text))
    end = len(PNG) + 12 + 13  # the signature, and IHDR: length, name, 13 bytes, checksum
    return png[:end] + chunk + png[end:]


def facts_of(png: bytes) -> CellPicture | None:
    """The facts in a PNG; None if it has none, or none that fit its size."""
    if not png.startswith(PNG) or len(png) < 33:
        return None
    place = len(PNG)
    while place + 8 <= len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        name, text = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        if name == b"tEXt" and text.startswith(KEYWORD) and length <= MOST_TEXT:
            try:
                found = CellPicture.model_validate_json(text.removeprefix(KEYWORD))
            except ValidationError:
                return None
            return found if found.size == struct.unpack(">II", png[16:24]) else None
        if name in (b"IDAT", b"IEND"):
            return None
        place += 12 + length
    return None
