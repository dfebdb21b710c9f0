"""Boards for tests of their pages, and tables of simulated runs."""

from __future__ import annotations

from collections.abc import Iterable

from compbench.board.row import Board, BoardRow


def whole(rows: Iterable[BoardRow]) -> Board:
    """A board of rows, of whose sections nothing more is known."""
    return Board(tuple(rows), {})
