"""Filmstrips for a paper, as PDF and SVG: one figure per board, one row per method, one column per point of the training.

The score is printed below each picture.  The first column shows real pictures of the same combination.  `compbench board
--figures` calls this module.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.board.catalogue import Catalogue
from compbench.board.cell_tiles import Film, Tiles
from compbench.board.forest_figures import STYLE, needs_matplotlib, save
from compbench.board.groups import Section
from compbench.store.format import clean

if TYPE_CHECKING:
    import numpy
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TILE, LEFT, ABOVE = 0.55, 1.0, 0.55
"""Inches: the side of a tile, the space for the methods' names, and that for the title."""


def write_films(films: Mapping[Section, tuple[Film, ...]], catalogue: Catalogue, folder: Path) -> tuple[Path, ...]:
    """Write `film-TASK-PRESET` as PDF and SVG for each board that has films; a missing folder is created.

    Returns:
        the files written.

    Raises:
        CompbenchError: matplotlib is not installed.
        Unwritable: a file cannot be written.
    """
    if not films:
        return ()
    mpl = needs_matplotlib()
    written: list[Path] = []
    with mpl.rc_context(STYLE):
        names: Counter[str] = Counter()
        for section, own in films.items():
            stem = f"film-{section.task}-{section.preset}"
            names[stem] += 1
            stem += f"-{names[stem]}" if names[stem] > 1 else ""
            written += save(_figure(own, section, cell_name(own[0].cell, section, catalogue)), folder / stem)
    return tuple(written)


def cell_name(cell: tuple[int, ...], section: Section, catalogue: Catalogue) -> str:
    """A cell in words: names of values where the task has them, otherwise factor and number."""
    known = catalogue.get(section.task)
    factors, values = (known.factors, known.values) if known is not None else ((), ())
    if len(factors) != len(cell):
        return ", ".join(map(str, cell))
    named = zip(cell, factors, values or ((),) * len(cell), strict=True)
    return ", ".join(own[value] if value < len(own) else f"{name} {value}" for value, (name, _), own in named)


def _figure(films: tuple[Film, ...], section: Section, cell: str) -> Figure:
    from matplotlib.figure import Figure

    steps = sorted({frame.step for film in films for frame in film.frames})
    deep = max(len(frame.tiles.facts.cells) for film in films for frame in film.frames)
    height = TILE * deep + 0.25
    figure = Figure(figsize=(LEFT + (TILE + 0.25) * (len(steps) + 1), ABOVE + height * len(films)), layout="constrained")
    panels = figure.subplots(len(films), len(steps) + 1, squeeze=False)
    for film, row in zip(films, panels, strict=True):
        shown = {frame.step: frame for frame in film.frames}
        last = film.frames[-1].tiles
        row[0].set_ylabel(clean(film.method), rotation=0, ha="right", va="center", fontweight="bold")
        _tiles(row[0], last, real=True, under="real")
        for panel, step in zip(row[1:], steps, strict=True):
            if step in shown:
                _tiles(panel, shown[step].tiles, real=False, under=shown[step].score)
            else:
                panel.set_axis_off()
    for panel, step in zip(panels[0][1:], steps, strict=True):
        panel.set_title(f"{step:,}", fontsize=8)
    panels[0][0].set_title("step", fontsize=8)
    figure.suptitle(f"{section.task}, {section.preset}: {clean(cell)}, never seen", fontsize=9, fontweight="bold")
    return figure


def _tiles(panel: Axes, tiles: Tiles, *, real: bool, under: str) -> None:
    """The real or the generated tiles of a film's picture, one below the other."""
    panel.set_xticks([])
    panel.set_yticks([])
    panel.spines[:].set_visible(False)
    panel.set_xlabel(under, fontsize=7)
    if not real or tiles.facts.real:
        panel.imshow(stacked(tiles, real=real), interpolation="nearest")


def stacked(tiles: Tiles, *, real: bool) -> numpy.ndarray:
    """The real or the generated tiles, one below the other, uint8 (n H, W, 3)."""
    import numpy
    from PIL import Image

    facts = tiles.facts
    with Image.open(io.BytesIO(tiles.content), formats=("PNG",)) as picture:
        pixels = numpy.asarray(picture.convert("RGB"))
    height, width = facts.side
    found = []
    for place in range(len(facts.cells)):
        row, column = divmod(place, facts.columns)
        top = (row * (1 + facts.real) + (facts.real and not real)) * height
        found.append(pixels[top : top + height, column * width : (column + 1) * width])
    return numpy.concatenate(found)
