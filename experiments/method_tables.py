"""Tables of a method's page: deviations from its authors' version, their figures next to ours, and the settings of its runs.

Deviations are read from the docstring of the method's file, where they have the form

    Theirs: what the authors do.  Ours: what we do.  Why: the reason.

A docstring also states, in paragraphs of these forms,

    Own: why there is no authors' version, if the method is compbench's own.
    Figures: why none of its paper's figures is reproduced, or what a known answer is and what ours is.
    Size: why its number of parameters is not that of the other rows.

Their figures come from `leaderboards/papers.csv` and ours from the published board, each with the command that `docs/papers.md`
lists for that table or figure; parameters, masks, guidance and steps are those of the published records.  `site_pages.py` writes
the tables when it makes the pages: nothing is copied by hand.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from compbench.api.schemas import Record, RunSpec
from compbench.board.aggregate import rows as rows_of
from compbench.board.catalogue import catalogue
from compbench.board.row import NEAR, BoardRow
from compbench.registry.method_source import default_settings_of, version_of
from compbench.registry.registry import Registry
from compbench.store.conditions import KINDS, of_record
from compbench.store.records import read_published

ROOT = Path(__file__).parents[1]
BOARD = ROOT / "leaderboards" / "site" / "board.csv"
PAPERS = ROOT / "leaderboards" / "papers.csv"
BY_PLACE = ROOT / "docs" / "papers.md"
SWEEPS = ROOT / "compbench" / "sweep" / "shipped"
RECORDS = ROOT / "leaderboards" / "records"

TRIPLE = re.compile(r"^ *Theirs: (.+?)\s+Ours: (.+?)\s+Why: (.+?)(?=\n\s*\n|\n *Theirs: |\Z)", re.DOTALL | re.MULTILINE)
STATEMENT = re.compile(r"^ *(Own|Figures|Size): (.+?)(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
MASKS = ("masks", "even_masks", "factor_dropout", "dropout", "pi_full", "pi_marginal", "pi_unconditional")
"""Settings that determine which factors of a training condition a network gets."""
NAMES = {
    "FVF": "FVF",
    "FKC": "Catastrophic Compositional Generation",
    "DCFM": "DCFM",
    "Forced rendering": "[Ff]orced rendering",
    "PEM": "Compositional Energy Minimization",
}
"""Headings of `docs/papers.md`, and the names of these papers in docstrings."""
PRESETS = ("paper", "standard", "quick", "smoke")
"""Presets, from the closest to a paper's budget to the furthest from it."""


class Deviation(NamedTuple):
    """What the authors do, what we do, and why."""

    theirs: str
    ours: str
    why: str


class Reproduced(NamedTuple):
    """A number that a paper prints or plots for a method, next to ours.

    Attributes:
        place: the paper, and the table or figure in it.
        task: our task.
        metric: the paper's name for the score.
        score: our name for the score that is compared.
        theirs: the paper's value.
        ours: our value, and in brackets its preset and what of it is older than today's code; "-" if none is published.
        ceiling: what real data have by that score, if it is an accuracy; "-" for other scores.
        command: the command that reproduces it.
    """

    place: str
    task: str
    metric: str
    score: str
    theirs: str
    ours: str
    ceiling: str
    command: str


class Ours(NamedTuple):
    """A published score of a method: its mean, deviation and preset, and its ceiling."""

    value: str
    ceiling: str


class Place(NamedTuple):
    """A table or figure of a paper, and the command that reproduces it here.

    Attributes:
        paper: the heading of `docs/papers.md`.
        place: its name, as in "table 1" or "figure 3, c to e".
        command: the command in `docs/papers.md`.
        methods: names of the methods in it.
    """

    paper: str
    place: str
    command: str
    methods: frozenset[str]


def deviations(text: str) -> list[Deviation]:
    """The deviations that a docstring names, in order."""
    return [Deviation(*(" ".join(part.split()) for part in found.groups())) for found in TRIPLE.finditer(text)]


def statement(text: str, kind: Literal["Own", "Figures", "Size"]) -> str:
    """What a docstring states of a kind, as one paragraph; "" if it has no such statement."""
    found = (" ".join(said.split()) for name, said in STATEMENT.findall(text) if name == kind)
    return " ".join(said[:1].upper() + said[1:] for said in found)


