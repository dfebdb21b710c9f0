"""The board as one page: all data are embedded as JSON and drawn by the page's own script; nothing is fetched.

Only pictures may lie outside of the page, if the page is published with its records.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple

from compbench.board.catalogue import Catalogue, TaskFacts
from compbench.board.cell_tiles import Film, Tiles, film_data, parts_data
from compbench.board.cells import Cell
from compbench.board.coverage_ladder import Ladder, ladder_data
from compbench.board.families import Contest
from compbench.board.groups import Section
from compbench.board.notation import (
    BARS,
    SMOKE,
    SPLIT_TITLES,
    Column,
    beyond,
    by_section,
    columns,
    count,
    discriminability_words,
    duration,
    failure,
    heading,
    notes,
    number,
    open_ranks,
    protocol,
    reference,
    spread,
)
from compbench.board.packing import packed
from compbench.board.page_families import MethodFacts, contest_data, default_contest, method_data
from compbench.board.page_questions import view_data
from compbench.board.papers import PaperFigure, paper_of, rows_of
from compbench.board.row import Board, BoardRow
from compbench.board.timing import SiloCosts, Timing
from compbench.board.verdict import MEANINGS, WAY
from compbench.board.view import STATE_WORDS, View, state
from compbench.registry.declared import kind_of_data
from compbench.store.cell_picture import PNG
from compbench.store.format import clean
from compbench.system.files import Json

HERE = Path(__file__).parent
FILES = ("board.html.jinja", "board.css", "charts.js", "questions.js", "cells.js", "board.js")
TEMPLATE, STYLE, *SCRIPTS = (HERE / name for name in FILES)
LARGEST_SIDE = 8192
MOST_CELLS = 2000
"""Largest number of cells of a lattice that is drawn."""
STEP = 4
"""Percent between two letters of a row's heat: `a` is 0 % and `z` is 100 %."""
UNSCORED = "-"
"""The sign in a row's heat for a cell without a score."""


class Picture(NamedTuple):
    """A sample grid.

    Attributes:
        seed: the run's seed.
        content: PNG.
        address: where the page finds the picture; "" if the page contains it.
        variant: the variant of its row.
        heldout: pictures of every held-out cell.
        film: pictures of one held-out cell, by training step.
    """

    seed: int
    content: bytes
    address: str = ""
    variant: str = ""
    heldout: tuple[Tiles, ...] = ()
    film: tuple[tuple[int, Tiles], ...] = ()

    @property
    def uri(self) -> str:
        """The address of the picture, or a data URI with its bytes."""
        return self.address or "data:image/png;base64," + base64.b64encode(self.content).decode()


Pictures = Mapping[tuple[Section, str], Picture]
"""Pictures by section and method."""


class Surroundings(NamedTuple):
    """Everything that the page shows in addition to its rows.

    Attributes:
        contests: the matrix of methods by families, at each preset.
        views: the questions and their answers, for each contest.
        catalogue: facts about tasks.
        methods: facts about methods, by name.
        records: address of the folder of records; "" if nothing links to it.
        files: the files next to the page.
        ladders: share attained against coverage.
        family_of: the family that counts a task, by the task's name.
        links: text and address of each link in the page's head.
        shots: held-out scores over shots, as HTML; "" without a run with shots.
        films: for each section, films of one held-out cell during the training of some runs.
    """

    contests: tuple[Contest, ...] = ()
    views: tuple[View, ...] = ()
    catalogue: Catalogue = {}
    methods: Mapping[str, MethodFacts] = {}
    records: str = ""
    files: tuple[str, ...] = ()
    ladders: tuple[Ladder, ...] = ()
    family_of: Mapping[str, str] = {}
    links: tuple[tuple[str, str], ...] = ()
    shots: str = ""
    films: Mapping[Section, tuple[Film, ...]] = {}


ALONE = Surroundings()


