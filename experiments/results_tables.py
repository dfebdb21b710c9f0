"""The tables of docs/results.md that come straight from the published records, so that no figure in them is copied by hand.

    python experiments/results_tables.py                          all of them
    python experiments/results_tables.py --write docs/results.md  each between its marks; --check says whether they are fresh

A table lists every method that has runs of all its tasks, at default settings and `standard`, best first by its first score;
a row with another number of seeds than most says how many.  A cell is a mean over seeds, or a value a seed.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import multimode
from typing import NamedTuple

from claims import ROOT, Side, by_seed, primary_of, usable
from documents import line, put

from compbench.api.schemas import Record
from compbench.board.statistics import interval, mean
from compbench.board.timing import train_flops
from compbench.store.judges import IN_FEATURES, by_one_judge
from compbench.store.records import read_published

NAME = "experiments/results_tables.py"
RECORDS = ROOT / "leaderboards" / "records"
BOARD = ROOT / "leaderboards" / "site" / "board.csv"
NOT_COMPARED = "-"
"""Stands for what all runs of a method have by another judge than the others."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

Value = Callable[[Record], float | None]
"""What a run has of a quantity."""
Show = Callable[[Sequence[float], str], str]
"""(a value a seed, format) -> text."""


def means(values: Sequence[float], style: str) -> str:
    return format(mean(values), style)


def each(values: Sequence[float], style: str) -> str:
    return ", ".join(format(value, style) for value in values)


def with_range(values: Sequence[float], style: str) -> str:
    least, most = format(min(values), style), format(max(values), style)
    return means(values, style) if len(values) == 1 else f"{means(values, style)} ({least} to {most})"


def with_interval(values: Sequence[float], style: str) -> str:
    spread = interval(values)
    return means(values, style) + (f" ± {(spread.high - spread.low) / 2:{style}}" if spread else "")


class Quantity(NamedTuple):
    """A value of each run of a task, and how a cell shows it."""

    task: str
    value: Value
    style: str
    show: Show = means


class Table(NamedTuple):
    """Columns, and which methods have a row.

    Attributes:
        heads: titles of the columns after the first.
        cells: what stands in each, several values with commas between them.
        rows: the methods; () are all that `suits` and that have runs of every task.
        suits: whether runs such as this one belong here.
        lower: whether less of the first quantity is better.
        ranks: the task whose ranks come first.
    """

    heads: tuple[str, ...]
    cells: tuple[tuple[Quantity, ...], ...]
    rows: tuple[Side, ...] = ()
    suits: Callable[[Record], bool] = lambda record: not record.oracle
    lower: bool = False
    ranks: str = ""


def score(name: str) -> Value:
    def value(record: Record) -> float | None:
        found = record.score(name)
        return found and found.value

    return value


def tera_flops(record: Record) -> float | None:
    flops = train_flops(record)
    return flops and flops / 1e12


ACCURACY, FD, RECALL, SEEN = map(score, ("heldout_accuracy", "heldout_fd_judge", "heldout_recall", "seen_accuracy"))


def of_images(task: str, show: Show = means) -> tuple[tuple[Quantity, ...], ...]:
    """Held-out accuracy, FD and recall, and seen accuracy of a task."""
    styles = ((ACCURACY, ".2f"), (FD, ",.0f"), (RECALL, ".2f"), (SEEN, ".2f"))
    return tuple((Quantity(task, value, style, show),) for value, style in styles)


def compute(task: str) -> tuple[Quantity, ...]:
    return (Quantity(task, tera_flops, ".0f"),)


def sides(names: str) -> tuple[Side, ...]:
    return tuple(map(Side, names.split()))