@lru_cache
def places(names: frozenset[str]) -> tuple[Place, ...]:
    """The tables and figures of `docs/papers.md` whose commands name some methods, or a sweep that has them."""
    found, paper = [], ""
    for line in BY_PLACE.read_text().splitlines():
        if line.startswith("## "):
            paper = line[3:].partition(":")[0]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        commands = [span for span in re.findall(r"`([^`]+)`", cells[-1]) if span.startswith(("compbench ", "python "))]
        if not (line.startswith("| ") and len(cells) == 3 and commands):
            continue
        words = _words(cells[-1]) | {word for name in re.findall(r"--file (\S+)", cells[-1]) for word in _in_sweep(name)}
        if own := words & names:
            found.append(Place(paper, cells[0], "; ".join(commands), frozenset(own)))
    return tuple(found)


def reproduced(method: str, text: str, names: frozenset[str]) -> list[Reproduced]:
    """Each number that a paper prints for a method, or that the method's own paper plots.

    Args:
        method: its name.
        text: its docstring, which names its paper.
        names: names of all methods.
    """
    shown = [place for place in places(names) if method in place.methods]
    own = [place for place in shown if re.search(NAMES[place.paper], text)]
    rows, printed_at = [], set()
    for figure in printed(method):
        at = next((place for place in shown if _is_at(place, figure)), None)
        printed_at.add(at)
        command = at.command if at else f"compbench run --method {method} --task {figure['task']} --preset paper"
        found = ours().get((method, figure["task"], figure["score"]), Ours("-", "-"))
        rows.append(
            Reproduced(
                f"{figure['paper']}, {_table(figure)}",
                figure["task"],
                figure["metric"],
                figure["score"],
                _with_spread(figure),
                found.value,
                found.ceiling,
                f"`{command}`",
            )
        )
    for place in own:
        if place not in printed_at:
            name = f"{place.paper}, {place.place}"
            rows.append(Reproduced(name, "", "", "", "none printed for it", "", "", f"`{place.command}`"))
    return rows


def printed(method: str) -> list[dict[str, str]]:
    """The numbers that papers print for a method."""
    with PAPERS.open() as file:
        return [row for row in csv.DictReader(file) if row["method"] == method]


@lru_cache
def ours() -> dict[tuple[str, str, str], Ours]:
    """(method, task, score) -> the published default row at the preset that is closest to the paper's."""
    with BOARD.open() as file:
        known = [row for row in csv.DictReader(file) if row["kind"] != "paper" and row["mean"] and not row["variant"]]
    known = sorted((row for row in known if not row["changed"]), key=lambda row: -PRESETS.index(row["preset"]))
    found = {}
    for row in known:
        spread = f" ± {float(row['std']):.2g}" if row["std"] else ""
        old = older(row["method"], int(row["method_version"]), row["task"], int(row["task_version"]))
        value = f"{float(row['mean']):.4g}{spread} ({'; '.join([row['preset'], *old])})"
        ceiling = f"{float(row['ceiling']):.3g}" if row["ceiling"] else "-"
        found[row["method"], row["task"], row["score"].partition("@")[0]] = Ours(value, ceiling)
    return found


def older(method: str, version: int, task: str, task_version: int) -> tuple[str, ...]:
    """What of a run is not of today's version, as in ("version 3 of the task, now 5",); () if nothing is."""
    newest = newest_versions()
    pairs = (version, newest.get(("methods", method), 0), "method"), (task_version, newest.get(("tasks", task), 0), "task")
    return tuple(f"version {ran} of the {what}, now {today}" for ran, today, what in pairs if ran < today)


@lru_cache
def newest_versions() -> dict[tuple[str, str], int]:
    """("methods" or "tasks", name) -> the version of today's code."""
    registry = Registry()
    tasks = catalogue(registry.names("tasks"), registry)
    found = {("tasks", name): facts.version for name, facts in tasks.items()}
    return found | {("methods", entry.name): version_of(entry) for entry in registry.entries("methods")}


