"""The board's files are CSV, Markdown, and one HTML page that works offline.  The same records give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.api.context import PRESETS
from compbench.api.schemas import Record
from compbench.board.aggregate import aggregate
from compbench.board.catalogue import Catalogue, Lattice
from compbench.board.cell_tiles import Film, Tiles, films
from compbench.board.coverage_ladder import ladders
from compbench.board.families import Contest, Families, contests, family_of, installed_families, required
from compbench.board.film_figures import write_films
from compbench.board.forest_figures import write_figures
from compbench.board.groups import Section
from compbench.board.page_families import MethodFacts, default_contest
from compbench.board.papers import read
from compbench.board.render_csv import rows_csv, scores_csv
from compbench.board.render_families import families_csv, families_markdown, tasks_csv
from compbench.board.render_html import Picture, Surroundings, to_html
from compbench.board.render_markdown import to_markdown
from compbench.board.render_shots import shots_csv, shots_html, shots_markdown, shots_svg
from compbench.board.render_svg import to_svg
from compbench.board.row import Board, BoardRow
from compbench.board.sealed_drops import drops, drops_csv, drops_markdown
from compbench.board.shot_prices import prices
from compbench.board.view import View, views
from compbench.store.profiles import Costs
from compbench.store.records import collector_paused
from compbench.store.verification import Verification
from compbench.system.errors import CompbenchError
from compbench.system.files import write_atomically

CHART = "decomposition.svg"
"""Chart of inference-time and estimation errors; it is written if some method also ran on exact scores."""

SHOTS_CHART = "shots.svg"
"""Chart of held-out scores over shots; it is written if some method was run with shots."""
MOST_GRIDS = 60
"""If at most this many records have a picture, each section shows its own pictures."""

PictureOf = Callable[[Record], Picture | None]
Standings = Mapping[str, Verification]


class Material(NamedTuple):
    """Everything that a board is made from.

    Attributes:
        records: in any order.
        papers: the papers' figures (`papers.csv`), or None.
        pictures: record -> its sample grid, if it has one.
        standings: verification level of each record, by its name.
        catalogue: facts about tasks that are not in their records.
        costs: measured costs of methods on one machine.
        methods: facts about methods, by name.
        reasons: for each method and task, why the method cannot work there; "" if it can (`list --matrix --json`).
        way: address of the folder of records, as seen from the page; "" if nothing links to it.
        lattices: factor grids of the tasks that were run at a coverage, by `lattice_key`.
        families: the tasks over which each family is ranked; None takes the families of the installed tasks.
        links: text and address of each link in the page's head.
    """

    records: Sequence[Record]
    papers: Path | None = None
    pictures: PictureOf = lambda record: None
    standings: Standings = {}
    catalogue: Catalogue = {}
    costs: Costs = Costs()
    methods: Mapping[str, MethodFacts] = {}
    reasons: Mapping[str, Mapping[str, str]] = {}
    way: str = ""
    lattices: Mapping[tuple[str, str], Lattice] = {}
    families: Families | None = None
    links: tuple[tuple[str, str], ...] = ()


Answers = tuple[Board, tuple[Contest, ...], tuple[View, ...]]
"""All rows, the matrix of methods by families, and the questions with their answers, at each preset."""


def build(material: Material, destination: Path, known: Answers | None = None) -> tuple[Path, ...]:
    """Write the board's files into a folder, each whole or not at all; a missing folder is created.

    Args:
        known: the result of `answers` for this material, if it was computed before.

    Returns:
        the files written.
    """
    files = contents(material, known)
    for name, content in files.items():
        write_atomically(destination / name, content)
    return tuple(destination / name for name in files)


def stale(material: Material, destination: Path) -> list[Path]:
    """Files of a board that are missing or differ from what the records give; nothing is written."""
    paths = {destination / name: content for name, content in contents(material).items()}
    return [path for path, content in paths.items() if not path.is_file() or path.read_bytes() != content]


def _families(material: Material) -> Families:
    """The tasks over which each family is ranked."""
    return installed_families() if material.families is None else material.families


def tables(material: Material) -> tuple[Board, tuple[Contest, ...]]:
    """All rows, and the matrix of methods by families at each preset."""
    defaults = {(name, facts.distribution): (facts.version, facts.defaults) for name, facts in material.methods.items()}
    families = _families(material)
    needed = required(material.reasons, families)
    board = aggregate(material.records, material.standings, material.catalogue, material.costs, defaults, needed)
    return board, contests(board, material.reasons, families)


def answers(material: Material) -> Answers:
    """All rows, the matrix of methods by families, and the questions with their answers, at each preset."""
    families = _families(material)
    board, found = tables(material._replace(families=families))
    return board, found, views(board, found, families, material.catalogue)


def opened_on(found: Sequence[Contest], made: Sequence[View]) -> View | None:
    """The view that the page opens on."""
    return made[default_contest(found)] if made else None


def draw(material: Material, folder: Path, known: Answers | None = None) -> tuple[Path, ...]:
    """Write the page's filmstrips and the forest plots of the preset that the page opens on into a folder.

    Args:
        known: the result of `answers` for this material, if it was computed before.

    Raises:
        CompbenchError: there is nothing to draw, or matplotlib is not installed.
    """
    board, found, made = known or answers(material)
    view, reels = opened_on(found, made), films_of(board, material)
    plots = view is not None and view.questions
    if not plots and not reels:
        raise CompbenchError("no core task was run under its own protocol, so there is no figure to draw.")
    forests = write_figures(view, folder) if view is not None and plots else ()
    return (*forests, *write_films(reels, material.catalogue, folder))


def films_of(board: Board, material: Material) -> dict[Section, tuple[Film, ...]]:
    """The filmstrips of each section, from runs of `run --curve` that kept samples of one held-out cell during training."""

    def reel(record: Record) -> tuple[tuple[int, Tiles], ...]:
        picture = material.pictures(record)
        return picture.film if picture is not None else ()

    return films(board.rows, material.records, reel)


def contents(material: Material, known: Answers | None = None) -> Mapping[str, bytes]:
    """The bytes of the board's files, by name: tables, the page, and the chart if it shows something."""
    figures = read(material.papers)
    with collector_paused():
        families = _families(material)
        board, found, asked = known or answers(material._replace(families=families))
        chart, sealed, shots = to_svg(board.rows), drops(board.rows), prices(board.rows)
        overall = families_markdown(found) + drops_markdown(sealed) + shots_markdown(shots, SHOTS_CHART)
        grids = sample_grids(board.rows, material.records, material.pictures)
        files = {
            "board.csv": scores_csv(board.rows, figures),
            "rows.csv": rows_csv(board.rows),
            "families.csv": families_csv(found),
            "tasks.csv": tasks_csv(board),
            "board.md": to_markdown(
                board,
                figures,
                views=asked,
                overall=overall,
                chart=CHART if chart else "",
            ),
            **({CHART: chart} if chart else {}),
            **({"sealed.csv": drops_csv(sealed)} if sealed else {}),
            **({"shots.csv": shots_csv(shots), SHOTS_CHART: shots_svg(shots)} if shots else {}),
        }
        curves = ladders(board.rows, material.lattices)
        beside = Surroundings(
            contests=found,
            views=asked,
            catalogue=material.catalogue,
            methods=material.methods,
            records=material.way,
            files=tuple(files),
            ladders=curves,
            shots=shots_html(shots),
            family_of=family_of(families),
            links=material.links,
            films=films_of(board, material),
        )
        files["index.html"] = to_html(board, figures, grids, beside)
        return {name: content.encode() for name, content in files.items()}


def sample_grids(board: Sequence[BoardRow], records: Sequence[Record], pictures: PictureOf) -> dict[tuple[Section, str], Picture]:
    """One sample grid per section and method, from its best row and that row's smallest seed.

    With more than `MOST_GRIDS` records, each pair of task and method has only one grid, from the longest preset, so that the page
    stays small.
    """
    by_name = {record.name: record for record in records if record.artifacts}
    longest_first = sorted(board, key=lambda row: -PRESETS.index(row.section.preset))
    found: dict[tuple[Section, str], Picture] = {}
    done: set[tuple[Section | str, str]] = set()
    few = len(by_name) <= MOST_GRIDS
    for row in longest_first:  # rows come best first, and sorting keeps that order
        own_place = row.section if few else row.section.task, row.method
        if own_place in done:
            continue
        own = [record for name in row.records if (record := by_name.get(name)) is not None and record.status == "ok"]
        for record in own:  # by seed
            picture = pictures(record)
            if picture is not None:
                found[row.section, row.method] = picture._replace(variant=row.variant)
                done.add(own_place)
                break
    return found
