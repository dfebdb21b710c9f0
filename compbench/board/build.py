"""The board's files: CSV, Markdown, and one HTML page that works offline.  The same records give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compbench.board.aggregate import BoardRow, Section, rows
from compbench.board.overall import contests
from compbench.board.papers import read
from compbench.board.render_csv import to_csv
from compbench.board.render_html import Picture, to_html
from compbench.board.render_markdown import to_markdown
from compbench.board.render_overall import overall_csv, overall_html, overall_markdown, pairs_csv
from compbench.board.render_svg import profiles, to_svg
from compbench.files import write_atomically
from compbench.interfaces import PRESETS
from compbench.schemas import Record
from compbench.store.load import collector_paused
from compbench.store.verification import Standing

CHART = "decomposition.svg"
"""Inference-time and estimation error; written where some method also ran on exact scores."""

PROFILES = "profiles.svg"
"""Performance profiles; written where two tasks or more share a preset and a data source."""

PictureOf = Callable[[Record], Picture | None]
Standings = Mapping[str, Standing]


def build(
    records: Sequence[Record], destination: Path, *, papers: Path | None, pictures: PictureOf, standings: Standings | None = None
) -> tuple[Path, ...]:
    """Write board.csv, board.md, index.html, overall.csv, pairs.csv and the charts that show something, each whole or not at all.

    Args:
        records: in any order.
        destination: folder; made if need be.
        papers: the papers' figures (`papers.csv`), or None.
        pictures: record -> its sample grid, if it has one.
        standings: what the levels of records come to, by their names.

    Returns:
        the files written.
    """
    files = contents(records, papers=papers, pictures=pictures, standings=standings)
    for name, content in files.items():
        write_atomically(destination / name, content)
    return tuple(destination / name for name in files)


def stale(
    records: Sequence[Record], destination: Path, *, papers: Path | None, pictures: PictureOf, standings: Standings | None = None
) -> list[Path]:
    """The files of a board that differ from what the records give, or are not there; nothing is written."""
    files = contents(records, papers=papers, pictures=pictures, standings=standings)
    paths = {destination / name: content for name, content in files.items()}
    return [path for path, content in paths.items() if not path.is_file() or path.read_bytes() != content]


def contents(
    records: Sequence[Record], *, papers: Path | None, pictures: PictureOf, standings: Standings | None = None
) -> Mapping[str, bytes]:
    """The bytes of the board's files, by name."""
    figures = read(papers)
    with collector_paused():
        board = rows(records, standings)
        overall = contests(board)
        charts = {CHART: to_svg(board), PROFILES: profiles(overall)}
        drawn = {name: name if chart else "" for name, chart in charts.items()}
        own = overall_markdown(overall, chart=drawn[PROFILES])
        grids = sample_grids(board, records, pictures)
        files = {
            "board.csv": to_csv(board, figures),
            "board.md": to_markdown(board, figures, overall=own, chart=drawn[CHART]),
            "index.html": to_html(board, figures, grids, overall=overall_html(overall), chart=charts[CHART]),
            "overall.csv": overall_csv(overall),
            "pairs.csv": pairs_csv(overall),
            **{name: chart for name, chart in charts.items() if chart},
        }
        return {name: content.encode() for name, content in files.items()}


def sample_grids(board: Sequence[BoardRow], records: Sequence[Record], pictures: PictureOf) -> dict[tuple[Section, str], Picture]:
    """One sample grid a task and method: of the longest preset, the best row, the smallest seed."""
    by_name = {record.name: record for record in records if record.artifacts}
    longest_first = sorted(board, key=lambda row: -PRESETS.index(row.section.preset))
    found: dict[tuple[Section, str], Picture] = {}
    done: set[tuple[str, str]] = set()
    for row in longest_first:  # rows come best first, and sorting keeps that order
        if (row.section.task, row.method) in done:
            continue
        own = [record for name in row.records if (record := by_name.get(name)) is not None and record.status == "ok"]
        for record in own:  # by seed
            picture = pictures(record)
            if picture is not None:
                found[row.section, row.method] = picture
                done.add((row.section.task, row.method))
                break
    return found
