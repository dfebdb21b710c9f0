"""Plot one score against another, one point per method: quality against coverage of a distribution, utility against distance.

    compbench sweep --file silos-table1 --preset paper
    python experiments/score_scatter.py --task cmnist-noniid --preset paper --x heldout_recall --y heldout_precision

    compbench sweep --file silos-figure6 --preset paper
    python experiments/score_scatter.py --task chest-noniid --preset paper --x all_fid --y all_utility

These are DCFM's figure 6, left and right.  A point is the mean over a row's seeds, and its bars are one standard deviation;
references (oracles, pooled silos) are hollow.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from compbench.board.build import tables
from compbench.board.cells import Cell
from compbench.board.row import BoardRow
from compbench.board.site import read
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


class Point(NamedTuple):
    """One row of the board: its two scores."""

    label: str
    reference: bool
    x: Cell
    y: Cell


def points(folder: Path, task: str, preset: str, scores: tuple[str, str]) -> list[Point]:
    """The rows of a task at its default settings that have both scores, by label.

    Raises:
        CompbenchError: no row has both scores; the message names the scores that exist.
    """
    board, _ = tables(read(folder, folder)[0])
    rows = [row for row in board.rows if (row.section.task, row.section.preset) == (task, preset) and not row.section.changed]
    found = [_point(row, *scores) for row in rows if set(scores) <= row.scores.keys()]
    if not found:
        known = sorted({name for row in rows for name in row.scores}) or ["no finished record"]
        raise CompbenchError(
            f"no row of '{task}' at {preset} in {folder} has {' and '.join(scores)}; there is {', '.join(known)}."
        )
    return sorted(found, key=lambda point: point.label)


def _point(row: BoardRow, x: str, y: str) -> Point:
    return Point(row.label, row.kind == "reference", row.scores[x], row.scores[y])


def figure(found: list[Point], title: str, out: Path) -> None:
    """Draw the points, each next to its name."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(6, 4.2), layout="constrained")
    axes = drawing.subplots()
    for number, point in enumerate(found):
        colour = f"C{number % 10}"
        filled = "none" if point.reference else colour
        bars = {"xerr": point.x.std, "yerr": point.y.std, "elinewidth": 0.8}
        axes.errorbar(point.x.mean, point.y.mean, fmt="o", color=colour, markerfacecolor=filled, **bars)
        axes.annotate(point.label, (point.x.mean, point.y.mean), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.set_xlabel(_axis(found[0].x))
    axes.set_ylabel(_axis(found[0].y))
    axes.set_title(title, fontsize=9)
    axes.margins(0.15)
    drawing.savefig(out, dpi=110)


def _axis(cell: Cell) -> str:
    return f"{cell.name.replace('_', ' ')} ({cell.direction} is better)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Home.of_user().records)
    parser.add_argument("--task", required=True)
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--x", required=True, help="score across")
    parser.add_argument("--y", required=True, help="score upwards")
    parser.add_argument("--out", type=Path, help="picture")
    asked = parser.parse_args()
    try:
        found = points(asked.records, asked.task, asked.preset, (asked.x, asked.y))
    except CompbenchError as error:
        parser.error(str(error))
    for point in found:
        print(
            f"{point.label}  {asked.x} {point.x.mean:.3g} ± {point.x.std:.2g}  {asked.y} {point.y.mean:.3g} ± {point.y.std:.2g}"
        )
    if asked.out:
        figure(found, f"{asked.task}, {asked.preset}", asked.out)


if __name__ == "__main__":
    main()
