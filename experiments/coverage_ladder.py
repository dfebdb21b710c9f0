"""Draw the coverage ladder from records: share attained on held-out cells against the share of cells seen.

    compbench sweep --file coverage-ladder --preset quick
    python experiments/coverage_ladder.py --task bump-center --sizes 8,8 --out docs/coverage_ladder.png

Each method has a line: solid for orthotopic designs, dashed for random ones of the same size; C_min is marked.  A share is the
fraction of the way from chance (a random cell of the lattice) to the judge's ceiling.  A point is the mean over seeds, and its
bar is their range.  The board's front page draws the same plot (`compbench.board.coverage_ladder`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Literal

from compbench.board import site
from compbench.board.build import tables
from compbench.board.coverage_ladder import Curve, Ladder, Line, ladders
from compbench.system.home import Home
from compbench.tasks.coverage import CoverageSettings, seen_cells

Design = Literal["orthotopic", "random"]
DESIGNS: dict[Design, str] = {"orthotopic": "-", "random": "--"}


def read(folder: Path, task: str, preset: str) -> Ladder | None:
    """The ladder with the most lines of a task at a preset, from the finished records of a folder; None if there is none."""
    material, _ = site.read(folder, folder)
    board, _ = tables(material)
    rows = [row for row in board.rows if (row.section.task, row.section.preset) == (task, preset)]
    return max(ladders(rows, material.lattices), key=lambda ladder: len(ladder.lines), default=None)


def table(ladder: Ladder) -> str:
    """A Markdown table: a row for each line, a column for each coverage; the number of runs is in brackets."""
    coverages = sorted({coverage for curve in ladder.lines.values() for coverage in curve})
    rows = ["| method | design | " + " | ".join(f"{coverage:.3g}" for coverage in coverages) + " |"]
    rows.append("|" + " --- |" * (2 + len(coverages)))
    for line, curve in ladder.lines.items():
        cells = [f"{fmean(curve[c].values()):.2f} ({len(curve[c])})" if c in curve else "" for c in coverages]
        rows.append(f"| {line.method} | {line.design} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def draw(ladder: Ladder, out: Path) -> None:
    """Draw share attained against coverage, with C_min."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4))
    colours = {name: f"C{k}" for k, name in enumerate(dict.fromkeys(line.method for line in ladder.lines))}
    for line, curve in ladder.lines.items():
        means, bars = _bars(curve)
        axis.errorbar(
            list(curve),
            means,
            yerr=bars,
            color=colours[line.method],
            linestyle=DESIGNS[line.design],
            marker="o",
            markersize=3,
            capsize=2,
            label=_label(line),
        )
    axis.axvline(ladder.least, color="0.5", linestyle=":")
    axis.annotate("C_min", (ladder.least, 1.0), xytext=(-3, -2), textcoords="offset points", va="top", ha="right", color="0.4")
    axis.set(xlabel="share of the cells seen", ylabel="share attained on held-out cells", xlim=(0, 1), ylim=(-0.02, 1.02))
    axis.set_title(", ".join([ladder.section.task, ladder.section.preset, *ladder.section.changed]), fontsize=8)
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.tight_layout()
    figure.savefig(out, dpi=110)
    pyplot.close(figure)


def _bars(curve: Curve) -> tuple[list[float], list[list[float]]]:
    means = [fmean(points.values()) for points in curve.values()]
    ranges = [(min(points.values()), max(points.values())) for points in curve.values()]
    below = [max(0.0, mean - low) for mean, (low, _) in zip(means, ranges, strict=True)]  # means are rounded
    above = [max(0.0, high - mean) for mean, (_, high) in zip(means, ranges, strict=True)]
    return means, [below, above]


def gap(sizes: Sequence[int], coverage: float, design: Design) -> float:
    """Mean Euclidean distance of a held-out cell to the nearest seen one; neighbouring values have distance 1."""
    seen = seen_cells(sizes, CoverageSettings(coverage=coverage, design=design))
    held = set(product(*map(range, sizes))) - set(seen)
    return fmean(min(math.dist(cell, other) for other in seen) for cell in held)


def _label(line: Line) -> str:
    return line.method if line.design == "orthotopic" else f"{line.method}, {line.design}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Home.of_user().records)
    parser.add_argument("--task", default="bump-center")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--sizes", default="", help="lattice sizes (8,8): also print how far held-out cells are from seen ones")
    parser.add_argument("--out", type=Path, help="picture")
    asked = parser.parse_args()
    ladder = read(asked.records, asked.task, asked.preset)
    if ladder is None:
        parser.error(
            f"no finished records of {asked.task} under a coverage at {asked.preset} in {asked.records}; run the sweep first."
        )
    print(table(ladder))
    coverages = sorted({coverage for curve in ladder.lines.values() for coverage in curve})
    for design in DESIGNS if asked.sizes else ():
        gaps = [gap([int(size) for size in asked.sizes.split(",")], coverage, design) for coverage in coverages]
        print(f"held-out cell to the nearest seen one, mean, {design}: {', '.join(f'{each:.2f}' for each in gaps)}")
    if asked.out:
        draw(ladder, asked.out)


if __name__ == "__main__":
    main()