def used(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """(task, parameters, masks, guidance weight, training, sampling) of a method's runs, by task and preset."""

    def place(record: Record) -> tuple[object, ...]:
        return record.spec.task, PRESETS.index(record.spec.preset), record.spec.method_version, record.started

    found = []
    for _, own in itertools.groupby(sorted(records, key=place), lambda record: (record.spec.task, record.spec.preset)):
        record = list(own)[-1]
        spec, profile = record.spec, record.profile
        budget = spec.budget
        size = "" if profile.parameters is None else f"{profile.parameters:,}{_of_factored(spec, profile.parameters)}"
        asked = profile.evaluations_per_sample
        training = f"{profile.train_steps or budget.train_steps:,} steps of {budget.batch_size}"
        sampling = f"{budget.sample_steps} steps" + ("" if asked is None else f", {asked:,} evaluations")
        old = older(spec.method, spec.method_version, spec.task, spec.task_version)
        found.append(
            (
                f"{spec.task} ({'; '.join([f'`{spec.preset}`', *old])})",
                size,
                masks(record),
                guidance(record),
                training,
                sampling,
            )
        )
    return found


def _of_factored(spec: RunSpec, parameters: int) -> str:
    """A number of parameters as a share of that of `factored` on the same task and preset; "" if it is near 1 or not known."""
    found = factored_sizes().get((spec.task, spec.preset))
    return "" if not found or abs(parameters / found - 1) <= NEAR else f" ({parameters / found:.2g} times `factored`'s)"


def masks(record: Record) -> str:
    """The settings of a run's masks that its other settings leave in use, and the counted training conditions."""
    settings = record.spec.settings
    unused = ("pi_" if settings.get("masks") == "independent" else "factor_") if "masks" in settings else "-"
    said = [f"{name} {settings[name]}" for name in MASKS if name in settings and not name.startswith(unused)]
    trained = of_record(record, "trained")
    total = sum(trained.values())
    return ", ".join(said + [f"{KINDS[kind]} {count / total:.2g}" for kind, count in trained.items() if count]) or "-"


def guidance(record: Record) -> str:
    """The guidance weight that a method noted for its samples, or else the number that its setting `weight` has."""
    noted = {value for name, value in record.notes.items() if name.endswith(" guidance_weight") and isinstance(value, float)}
    own = record.spec.settings.get("weight")
    used = noted or ({own} if isinstance(own, int | float) else set())
    return ", ".join(f"{value:g}" for value in sorted(used)) or "-"


@lru_cache
def factored_sizes() -> dict[tuple[str, str], int]:
    """(task, preset) -> the number of parameters of the published runs of `factored`."""
    return {
        (record.spec.task, record.spec.preset): record.profile.parameters
        for record in published().get("factored", ())
        if record.profile.parameters
    }


@lru_cache
def published() -> Mapping[str, tuple[Record, ...]]:
    """The published runs at default settings of method, task and budget, by the method's name.

    Of a method's rows of one task and preset the newest version counts, then the one nearest to today's default settings.
    """
    records = {record.name: record for record in read_published(RECORDS)[0] if record.status == "ok"}
    registry = Registry()
    defaults = {entry.name: (version_of(entry), default_settings_of(entry)) for entry in registry.entries("methods")}
    named = {(entry.name, entry.distribution): defaults[entry.name] for entry in registry.entries("methods")}
    tasks = catalogue({record.spec.task for record in records.values()}, registry)

    def place(row: BoardRow) -> tuple[int, ...]:
        own, (_, default) = json.loads(row.group.settings), defaults.get(row.method, (0, {}))
        changed = sum(own.get(name) != value for name, value in default.items())
        return -row.section.task_version, -row.method_version, changed, -len(row.seeds)

    chosen: dict[tuple[str, str, str], BoardRow] = {}
    for row in rows_of(records.values(), catalogue=tasks, method_defaults=named):
        key = row.method, row.section.task, row.section.preset
        if row.kind != "ablation" and not row.section.changed and (key not in chosen or place(row) < place(chosen[key])):
            chosen[key] = row
    kept: dict[str, tuple[Record, ...]] = {}
    for (method, _, _), row in sorted(chosen.items()):
        kept[method] = kept.get(method, ()) + tuple(records[name] for name in row.records)
    return kept


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z][a-z0-9-]*", text))


def _in_sweep(name: str) -> Iterator[str]:
    file = SWEEPS / f"{name}.toml"
    for listed in re.findall(r'^methods = "([^"]*)"', file.read_text(), re.MULTILINE) if file.is_file() else ():
        yield from listed.split(",")


def _table(figure: Mapping[str, str]) -> str:
    table = figure["table"]
    return f"section {table}" if "." in table else f"table {table}" if table.isdigit() else table


def _is_at(place: Place, figure: Mapping[str, str]) -> bool:
    names = {"factored-velocity-fields": "FVF", "decentralized-compositional-flow-matching": "DCFM", "pem": "PEM"}
    return place.paper == names.get(figure["paper"]) and place.place == _table(figure)


def _with_spread(figure: Mapping[str, str]) -> str:
    return figure["mean"] + (f" ± {figure['std']}" if figure["std"] else "")
