"""How much data is needed to reach held-out places, against image size: `bump-scaling` by bisection, with fitted exponents.

    python experiments/bump_scaling.py --method pixel-decoder [--sizes 10,12,16,20] [--seeds 5] [--steps 600]
    python experiments/bump_scaling.py --method stripes --set decoder=pixel --set budget.learning_rate=0.003 --output stripes.json
    python experiments/bump_scaling.py --draw pixel.json,stripes.json --output docs/bump_scaling.png

The middle half of both coordinates is held out, and the number of steps is fixed.  Each seed has its own bisection on a grid of
factor 1.25; existing runs are read from COMPBENCH_HOME.  An N^3 law cannot hold for distinct images, of which there are fewer
than N^2, so exponents are fitted for distinct images and for draws; presentations (steps x batch) are the same for all runs and
are listed too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from bisection import fit_exponent, log_grid, smallest_passing

from compbench.api.schemas import RunRequest
from compbench.runner.one_run import run
from compbench.sweep.parse import parse_overrides
from compbench.system.home import Home
from compbench.tasks.bump import Settings, make_task, training_places

COUNTS: dict[str, Callable[[dict[str, int]], int]] = {
    "distinct bumps": lambda found: found["distinct"],
    "draws of bumps": lambda found: found["draws"],
    "distinct images, stripes included": lambda found: found["distinct"] + found["stripes"],
}


def settings_of(size: int, draws: int) -> dict[str, int]:
    """Task settings: the middle half of an image of `size` pixels held out, and `draws` examples."""
    return {"size": size, "first": size // 4, "last": size // 4 + size // 2 - 1, "draws": draws}


def accuracy(asked: argparse.Namespace, size: int, draws: int, seed: int) -> float:
    """Held-out accuracy of one run, within one pixel."""
    overrides: dict[str, Any] = {f"task.{name}": value for name, value in settings_of(size, draws).items()}
    if asked.method == "stripes":
        overrides["num_combinations"] = draws  # use every drawn combination
    overrides |= {"budget.train_steps": asked.steps, **parse_overrides(tuple(asked.set))}
    request = RunRequest(
        task="bump-scaling",
        method=asked.method,
        overrides=overrides,
        seed=seed,
        device=asked.device,
        home=str(Home.of_user().root),
    )
    record = run(request, in_process=True).record
    found = record.score(asked.score)
    if found is None or found.value is None:
        raise SystemExit(f"no {asked.score}: the run ended as '{record.status}'. {record.reason}")
    return found.value


def needed(asked: argparse.Namespace, size: int, seed: int) -> dict[str, int] | None:
    """Counts at the smallest number of draws that reaches the target, or None if none does."""
    seen = size**2 - (size // 2) ** 2
    grid = log_grid(1, 4 * seen)
    draws = smallest_passing(grid, lambda number: accuracy(asked, size, number, seed) >= asked.target)
    if draws is None:
        return None
    task = make_task("bump-scaling", Settings(**settings_of(size, draws)))
    distinct = len(torch.unique(training_places(task.holdout, draws, seed), dim=0))
    return {"distinct": distinct, "draws": draws, "stripes": 2 * size if asked.method == "stripes" else 0}


def curve(asked: argparse.Namespace) -> dict[str, Any]:
    """Needed counts by size and seed, sizes at which no amount of data suffices, and exponents over the other sizes."""
    sizes = [int(size) for size in asked.sizes.split(",")]
    table: dict[int, list[dict[str, int] | None]] = {}
    for size in sizes:
        table[size] = []
        for seed in range(asked.seeds):
            table[size].append(needed(asked, size, seed))
            print(f"{asked.method} N = {size} seed {seed}: {table[size][-1] or 'not reached'}", file=sys.stderr, flush=True)
    reached = [size for size in sizes if all(table[size])]
    facts: dict[str, Any] = {"method": asked.method, "set": asked.set, "target": asked.target, "score": asked.score}
    facts |= {"steps": asked.steps, "presentations": 32 * asked.steps, "needed": table}
    facts |= {"not_reached": [size for size in sizes if size not in reached]}
    if len(reached) > 1:
        facts["exponents"] = {
            name: fit_exponent(reached, [[count(found) for found in table[size] if found] for size in reached])._asdict()
            for name, count in COUNTS.items()
        }
    return facts


def draw(files: list[Path], output: Path) -> None:
    """Draw counts against size on logarithmic axes: a panel per count, a line per file, and bars for the range over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(COUNTS), 3.8), layout="constrained")
    for panel, (title, count) in enumerate(COUNTS.items()):
        axes, ticks = figure.add_subplot(1, len(COUNTS), panel + 1), set()
        for path in files:
            facts = json.loads(path.read_text())
            sizes = [int(size) for size in facts["needed"] if int(size) not in facts["not_reached"]]
            seeds = [sorted(count(found) for found in facts["needed"][str(size)]) for size in sizes]
            ticks |= set(sizes)
            name = " ".join([facts["method"], *facts["set"]])
            if not sizes:
                axes.plot([], [], " ", label=f"{name}: not reached")
                continue
            middle = [median(own) for own in seeds]
            below = [centre - own[0] for centre, own in zip(middle, seeds, strict=True)]
            above = [own[-1] - centre for centre, own in zip(middle, seeds, strict=True)]
            label = name
            if found := facts.get("exponents", {}).get(title):
                label += f": {found['value']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"
            axes.errorbar(sizes, middle, yerr=[below, above], marker="o", capsize=3, label=label)
        axes.set(xscale="log", yscale="log", xlabel="N, pixels of a side", ylabel="needed", title=title)
        axes.set_xticks(sorted(ticks), [str(size) for size in sorted(ticks)])
        axes.set_xticks([], minor=True)
        axes.legend(fontsize=7, title="exponent [95 %]", loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure.savefig(output, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="pixel-decoder")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--sizes", default="10,12,16,20")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--score", default="heldout_accuracy")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--draw", default="", metavar="FILES", help="only draw these curves, separated by commas")
    parser.add_argument("--output", type=Path, help="write the curve's JSON, or the figure, here")
    asked = parser.parse_args()
    if asked.draw:
        draw([Path(name) for name in asked.draw.split(",")], asked.output or Path("bump_scaling.png"))
        return
    torch.set_num_threads(1)
    found = json.dumps(curve(asked), indent=1)
    if asked.output:
        asked.output.write_text(found)
    print(found)


if __name__ == "__main__":
    main()