def tables() -> dict[str, Table]:
    """By name."""
    shapes = ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy")
    planes = ("gauss2d-fact-id", "gauss2d-nonfact-id", "gauss2d-fact-ood", "gauss2d-nonfact-ood", "gmm-id", "gmm-ood")
    parts = ("shape", "orientation")
    rates = ("heldout_success_rate", "seen_success_rate", "heldout_success_rate_direct", "seen_success_rate_direct")
    plans = tuple((Quantity("planning-noniid", score(name), ".0f", each),) for name in rates)
    of_plans = ("held out", "seen", "held out, first plans", "seen, first plans")
    heads = ("held out", "FD to real held-out images", "recall held out", "seen")

    def factors(split: str) -> list[tuple[Quantity, ...]]:
        return [(Quantity("dsprites-light", score(f"{split}_accuracy_{part}"), ".2f", each),) for part in parts]

    dsprites = of_images("dsprites-light", each)
    return {
        "shapes3d": Table(
            ("light, 25 %", "medium, 50 %", "heavy, 75 %"),
            tuple((Quantity(task, ACCURACY, ".2f"), Quantity(task, FD, ",.0f"), Quantity(task, SEEN, ".2f")) for task in shapes),
        ),
        "shapes3d-heavy": Table(heads, of_images("shapes3d-heavy", each), sides("factored mono slice-cfg cross-attention")),
        "shapes3d-composed": Table(
            heads,
            of_images("shapes3d-light", each),
            sides("mono anchored mcmc fkc rne driftlite naive-sde naive-ode slice-cfg superdiff"),
        ),
        "shapes3d-decoders": Table(
            heads,
            of_images("shapes3d-heavy", each),
            sides("factored low-rank mlp-decoder fourier-decoder cnn-decoder pixel-decoder transformer-decoder"),
        ),
        "shapes3d-cost": Table(
            ("TFLOP to fit", "recall held out: light", "medium", "heavy"),
            (compute("shapes3d-heavy"), *((Quantity(task, RECALL, ".2f"),) for task in shapes)),
            sides("mlp-decoder fourier-decoder cnn-decoder pixel-decoder mono slice-cfg"),
            lower=True,
        ),
        "dsprites": Table(
            ("held out", "its shape", "its orientation", "FD", "recall", "seen", "its shape", "its orientation"),
            (dsprites[0], *factors("heldout"), *dsprites[1:], *factors("seen")),
        ),
        "cmnist-decoders": Table(
            heads,
            of_images("cmnist-noniid"),
            sides("pixel-decoder transformer-decoder cnn-decoder fourier-decoder mlp-decoder coind"),
        ),
        "plane": Table(
            tuple(task.removeprefix("gauss2d-") for task in planes),
            tuple((Quantity(task, score("heldout_sw2"), ".2f"),) for task in planes),
            lower=True,
        ),
        "blobs": Table(
            ("rank", "SW2 to the blob that no silo has", "SW2 to seen blobs"),
            tuple(
                (Quantity("blobs-noniid", score(f"{split}_sw2"), ".2f", show),)
                for split, show in (("heldout", with_interval), ("seen", means))
            ),
            suits=decentralised,
            lower=True,
            ranks="blobs-noniid",
        ),
        "cmnist-silos": Table(
            (*heads, "TFLOP to fit"), (*of_images("cmnist-noniid", each), compute("cmnist-noniid")), suits=decentralised
        ),
        "cmnist-pooled": Table(
            heads,
            tuple(
                (found._replace(show=with_range) if found.value is ACCURACY else found,) for [found] in of_images("cmnist-noniid")
            ),
            suits=lambda record: record.pooled_silos and not record.spec.method.endswith("-decoder"),
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
        "planning": Table((*of_plans, "TFLOP to fit"), (*plans, compute("planning-noniid")), suits=decentralised),
        "planning-pooled": Table(of_plans, plans, suits=lambda record: record.pooled_silos),
        "planning-rounds": Table(of_plans, plans, (Side("fedflow", {"rounds": 20}), Side("fedflow", {"rounds": 4}))),
    }


def published(folder: Path) -> list[Record]:
    """The records that tables are made of, without distances by another judge than most: tables print distances as they are."""
    return by_one_judge(usable(read_published(folder)[0], "standard"), IN_FEATURES).records


def decentralised(record: Record) -> bool:
    return not record.pooled_silos


def written(table: Table, records: Sequence[Record]) -> str:
    """A table of Markdown."""
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
    ranks = _ranks(table.ranks) if table.ranks else {}
    out = [line(["", *table.heads]), line(["---"] * (1 + len(table.heads)))]
    for (side, own), count in zip(rows, seeds, strict=True):
        word = NUMBERS[count] if count < len(NUMBERS) else count
        number = f" ({word} seed{'s' * (count > 1)})" if count != usual else ""
        changed = "".join(f", {value} {name}" for name, value in side.settings.items())
        place = [ranks.get(side.method, "")] if table.ranks else []
        out.append(line([f"`{side.method}`{changed}{number}", *place, *_cells(table, own)]))
    return "\n".join(out)


def on_two_devices(records: Sequence[Record]) -> str:
    """A table of the runs that were made on a CPU and on a GPU: held-out and seen primary scores of each."""
    runs: dict[tuple[str, str, int, str], dict[bool, Record]] = {}
    for record in records:
        spec = record.spec
        same = spec.model_dump_json(include={"settings", "task_settings", "budget", "precision", "fingerprint"})
        runs.setdefault((spec.task, spec.method, spec.seed, same), {})[spec.device_class == "cpu"] = record
    out = [line(["", "held out: CPU", "GPU", "seen: CPU", "GPU"]), line(["---"] * 5)]
    for (task, method, seed, _), made in sorted(runs.items()):
        if len(made) == 2:
            names = [primary_of(made[True]).name, primary_of(made[True]).name.replace("heldout", "seen")]
            values = [score(name)(made[on_cpu]) for name in names for on_cpu in (True, False)]
            out.append(line([f"{task}, `{method}`, seed {seed}", *(NOT_COMPARED if v is None else f"{v:.3f}" for v in values)]))
    return "\n".join(out)


def _cells(table: Table, own: dict[str, dict[int, Record]]) -> list[str]:
    found = [[(q, _values(q, own[q.task])) for q in cell] for cell in table.cells]
    return [", ".join(q.show(values, q.style) for q, values in cell if values) or NOT_COMPARED for cell in found]


def _values(quantity: Quantity, by: dict[int, Record]) -> list[float]:
    """A value a seed, in their order."""
    return [value for seed in sorted(by) if (value := quantity.value(by[seed])) is not None]


def _ranks(task: str) -> dict[str, str]:
    """The ranks that the published board leaves open, by method."""
    found = {}
    with BOARD.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if (row["task"], row["preset"], row["variant"]) == (task, "standard", "") and row["rank"]:
                best, worst = row["rank_best"], row["rank_worst"]
                found[row["method"]] = best if best == worst else f"{best}-{worst}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", type=Path, help="a Markdown file with two marks a table")
    parser.add_argument("--check", action="store_true", help="do not write; fail where a table is not fresh")
    asked = parser.parse_args()
    records = published(asked.records)
    texts = {f"{NAME} {name}": written(table, records) for name, table in tables().items()}
    texts[f"{NAME} devices"] = on_two_devices(records)
    if asked.write:
        put(asked.write, texts, check=asked.check, command=NAME)
    else:
        print("\n\n".join(f"{name}\n\n{text}" for name, text in texts.items()))


if __name__ == "__main__":
    main()
