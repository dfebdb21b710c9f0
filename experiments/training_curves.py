"""Plot scores against training steps, for seen and held-out combinations, from runs that kept a curve.

    compbench run --method factored --task shapes3d-heavy --curve 6
    compbench run --method mono --task shapes3d-heavy --curve 6
    compbench run --method slice-cfg --task shapes3d-heavy --curve 6
    python experiments/training_curves.py --task shapes3d-heavy --records ~/.local/share/compbench/records --out curves.png

Each method has a colour; lines are solid for held-out combinations and dashed for seen ones; a band spans the seeds.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.store.records import read_published
from compbench.system.errors import CompbenchError

ROOT = Path(__file__).parent.parent


class Line(NamedTuple):
    """One method's values on a split, by step, with one value per seed."""

    method: str
    split: str
    points: dict[int, list[float]]


def lines(records: list[Record]) -> list[Line]:
    """Curves of all records of one task that have a curve; the last point is the end of the fit."""
    found: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.status != "ok" or not record.curve:
            continue
        primary = next(score.name for score in record.scores if score.primary)
        for name in dict.fromkeys((primary, primary.replace("heldout", "seen"))):
            split = "seen" if name.startswith("seen") else "held out"
            for point in record.curve:
                if name in point.scores:
                    found[record.spec.method, split][point.step].append(point.scores[name])
            end = record.score(name)
            if end is not None and end.value is not None:
                found[record.spec.method, split][record.spec.budget.train_steps].append(end.value)
    return [Line(method, split, dict(sorted(points.items()))) for (method, split), points in sorted(found.items())]


def figure(curves: list[Line], task: str, path: Path) -> None:
    """Draw the curves, steps on a logarithmic axis."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7, 4.2), layout="constrained")
    axes = drawing.subplots()
    methods = sorted({line.method for line in curves})
    for line in curves:
        steps, colour = list(line.points), f"C{methods.index(line.method)}"
        middle = [sum(values) / len(values) for values in line.points.values()]
        style = "-" if line.split == "held out" else "--"
        axes.plot(steps, middle, style, color=colour, marker="o", markersize=3, label=f"{line.method}, {line.split}")
        low, high = ([pick(values) for values in line.points.values()] for pick in (min, max))
        axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_xscale("log", base=2)
    steps = sorted({step for line in curves for step in line.points})
    axes.set_xticks(steps, [str(step) for step in steps])
    axes.set_xlabel("training steps")
    axes.set_ylabel("the score that ranks the board")
    axes.set_title(f"{task}: along training")
    axes.legend(fontsize=8)
    drawing.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--records", type=Path, default=ROOT / "leaderboards" / "records")
    parser.add_argument("--out", type=Path, default=Path("training_curves.png"))
    asked = parser.parse_args()
    records, _ = read_published(asked.records.expanduser())
    curves = lines([record for record in records if record.spec.task == asked.task])
    if not curves:
        raise CompbenchError(f"no record of '{asked.task}' in {asked.records} has a curve: compbench run --curve 6 makes one.")
    figure(curves, asked.task, asked.out)
    for line in curves:
        values = ", ".join(f"{step}: {sum(values) / len(values):.3g}" for step, values in line.points.items())
        print(f"{line.method}, {line.split}  {values}")


if __name__ == "__main__":
    main()
