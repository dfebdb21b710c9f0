"""The claims of forced rendering on bumps: a table with intervals, and paired differences between the ablations.

    compbench sweep --file bumps --preset standard --device cpu --slots 2
    python experiments/forced_rendering.py [--records leaderboards/records]

These are the board's own runs and their ablations: 28 x 28 pixels, with a 17 x 17 square held out in the centre or the corner.
On one core a decoder takes a minute or two, a velocity network five minutes.

    compbench sweep --file bumps-ablation --preset paper --device cpu --slots 2
    python experiments/forced_rendering.py --sweep bumps-ablation [--records leaderboards/records]

These are runs of low-rank only: 32 x 32 pixels, 20,000 steps, about 30 CPU minutes per task.
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.board.catalogue import catalogue
from compbench.board.statistics import interval, mean
from compbench.store.records import Store
from compbench.sweep.grid import grids
from compbench.system.home import Home

TASKS = ("bump-corner", "bump-center")
SWEEPS = {"bumps": "standard", "bumps-ablation": "paper"}
COLUMNS = ("heldout_mse_blank", "heldout_accuracy", "heldout_shape_accuracy", "heldout_superposition", "seen_mse_blank")


class Variant(NamedTuple):
    """A row of the table: a method, and the settings that distinguish it from other rows."""

    name: str
    method: str
    settings: tuple[tuple[str, float], ...] = ()


BOTH, NONE = "low-rank, both", "low-rank, no penalty"
VARIANTS = (
    Variant("cnn-decoder", "cnn-decoder"),
    Variant("mlp-decoder", "mlp-decoder"),
    Variant("pixel-decoder", "pixel-decoder"),
    Variant("transformer-decoder", "transformer-decoder"),
    Variant("mono (velocity network)", "mono"),
    Variant("factored (velocity network)", "factored"),
    Variant(NONE, "low-rank", (("entropy_weight", 0.0), ("variance_weight", 0.0))),
    Variant("low-rank, entropy", "low-rank", (("entropy_weight", 0.1), ("variance_weight", 0.0))),
    Variant("low-rank, variance", "low-rank", (("entropy_weight", 0.0), ("variance_weight", 0.01))),
    Variant(BOTH, "low-rank", (("entropy_weight", 0.1), ("variance_weight", 0.01))),
    Variant("stripes alone (cnn)", "stripes", (("num_combinations", 0),)),
    Variant("stripes, 100 bumps (cnn)", "stripes", (("num_combinations", 100),)),
)
PAIRS = (
    (NONE, BOTH),
    ("low-rank, entropy", BOTH),
    ("low-rank, variance", BOTH),
    ("cnn-decoder", BOTH),
    ("stripes alone (cnn)", "stripes, 100 bumps (cnn)"),
)


@cache
def asked(sweep: str, task: str) -> dict[str, object]:
    """The task's settings, and the sweep file's values for task and budget, which are the same in all of its grids."""
    wanted: dict[str, object] = {f"task.{name}": value for name, value in catalogue(TASKS)[task].settings.items()}
    for grid in grids(sweep, SWEEPS[sweep]):
        if task in grid.tasks.split(","):
            wanted |= {name: value for name, value in grid.set.items() if "." in name}
    return wanted


def belongs(record: Record, sweep: str, task: str, variant: Variant) -> bool:
    """Whether a record belongs to this row.  An older record lacks settings that were added to the task later."""
    spec, wanted = record.spec, asked(sweep, task)
    there = {f"task.{name}": value for name, value in spec.task_settings.items()}
    there |= {f"budget.{name}": value for name, value in spec.budget.model_dump().items()}
    return (
        (record.status, spec.task, spec.method, spec.preset) == ("ok", task, variant.method, SWEEPS[sweep])
        and {f"budget.{name}" for name in spec.budget_changed} <= wanted.keys()
        and all(there.get(name, value) == value for name, value in wanted.items())
        and all(spec.settings[name] == value for name, value in variant.settings)
    )


def newest(records: list[Record]) -> list[Record]:
    """The records of the latest version of the method."""
    latest = max((record.spec.method_version for record in records), default=0)
    return [record for record in records if record.spec.method_version == latest]


def values(records: list[Record], score: str) -> dict[int, float]:
    """Value by seed."""
    return {record.spec.seed: found.value for record in records if (found := record.score(score)) and found.value is not None}


def cell(found: list[float]) -> str:
    """Mean and 95 % interval of the mean."""
    if not found:
        return "-"
    spread = interval(found)
    return f"{mean(found):.3f}" + (f" [{spread.low:.3f}, {spread.high:.3f}]" if spread else "")


def table(folder: Path, sweep: str) -> None:
    """Every row with its scores, then differences of held-out MSE over blank, paired by seed."""
    records, _ = Store(folder).read()
    methods = {method for grid in grids(sweep, SWEEPS[sweep]) for method in grid.methods.split(",")}
    variants = [variant for variant in VARIANTS if variant.method in methods]
    for task in TASKS:
        print(f"\n{task}\n\n| method | n | " + " | ".join(COLUMNS) + " |")
        print("|---" * (len(COLUMNS) + 2) + "|")
        own = {variant.name: newest([r for r in records if belongs(r, sweep, task, variant)]) for variant in variants}
        for name, rows in own.items():
            cells = [cell(list(values(rows, column).values())) for column in COLUMNS]
            print(f"| {name} | {len(values(rows, COLUMNS[0]))} | " + " | ".join(cells) + " |")
        print()
        for name, base in (pair for pair in PAIRS if set(pair) <= own.keys()):
            a, b = (values(own[each], COLUMNS[0]) for each in (name, base))
            paired = [b[seed] - a[seed] for seed in sorted(a.keys() & b.keys())]
            print(f"'{base}' minus '{name}', held-out MSE over blank, paired: {cell(paired)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=Home.of_user().records, help="folder of records")
    parser.add_argument("--sweep", choices=SWEEPS, default="bumps", help="the sweep file that made the records")
    arguments = parser.parse_args()
    table(arguments.records, arguments.sweep)
