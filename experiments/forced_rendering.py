"""The claims of forced rendering on small bumps: run what is missing, then print a table with intervals.

    python experiments/forced_rendering.py [--seeds 5] [--only-table]

16 x 16 pixels, a 10 x 10 square held out in the centre or the corner; about 3 CPU minutes a seed and task.  Records go to
COMPBENCH_HOME as those of any sweep; running it again does only what is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import NamedTuple

from compbench.boards.statistics import interval, mean
from compbench.home import Home
from compbench.records import Store
from compbench.schemas import Record

SQUARES = {"bump-center": (3, 12), "bump-corner": (6, 15)}
SIZE = 16


class Variant(NamedTuple):
    """A row of the table: what is run, and which of its records are the row's."""

    name: str
    method: str
    settings: tuple[str, ...] = ()
    budget: tuple[str, ...] = ("budget.train_steps=1000",)


LOW_RANK = ("budget.train_steps=3000", "budget.learning_rate=0.003")
VARIANTS = (
    Variant("cnn-decoder", "cnn-decoder"),
    Variant("mlp-decoder", "mlp-decoder"),
    Variant("pixel-decoder", "pixel-decoder"),
    Variant("transformer-decoder", "transformer-decoder", budget=("budget.train_steps=600",)),
    Variant("low-rank, no penalty", "low-rank", ("entropy_weight=0.0", "variance_weight=0.0"), LOW_RANK),
    Variant("low-rank, entropy", "low-rank", ("entropy_weight=0.1", "variance_weight=0.0"), LOW_RANK),
    Variant("low-rank, variance", "low-rank", ("entropy_weight=0.0", "variance_weight=0.01"), LOW_RANK),
    Variant("low-rank, both", "low-rank", ("entropy_weight=0.1", "variance_weight=0.01"), LOW_RANK),
    Variant("stripes alone (cnn)", "stripes", ("num_combinations=0",)),
    Variant("stripes, 50 bumps (cnn)", "stripes", ("num_combinations=50",)),
)
COLUMNS = ("heldout_mse_blank", "heldout_accuracy", "heldout_shape_accuracy", "heldout_superposition", "seen_mse_blank")


def arguments(task: str, variant: Variant) -> list[str]:
    """`--set` of one variant on one task."""
    first, last = SQUARES[task]
    square = (f"task.size={SIZE}", f"task.first={first}", f"task.last={last}")
    return [word for value in (*square, *variant.settings, *variant.budget) for word in ("--set", value)]


def run_missing(seeds: int, tasks: list[str], rows: str) -> None:
    """Rows whose name contains `rows`, all seeds in one process: it starts once, and nothing in it needs protection."""
    for task in tasks:
        for variant in (variant for variant in VARIANTS if rows in variant.name):
            words = ["--method", variant.method, "--task", task, "--seed", f"0-{seeds - 1}", "--quiet", "--in-process"]
            command = [sys.executable, "-m", "compbench.cli", "run", *words, "--device", "cpu", *arguments(task, variant)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            print(f"{task} {variant.name}: exit {done.returncode}", file=sys.stderr, flush=True)


def belongs(record: Record, task: str, variant: Variant) -> bool:
    """Whether a record is one of this row's."""
    spec = record.spec
    first, last = SQUARES[task]
    asked = {"size": SIZE, "first": first, "last": last}
    settings = dict(value.split("=") for value in variant.settings)
    steps = float(dict(value.removeprefix("budget.").split("=") for value in variant.budget)["train_steps"])
    return (
        (record.status, spec.task, spec.method, spec.preset) == ("ok", task, variant.method, "quick")
        and all(spec.task_settings[name] == value for name, value in asked.items())
        and all(float(spec.settings[name]) == float(value) for name, value in settings.items())
        and spec.budget.train_steps == steps
    )


def values(records: list[Record], score: str) -> dict[int, float]:
    """Value by seed."""
    return {record.spec.seed: found.value for record in records if (found := record.score(score)) and found.value is not None}


def cell(found: list[float]) -> str:
    """Mean and 95 % bootstrap interval."""
    if not found:
        return "-"
    spread = interval(found)
    return f"{mean(found):.3f}" + (f" [{spread.low:.3f}, {spread.high:.3f}]" if spread else "")


def table() -> None:
    """Every row with its scores, then paired differences of low-rank with both penalties from each ablation."""
    records, _ = Store(Home.of_user().records).read()
    for task in SQUARES:
        print(f"\n{task}, {SIZE} x {SIZE} pixels\n| method | n | " + " | ".join(COLUMNS) + " |")
        print("|---" * (len(COLUMNS) + 2) + "|")
        own = {variant.name: [r for r in records if belongs(r, task, variant)] for variant in VARIANTS}
        for name, rows in own.items():
            cells = [cell(list(values(rows, column).values())) for column in COLUMNS]
            print(f"| {name} | {len(values(rows, COLUMNS[0]))} | " + " | ".join(cells) + " |")
        both = values(own["low-rank, both"], "heldout_mse_blank")
        for name in ("low-rank, no penalty", "low-rank, entropy", "low-rank, variance"):
            other = values(own[name], "heldout_mse_blank")
            paired = [other[seed] - both[seed] for seed in sorted(both.keys() & other.keys())]
            print(f"held-out mse_blank of '{name}' minus that of both penalties, paired: {cell(paired)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--tasks", default="bump-corner,bump-center")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    asked = parser.parse_args()
    if not asked.only_table:
        run_missing(asked.seeds, asked.tasks.split(","), asked.rows)
    table()