def to_html(board: Board, figures: Sequence[PaperFigure], pictures: Pictures, surroundings: Surroundings = ALONE) -> str:
    """The whole page.

    Args:
        board: as `aggregate` gives it.
        figures: the papers' figures.
        pictures: sample grids; a file that is not a PNG is left out.
        surroundings: everything else that the page shows.
    """
    import jinja2
    import markupsafe

    sections = by_section(board.rows)
    boards = []
    kinds: dict[Column, int] = {}  # filled by the boards, which have most columns in common
    for index, (section, own) in enumerate(sections.items()):
        discriminability = board.discriminability.get(section)
        family = surroundings.family_of.get(section.task, "")
        made = _board(section, own, list(sections), tuple(figures), pictures, family, kinds)
        made |= {
            "id": str(index),
            "told": discriminability_words(discriminability, board.missing.get(section, ())),
            "ranks": discriminability.ranks if discriminability and section not in board.missing else None,
            "films": film_data(surroundings.films.get(section, ())),
        }
        boards.append(made | {"facts": _facts(surroundings.catalogue.get(section.task), section.changed)})
    places = {section: (str(index), tuple(own)) for index, (section, own) in enumerate(sections.items())}
    data = {
        "boards": boards,
        "columns": [_column(column) for column in kinds],
        "views": [view_data(view, places) for view in surroundings.views],
        "contests": [contest_data(contest) for contest in surroundings.contests],
        "first": default_contest(surroundings.contests),
        "verdicts": dict(MEANINGS),
        "way": WAY,
        "states": dict(STATE_WORDS),
        "smoke": SMOKE,
        "bars": BARS,
        "methods": method_data(board.rows, figures, surroundings.methods),
        "ladders": [ladder_data(one, surroundings.family_of.get(one.section.task, "")) for one in surroundings.ladders],
        "records": surroundings.records,
    }
    environment = jinja2.Environment(autoescape=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    style, *scripts = (markupsafe.Markup(path.read_text(encoding="utf-8")) for path in (STYLE, *SCRIPTS))
    return template.render(
        data=embedded(data),
        style=style,
        verdicts=tuple(MEANINGS.items()),
        scripts=scripts,
        links=surroundings.links,
        shots=markupsafe.Markup(surroundings.shots),
        linked=any(picture.address for picture in pictures.values()),
        downloads=surroundings.files,
        num_boards=len(boards),
        num_tasks=len({section.task for section in sections}),
        num_methods=len({row.method for row in board.rows}),
        num_rows=len(board.rows),
        num_runs=sum(sum(row.statuses.values()) for row in board.rows),
    )


def _facts(known: TaskFacts | None, changed: Sequence[str]) -> dict[str, Json] | None:
    """Facts about a task.  A task with changed settings gets no picture, because the picture shows its default settings."""
    if known is None:
        return None
    other = any(entry.split("=")[0] in known.settings for entry in changed)
    return {
        "summary": f"by default: {known.summary}" if other else known.summary,
        "citation": known.citation,
        "paper": [paper.short, paper.title, paper.address] if (paper := paper_of(known.citation)) else None,
        "files": list(known.files),
        "factors": [] if other else [[name, size] for name, size in known.factors],
        "values": [] if other else [list(values) for values in known.values],
        "cells": [list(cell) for cell in known.cells] if len(known.cells) <= MOST_CELLS else [],
    }


def embedded(data: object) -> object:
    """Packed JSON that is safe inside a script element: it contains no HTML markup, whatever its strings are."""
    import markupsafe

    text = packed(data)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return markupsafe.Markup(text)


def _board(
    section: Section,
    rows: Sequence[BoardRow],
    among: Sequence[Section],
    figures: tuple[PaperFigure, ...],
    pictures: Pictures,
    family: str,
    kinds: dict[Column, int],
) -> dict[str, Json]:
    """A section's board; `kinds`, which numbers the columns of all boards, may grow."""
    papers = rows_of(figures, section.task)
    known = columns(rows, [figure for figure in figures if figure.task == section.task])
    shown = [column for column in known if not column.reason]
    title = heading(section, among).split(", ")[0]
    cells: dict[tuple[tuple[int, ...], ...], int] = {}
    heats = [_heat(row) for row in rows]
    places = list(dict.fromkeys(cell for heat in heats for cell in heat))
    reasons: dict[str, int] = {}  # filled by the rows
    lines = [
        _row(row, shown, "".join(heat.get(cell, UNSCORED) for cell in places) if heat else "", reasons)
        for row, heat in zip(rows, heats, strict=True)
    ]
    kept = [
        {
            "method": method,
            "variant": clean(picture.variant),
            "seed": picture.seed,
            "uri": picture.uri,
            "held": parts_data(picture.heldout, cells),
        }
        for (where, method), picture in sorted(pictures.items())
        if where == section and _is_picture(picture.content)
    ]
    return {
        "task": section.task,
        "title": title,
        "family": family,
        "preset": section.preset,
        "protocol": protocol(section),
        "source": kind_of_data(section.source),
        "fingerprint": clean(section.fingerprint),
        "version": section.task_version,
        "columns": [kinds.setdefault(column, len(kinds)) for column in shown],
        "missing": [[f"{SPLIT_TITLES[c.split]}: {c.title}".removeprefix(": "), c.reason] for c in known if c.reason],
        "rows": lines,
        "places": places,
        "reasons": list(reasons),
        "papers": [_paper(name, own, shown) for name, own in papers.items()],
        "pictures": kept,
        "cells": [[list(cell) for cell in own] for own in cells],
    }


def _is_picture(content: bytes) -> bool:
    """Whether bytes begin as a PNG of a size that a browser can show."""
    if not content.startswith(PNG) or len(content) < 24:
        return False
    return all(0 < side <= LARGEST_SIDE for side in struct.unpack(">II", content[16:24]))  # width and height in IHDR


def _column(column: Column) -> dict[str, Json]:
    return {
        "key": column.key,
        "title": column.title,
        "split": SPLIT_TITLES[column.split],
        "direction": column.direction,
        "unit": column.unit,
        "primary": column.primary,
        "detail": column.detail,
    }


def _row(row: BoardRow, shown: Sequence[Column], heat: str, reasons: dict[str, int]) -> dict[str, Json]:
    """A row; `heat` is in the order of its board's places, and `reasons`, which numbers reasons for missing scores, may grow."""
    primary = row.scores.get(row.primary)
    span = primary.interval if primary else None
    return {
        "method": row.method,
        "variant": clean(row.variant),
        "kind": row.kind,
        "device": clean(row.device),
        "precision": row.precision,
        "rank": row.rank.rank if row.rank else None,
        "range": open_ranks(row.rank),
        "seeds": len(row.seeds),
        "runs": sum(row.statuses.values()),
        "cells": [_cell(row.scores.get(c.key), row.unavailable.get(c.key), reasons) for c in shown],
        "state": state(row) if row.kind != "ablation" else "ablation",
        "interval": [_short(span.low), _short(span.high)] if span else None,
        "span": f"{number(span.low)} to {number(span.high)}" if span else "",
        "middle": f"{number(row.fits.median)} {number(row.fits.worst)}" if row.fits and len(row.seeds) > 1 else "",
        "records": _prefixed(row.records),
        "timing": _timing(row.timing),
        "parameters": [row.parameters, count(row.parameters)],
        "evaluations": row.evaluations,
        "failures": [failure(entry) for entry in row.failures],
        "statuses": row.statuses,
        "notes": list(notes(row)),
        "beyond": beyond(row) if row.beyond else "",
        "heat": heat,
        "tag": reference(row) if row.kind == "reference" else "",
        "level": row.level,
        "training": row.training,
    }


def _prefixed(names: Sequence[str]) -> list[str]:
    """The common prefix of the names, then the rest of each."""
    shared = os.path.commonprefix(names)  # noqa: RUF071  these are not paths
    return [shared, *(name.removeprefix(shared) for name in names)]


def _heat(row: BoardRow) -> dict[str, str]:
    """Percent of correct samples by cell, as `heat_code` writes it: {"0,3": "Q3", "1,3": "w2"} for 67 % and 90 %.

    The counts are of the primary score and its twin on seen cells, over all seeds.  If each seed has its own pattern, a cell can
    be held out in one seed and seen in another: its number is that of the primary score.
    """
    both = (row.primary.replace("heldout", "seen"), row.primary)  # the primary score replaces its twin
    found: dict[str, str] = {}
    for score in (row.scores[name] for name in both if name in row.scores):
        held = score.split == "heldout"
        shares = ((count.cell, count.right / count.n) for count in score.by_cell if count.n)
        found |= {",".join(map(str, cell)): heat_code(round(100 * share), held=held) for cell, share in shares}
    return found


def heat_code(percent: int, *, held: bool) -> str:
    """A percentage in one or two characters: a letter for each `STEP` percent, then the rest if there is one.

    Args:
        percent: 0 to 100.
        held: whether the cell is held out, which a capital letter shows.
    """
    letter, rest = ascii_lowercase[percent // STEP], percent % STEP
    return (letter.upper() if held else letter) + (str(rest) if rest else "")


def _cell(cell: Cell | None, reason: str | None, reasons: dict[str, int]) -> object:
    """[value, text, spread, ceiling, floor, seeds], [place of the reason in `reasons`, which gets a new one], or None."""
    if cell is None:
        return None if reason is None else [reasons.setdefault(clean(reason) or "no reason given", len(reasons))]
    beside = spread(cell.std, cell.mean) if cell.num_seeds > 1 else ""
    return [_short(cell.mean), number(cell.mean), beside, _short(cell.ceiling), number(cell.floor), cell.num_seeds]


def _timing(timing: Timing | None) -> dict[str, Json] | None:
    if timing is None:
        return None
    samples, steps = timing.sample_samples_per_second, timing.train_steps_per_second
    return {
        "hardware": clean(timing.hardware),
        "clean": timing.clean,
        "runs": timing.num_runs,
        "samples": [_short(samples), number(samples)],
        "steps": [_short(steps), number(steps)],
        "remark": clean(timing.remark),
        "latency": [_short(timing.latency_p50_ms), number(timing.latency_p50_ms)],
        "p95": number(timing.latency_p95_ms),
        "trainFlops": [_short(timing.train_flops), count(timing.train_flops)],
        "sampleFlops": [_short(timing.sample_flops), count(timing.sample_flops)],
        "shared": timing.shared,
        "memory": [timing.peak_memory_bytes, count(timing.peak_memory_bytes) and count(timing.peak_memory_bytes) + "B"],
        "seconds": [_short(timing.seconds), duration(timing.seconds)],
        "silos": _silos(timing.silos),
    }


def _silos(silos: SiloCosts | None) -> dict[str, Json] | None:
    if silos is None:
        return None
    return {
        "words": f"{silos.num_silos} silos, {silos.rounds:g} rounds each; the slowest computed {duration(silos.slowest)}",
        "sent": [silos.bytes_out, f"{count(silos.bytes_out)}B"],
        "received": [silos.bytes_in, f"{count(silos.bytes_in)}B"],
        "compute": [_short(silos.seconds), duration(silos.seconds)],
        "server": [silos.server_steps, number(silos.server_steps)],
    }


def _paper(name: tuple[str, str], own: Mapping[str, PaperFigure], shown: Sequence[Column]) -> dict[str, Json]:
    tables = sorted({figure.table for figure in own.values() if figure.table})
    remarks = sorted({clean(figure.note) for figure in own.values() if figure.note})
    cells = [own.get(column.key) for column in shown]
    return {
        "paper": clean(name[0]),
        "method": clean(name[1]),
        "table": ", ".join(map(clean, tables)),
        "note": "; ".join(remarks),
        "cells": [f and [number(f.mean), "" if f.std is None else spread(f.std, f.mean)] for f in cells],
    }


def _short(value: float | None) -> float | None:
    """A value with five significant digits, which sorting and plotting need."""
    return None if value is None else float(f"{value:.5g}")
