"""Tables of several tasks side by side, straight from the published records: `results_pages.py` puts them into docs/results/.

    python experiments/results_tables.py    all of them

A table lists every method that has runs of all of the table's tasks, at default settings and `standard`, best first by its first
score; a row whose number of seeds differs from most says how many.  A cell is a mean over seeds, or one value per seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import multimode
from typing import NamedTuple

from claims import ROOT, Side, by_seed, line, primary_of, usable

from compbench.api.schemas import Record
from compbench.board.statistics import mean
from compbench.board.timing import train_flops
from compbench.registry.registry import Registry
from compbench.store.records import read_published

RECORDS = ROOT / "leaderboards" / "records"
NOT_COMPARED = "-"
"""Shown where a run of a method lacks the value."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

SAME = {"settings", "task_settings", "budget", "precision", "fingerprint", "task_version", "method_version"}
"""What two runs on two devices have in common, next to task, method and seed."""

Value = Callable[[Record], float | None]
"""A function from a run to its value of a quantity."""
Show = Callable[[Sequence[float], str], str]
"""A function: (one value per seed, format) -> text."""


def means(values: Sequence[float], style: str) -> str:
    return format(mean(values), style)


def each(values: Sequence[float], style: str) -> str:
    return ", ".join(format(value, style) for value in values)


class Quantity(NamedTuple):
    """A value of each run of a task, and how a cell shows it."""

    task: str
    value: Value
    style: str
    show: Show = means


class Table(NamedTuple):
    """The columns of a table, and the methods that have a row.

    Attributes:
        heads: titles of the columns after the first.
        cells: the quantities in each column; several values are separated by commas.
        rows: the methods; () means all that suit (`suits`) and have runs of every task.
        suits: whether runs such as this one belong in the table.
        lower: whether a lower first quantity is better.
    """

    heads: tuple[str, ...]
    cells: tuple[tuple[Quantity, ...], ...]
    rows: tuple[Side, ...] = ()
    suits: Callable[[Record], bool] = lambda record: not record.oracle
    lower: bool = False


def score(name: str) -> Value:
    def value(record: Record) -> float | None:
        found = record.score(name)
        return found and found.value

    return value


def in_floors(name: str) -> Value:
    """A distance divided by that of real data in the same run, which makes runs under different judges comparable."""

    def value(record: Record) -> float | None:
        found = record.score(name)
        return found.value / found.floor if found and found.value is not None and found.floor else None

    return value


def tera_flops(record: Record) -> float | None:
    flops = train_flops(record)
    return flops and flops / 1e12


ACCURACY, FD, SEEN = score("heldout_accuracy"), in_floors("heldout_fd_judge"), score("seen_accuracy")
FD_IMAGENET, FWD = in_floors("heldout_fd_imagenet"), in_floors("heldout_fwd")


def tables() -> dict[str, Table]:
    """The tables, by the family on whose page they are; the last part of a name distinguishes tables of one family."""
    shapes = ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy")
    planes = ("gauss2d-fact-id", "gauss2d-nonfact-id", "gauss2d-fact-ood", "gauss2d-nonfact-ood", "gmm-id", "gmm-ood")
    rates = ("heldout_success_rate", "seen_success_rate", "heldout_success_rate_direct", "seen_success_rate_direct")
    plans = tuple((Quantity("planning-noniid", score(name), ".0f", each),) for name in rates)
    of_plans = ("held out", "seen", "held out, first plans", "seen, first plans")
    return {
        "images": Table(
            ("light, 25 %: held out, FD, seen", "medium, 50 %", "heavy, 75 %"),
            tuple((Quantity(task, ACCURACY, ".2f"), Quantity(task, FD, ".1f"), Quantity(task, SEEN, ".2f")) for task in shapes),
        ),
        "drawings": Table(
            ("a quarter of role x tone: held out, FD, FWD", "half", "three quarters", "role x person"),
            tuple(
                (Quantity(task, ACCURACY, ".2f"), Quantity(task, FD_IMAGENET, ".1f"), Quantity(task, FWD, ".1f"))
                for task in ("emoji-light", "emoji-medium", "emoji-heavy", "emoji-person")
            ),
        ),
        "plane": Table(
            tuple(task.removeprefix("gauss2d-") for task in planes),
            tuple((Quantity(task, score("heldout_sw2"), ".2f"),) for task in planes),
            lower=True,
        ),
        "bumps": Table(
            ("held out, centre", "held out, corner", "seen, centre", "seen, corner", "TFLOP to fit"),
            (
                *(
                    (Quantity(task, score(f"{split}_shape_accuracy"), ".2f"),)
                    for split in ("heldout", "seen")
                    for task in ("bump-center", "bump-corner")
                ),
                (Quantity("bump-center", tera_flops, ".1f"),),
            ),
            suits=lambda record: True,
        ),
        "planning": Table((*of_plans, "TFLOP to fit"), (*plans, (Quantity("planning-noniid", tera_flops, ".0f"),))),
        "planning rounds": Table(of_plans, plans, (Side("fedflow", {"rounds": 20}), Side("fedflow", {"rounds": 4}))),
    }


