"""The coverage ladder: share attained on held-out cells against the share of cells seen, from records.

    compbench sweep --file coverage-ladder --preset quick
    python experiments/coverage_ladder.py --task cmnist-diagonal --out docs/coverage_ladder.png

A line a method: full for orthotopic designs, dashed for random ones of the same size; C_min is marked.  A share is of the way
from chance (a random cell of the lattice) to the judge's ceiling, a point the mean over seeds, its bar their range.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from compbench.board.scale import Scale
from compbench.factors import minimum_coverage
from compbench.home import Home
from compbench.interfaces import Task
from compbench.registry import Registry
from compbench.schemas import Record
from compbench.store.records import Store
from compbench.tasks.coverage import CoverageSettings

DESIGNS = {"orthotopic": "-", "random": "--"}


class Line(NamedTuple):
    """What is joined: one method under one kind of design."""

    method: str
    design: str


Curve = dict[float, dict[tuple[int, int], float]]
"""Coverage -> (split seed, seed) -> share attained."""


def curves(records: Iterable[Record], task: Task, preset: str) -> dict[Line, Curve]:
    """The newest finished record of each run of a task at a preset, under some coverage, as lines."""
    found: dict[Line, Curve] = defaultdict(lambda: defaultdict(dict))
    for record in sorted(records, key=lambda one: (one.started, one.attempt)):
        spec = record.spec
        if (spec.task, spec.preset, record.status) != (task.name, preset, "ok") or not spec.task_settings.get("coverage"):
            continue
        settings = type(task.settings).model_validate(spec.task_settings)
        assert isinstance(settings, CoverageSettings)
        assert task.configure is not None
        holdout = task.configure(settings).holdout
        cells = holdout.pattern_space.num_combinations
        line = Line(spec.method, settings.design)
        found[line][len(holdout.seen_cells) / cells][settings.split_seed, spec.seed] = share(record, cells)
    return {line: dict(sorted(curve.items())) for line, curve in sorted(found.items())}


def share(record: Record, cells: int) -> float:
    """Of the way from a random cell to the ceiling, by the record's primary score."""
    primary = next(score for score in record.scores if score.primary)
    if primary.value is None or primary.ceiling is None or not primary.metric.endswith("accuracy"):
        raise SystemExit(f"{record.name}: its primary score {primary.name} is no accuracy with a ceiling, of which shares are.")
    return Scale(1 / cells, primary.ceiling).share(primary.value)


def table(found: dict[Line, Curve]) -> str:
    """Markdown: a row a line, a column a coverage."""
    coverages = sorted({coverage for curve in found.values() for coverage in curve})
    rows = ["| method | design | " + " | ".join(f"{coverage:.3g}" for coverage in coverages) + " |"]
    rows.append("|" + " --- |" * (2 + len(coverages)))
    for line, curve in found.items():
        cells = [f"{fmean(curve[c].values()):.2f} ({len(curve[c])})" if c in curve else "" for c in coverages]
        rows.append(f"| {line.method} | {line.design} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def draw(found: dict[Line, Curve], task: Task, out: Path) -> None:
    """One axis: share attained against coverage, and C_min."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4))
    colours = {name: f"C{k}" for k, name in enumerate(dict.fromkeys(line.method for line in found))}
    for line, curve in found.items():
        means = [fmean(points.values()) for points in curve.values()]
        below = [mean - min(points.values()) for mean, points in zip(means, curve.values(), strict=True)]
        above = [max(points.values()) - mean for mean, points in zip(means, curve.values(), strict=True)]
        axis.errorbar(
            list(curve),
            means,
            yerr=[below, above],
            color=colours[line.method],
            linestyle=DESIGNS[line.design],
            marker="o",
            markersize=3,
            capsize=2,
            label=line.method if line.design == "orthotopic" else f"{line.method}, random",
        )
    least = minimum_coverage(task.holdout.pattern_space.sizes)
    axis.axvline(least, color="0.5", linestyle=":")
    axis.annotate("C_min", (least, 1.0), xytext=(3, -2), textcoords="offset points", va="top", color="0.4")
    axis.set(xlabel="share of the cells seen", ylabel="share attained on held-out cells", ylim=(-0.02, 1.02), title=task.name)
    axis.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(out, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Home.of_user().records)
    parser.add_argument("--task", default="cmnist-diagonal")
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--out", type=Path, help="picture")
    asked = parser.parse_args()
    task = Registry().load("tasks", asked.task)
    found = curves(Store(asked.records).read()[0], task, asked.preset)
    if not found:
        parser.error(
            f"no finished records of {asked.task} under a coverage at {asked.preset} in {asked.records}; run the sweep first."
        )
    print(table(found))
    if asked.out:
        draw(found, task, asked.out)


if __name__ == "__main__":
    main()