def published(folder: Path) -> list[Record]:
    """The records of a folder that tables are made of."""
    return of_tables(read_published(folder)[0])


def of_tables(records: Sequence[Record]) -> list[Record]:
    """The records that tables are made of."""
    return usable(records, "standard")


def written(table: Table, records: Sequence[Record], versions: Mapping[str, int] = {}) -> str:
    """A table in Markdown; a row says if a run has an older version of its method than `versions`."""
    tasks = dict.fromkeys(quantity.task for quantity in chain(*table.cells))
    runs = {task: [record for record in records if record.spec.task == task] for task in tasks}
    fitting = table.rows or tuple(
        Side(method)
        for method in sorted({record.spec.method for record in records})
        if all(any(record.spec.method == method and table.suits(record) for record in own) for own in runs.values())
    )
    rows = [(side, {task: by_seed(own, side) for task, own in runs.items()}) for side in fitting]
    rows = [(side, own) for side, own in rows if all(own.values())]
    if not table.rows:
        first = table.cells[0][0]
        rows.sort(key=lambda row: mean(_values(first, row[1][first.task])), reverse=not table.lower)
    seeds = [min(map(len, own.values())) for _, own in rows]
    usual = max(multimode(seeds), default=0)
    out = [line(["", *table.heads]), line(["---"] * (1 + len(table.heads)))]
    for (side, own), count in zip(rows, seeds, strict=True):
        word = NUMBERS[count] if count < len(NUMBERS) else count
        number = f" ({word} seed{'s' * (count > 1)})" if count != usual else ""
        changed = "".join(f", {value} {name}" for name, value in side.settings.items())
        oldest = min(record.spec.method_version for rows_of in own.values() for record in rows_of.values())
        newest = versions.get(side.method, 0)
        older = f" (version {oldest}, now {newest})" if newest > oldest else ""
        out.append(line([f"`{side.method}`{changed}{older}{number}", *_cells(table, own)]))
    return "\n".join(out)


def twins(records: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Pairs of runs of one spec on a CPU and on a GPU, sorted by task, method and seed."""
    runs: dict[tuple[str, str, int, str], dict[bool, Record]] = {}
    for record in records:
        spec = record.spec
        same = spec.model_dump_json(include=SAME)
        runs.setdefault((spec.task, spec.method, spec.seed, same), {})[spec.device_class == "cpu"] = record
    return [(made[True], made[False]) for _, made in sorted(runs.items(), key=lambda item: item[0]) if len(made) == 2]


def on_two_devices(records: Sequence[Record]) -> str:
    """A table of these pairs: held-out and seen primary scores of each run."""
    out = [line(["", "held out: CPU", "GPU", "seen: CPU", "GPU"]), line(["---"] * 5)]
    for one, other in twins(records):
        names = [primary_of(one).name, primary_of(one).name.replace("heldout", "seen")]
        values = [score(name)(record) for name in names for record in (one, other)]
        label = f"{one.spec.task}, `{one.spec.method}`, seed {one.spec.seed}"
        out.append(line([label, *(NOT_COMPARED if v is None else f"{v:.3f}" for v in values)]))
    return "\n".join(out)


def _cells(table: Table, own: dict[str, dict[int, Record]]) -> list[str]:
    found = [[(q, _values(q, own[q.task]), len(own[q.task])) for q in cell] for cell in table.cells]
    return [", ".join(q.show(values, q.style) if len(values) == n else NOT_COMPARED for q, values, n in cell) for cell in found]


def _values(quantity: Quantity, by: dict[int, Record]) -> list[float]:
    """One value per seed, in the order of the seeds."""
    return [value for seed in sorted(by) if (value := quantity.value(by[seed])) is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=RECORDS)
    records, registry = published(parser.parse_args().records), Registry()
    names = {record.spec.method for record in records} & set(registry.names("methods"))
    versions = {name: registry.load("methods", name).version for name in names}
    texts = {name: written(table, records, versions) for name, table in tables().items()}
    texts["devices"] = on_two_devices(records)
    print("\n\n".join(f"{name}\n\n{text}" for name, text in texts.items()))


if __name__ == "__main__":
    main()
