"""info: what a task asks, what a method, metric or executor is, and what a score's name means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.markup import escape
from rich.table import Table

from compbench.api import shots
from compbench.api.context import PRESETS
from compbench.api.factors import identifiability
from compbench.board.aggregate import aggregate
from compbench.board.catalogue import catalogue
from compbench.cli import output
from compbench.cli.names import names
from compbench.cli.options import plugin_option
from compbench.registry.declared import OTHERS, by_family, kind_of_data, missing_extra
from compbench.registry.method_source import default_settings_of, version_of
from compbench.registry.registry import KINDS, Entry, LoadResult, Registry, docstring
from compbench.registry.resolve import configured, values_of, why_not
from compbench.runner.isolated import answer_of, scratch
from compbench.runner.messages import LineOfText
from compbench.store.records import Store, read_records
from compbench.sweep.parse import parse_overrides
from compbench.system.errors import CompbenchError, suggest
from compbench.system.files import Json
from compbench.system.home import Home
from compbench.tasks.coverage import CoverageSettings, rungs

if TYPE_CHECKING:
    from pydantic import BaseModel

    from compbench.api.executor import Executor
    from compbench.api.interfaces import Method, Metric, Task
    from compbench.board.row import BoardRow

ENOUGH_SEEDS = 3
"""A row with fewer seeds can be the best one only if no row has this many: a single lucky seed is not a result."""

FEW_TASKS = 3
"""If a method works on all tasks except this many or fewer, only the exceptions are named."""

EXPLAINED = {
    "coverage": "the share of cells that are seen",
    "C_min": "the least coverage that can determine every held-out cell, if each factor acts on its own",
    "marginal coverage": "the share of each factor's values that some seen cell has; every value is needed",
    "components of the seen graph": "groups of values that seen cells join; effects compare only within a group, so 1 is needed",
    "rank of the main-effects design": "how many independent effects of single values the seen cells determine; all are needed",
}
"""Explanations of the facts of a holdout, printed after the value, but not in JSON."""

SPLITS = {"heldout": "combinations never trained on", "seen": "combinations trained on", "all": "all combinations"}


class OfMethod(NamedTuple):
    """Facts that need the loaded method, and its settings as `info` prints them."""

    version: int
    runs_on: LineOfText
    can_extend: bool
    settings: dict[LineOfText, LineOfText]


@click.command()
@click.argument("name", shell_complete=names("tasks", "methods", "metrics", "executors"))
@plugin_option()
@click.option("--set", "overrides", multiple=True, metavar="task.NAME=VALUE", help="Show the task under other settings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(name: str, plugins: tuple[Path, ...], overrides: tuple[str, ...], as_json: bool) -> None:
    """Say what a task asks and whether it can be learnt, or what a method, metric, executor or score is.

    \b
    compbench info shapes3d-heavy
    compbench info shapes3d-heavy --set task.coverage=0.5
    compbench info factored
    compbench info heldout_accuracy
    """
    registry = Registry(plugins)
    kind = next((kind for kind in KINDS if name in registry.names(kind)), None)
    if overrides and kind is not None and not (kind == "tasks" and all(word.startswith("task.") for word in overrides)):
        raise CompbenchError(f"--set {overrides[0]}: `info` takes --set task.NAME=VALUE, and only with the name of a task.")
    match kind:
        case "methods":
            facts = method_facts(name, registry, plugins)
        case "tasks":
            task = registry.load("tasks", name)
            facts = task_facts(configured(task, parse_overrides(overrides)) if overrides else task, registry.entry("tasks", name))
        case "metrics":
            facts = metric_facts(registry.load("metrics", name), registry.entry("metrics", name))
        case "executors":
            facts = executor_facts(registry.load("executors", name), registry.entry("executors", name))
        case None:
            facts = score_facts(name, registry)
    if not facts:
        scores = [f"{split}_{metric}" for split in SPLITS for metric in registry.names("metrics")]
        known = [n for kind in KINDS for n in registry.names(kind)]
        raise suggest("task, method, metric, executor or score", name, known + scores)
    show_facts(facts, as_json=as_json)


def task_facts(task: Task, entry: Entry) -> dict[str, Json]:
    """What `info` says of a task: lattice, holdout and its identifiability, budgets, sources."""
    found = identifiability(task.holdout.pattern_space.sizes, task.holdout.seen_cells) if task.holdout.cells else None
    facts: dict[str, Json] = {
        "task": task.name,
        "summary": entry.summary,
        "family": f"{task.family or OTHERS}{', core suite' if task.core else ''}",
        "from": task.citation,
        "version": task.version,
    }
    facts["factors"] = {factor.name: factor.size for factor in task.space.factors}
    facts["combinations"] = task.space.num_combinations
    if found:
        names = [task.space.names[position] for position in task.holdout.factors]
        facts["holdout"] = f"{len(task.holdout.cells)} of {found.num_cells} cells of {' x '.join(names)}"
        facts["coverage"] = f"{found.num_seen}/{found.num_cells} = {found.coverage:.3f}"
        facts["C_min"] = f"{found.full_rank}/{found.num_cells} = {found.minimum_coverage:.3f}"
        facts["marginal coverage"] = ", ".join(
            f"{name} {share:.2f}" for name, share in zip(names, found.marginal_coverage, strict=True)
        )
        facts["components of the seen graph"] = found.num_components
        facts["rank of the main-effects design"] = f"{found.rank} of {found.full_rank}"
        facts["identified"] = (
            "yes: if each factor acts on its own, the seen cells determine every held-out cell"
            if found.feasible
            else "no: even if each factor acted on its own, the seen cells would not determine the held-out ones.  A score above "
            "chance comes from assumptions of the method or from the other factors, not from the seen cells"
        )
        if isinstance(task.settings, CoverageSettings):
            ladder = ", ".join(f"{rung.num_seen / found.num_cells:.3g}" for rung in rungs(task.holdout.pattern_space.sizes))
            facts["coverages"] = f"{ladder}: values for --set task.coverage; from C_min on, the design is orthotopic or random"
    elif task.extends:
        facts["holdout"] = f"none; adds '{task.extends}' to a model of the other factors"
    facts["silos"] = task.silos
    if task.guidance_weights:
        weights = ", ".join(f"{preset} {weight:g}" for preset, weight in task.guidance_weights.items())
        facts["guidance weight"] = f"{weights}: w of every composed sample on the factors of the holdout, 1 on others"
    facts["ranked by"] = task.primary
    facts["budgets"] = {preset: task.budgets[preset].entries() for preset in PRESETS if preset in task.budgets}
    if missing := missing_extra(entry, Home.of_user().data):
        facts["data"] = f"needs packages that are not installed: pip install '{missing}'"
    else:
        facts["data"] = _data(task, Home.of_user().data)
    for name, field in type(task.settings).model_fields.items():
        facts[f"--set task.{name}"] = f"{getattr(task.settings, name)} ({field.description})"
    if not shots.refused(task):
        facts.setdefault(f"--set task.{shots.SETTING}", f"0 ({shots.MEANING})")
    for index, note in enumerate(task.notes):
        facts[f"note {index + 1}"] = note
    for index, note in enumerate(task.paper_notes):
        facts[f"--preset paper {index + 1}"] = note
    return facts


def _data(task: Task, folder: Path) -> str:
    """The data that a run would use here, or why there is none; missing data must not hide the other facts of the task."""
    try:
        source = task.source(folder, "auto")
    except CompbenchError as error:
        return f"none here: {error}"
    return f"{kind_of_data(source.kind)}: {source.name} ({source.fingerprint})"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def method_facts(name: str, registry: Registry, plugins: Sequence[Path] = ()) -> dict[str, Json]:
    """What `info` says of a method: its origin, and its settings with bounds.  Its code runs in another process."""
    entry = registry.entry("methods", name)
    arguments = {"name": name, "plugins": [str(path.resolve()) for path in plugins]}
    with scratch() as folder:
        own = answer_of("compbench.cli.info:loaded_facts", arguments, OfMethod, folder, home=Home.of_user())
    facts: dict[str, Json] = {
        "method": entry.name,
        "summary": entry.summary,
        "version": own.version,
        "package": f"{entry.distribution} {entry.version}",
        "file": f"{entry.file or entry.module} (sha256 {entry.sha256[:12]})",
        "paper": paper(entry),
        "runs on": own.runs_on,
        "can extend": "yes" if own.can_extend else "no: retrained from scratch on extension tasks",
    }
    return facts | {f"best on {task}": row for task, row in best_rows(name, registry).items()} | own.settings


def loaded_facts(progress: object, *, name: str, plugins: Sequence[str]) -> Iterator[OfMethod]:
    """The facts of a method; this runs in a separate process."""
    registry = Registry(tuple(map(Path, plugins)))
    yield of_method(registry.load("methods", name), usable_tasks(registry))


def usable_tasks(registry: Registry) -> list[LoadResult]:
    """All tasks that load."""
    return [found for found in map(registry.attempt, registry.entries("tasks")) if found.state == "ok"]


def of_method(method: Method, tasks: Sequence[LoadResult]) -> OfMethod:
    """The facts of a method; `tasks` are those that it may work on."""
    settings = _setting_facts(method.settings, "--set")
    return OfMethod(method.version, _works_on(method, tasks), method.extend is not None, settings)


def _setting_facts(settings: type[BaseModel], option: str) -> dict[str, str]:
    """Each setting with its default, its bounds and what it means."""
    facts = {}
    for name, schema in settings.model_json_schema().get("properties", {}).items():
        takes = values_of(schema) or schema.get("type") or "value"
        facts[f"{option} {name}"] = f"{schema.get('default')} ({takes}): {schema.get('description', '')}"
    return facts


def executor_facts(executor: Executor, entry: Entry) -> dict[str, Json]:
    """What `info` says of an executor, and its settings with bounds."""
    facts: dict[str, Json] = {
        "executor": executor.name,
        "summary": entry.summary,
        "package": f"{entry.distribution} {entry.version}",
    }
    return facts | _setting_facts(executor.settings, "--executor-set")


def metric_facts(metric: Metric, entry: Entry) -> dict[str, Json]:
    """What `info` says of a metric."""
    return {
        "metric": metric.name,
        "summary": entry.summary,
        "version": metric.version,
        "better": metric.direction,
        "unit": metric.unit or "none",
        "margin": metric.margin,
    }


def score_facts(name: str, registry: Registry) -> dict[str, Json]:
    """What a score's name means: its split, its metric and its suffix; {} if no score of that name is known here."""
    split, _, rest = name.partition("_")
    if split not in SPLITS:
        split, rest = "", name
    metrics = [metric for metric in registry.names("metrics") if rest == metric or rest.startswith(f"{metric}_")]
    tasks = [one.value for one in map(registry.attempt, registry.entries("tasks")) if one.state == "ok"]
    ranked = [task.name for task in tasks if task.primary == name]
    if not (metrics or ranked):
        return {}
    facts: dict[str, Json] = {"score": name}
    if split:
        facts["split"] = f"{split}: {SPLITS[split]}"
    if metrics:
        metric = max(metrics, key=len)
        facts["metric"] = f"{metric}: {registry.entry('metrics', metric).summary}"
        if part := rest.removeprefix(metric).strip("_"):
            facts["part"] = f"{part.replace('_', ' ')}: only of this factor, judge or part"
    facts["ranks"] = ", ".join(ranked) or "no task; it is shown next to the others"
    return facts


def paper(entry: Entry) -> str:
    """The text below the summary in the module of a method: the paper, and choices that the paper leaves open."""
    lines = docstring(entry.file).splitlines()[1:] if entry.file else []
    text = " ".join(line for line in lines if not re.match(r"[\w-]+ {2,}\S", line))  # leaves out the summaries of other methods
    return " ".join(text.split()) or entry.summary


def _works_on(method: Method, tasks: Sequence[LoadResult]) -> str:
    """Tasks whose samples the method can make, and which offer what the method needs."""
    works = [not why_not(method, task.value) for task in tasks]
    if tasks and works.count(False) <= FEW_TASKS:
        left_out = [task.entry.name for task, one in zip(tasks, works, strict=True) if not one]
        return f"all {len(tasks)} tasks here" + (f" but {', '.join(left_out)}" if left_out else "")
    families = by_family(task.entry for task, one in zip(tasks, works, strict=True) if one)
    return "; ".join(f"{name}: {' '.join(entry.name for entry in own)}" for name, own in families.items()) or "none here"


def records_folder() -> Path:
    """The folder of published records if the command runs in a checkout, else that of COMPBENCH_HOME."""
    published = Path("leaderboards/records")
    return published if published.is_dir() else Home.of_user().records


def best_rows(method: str, registry: Registry) -> dict[str, str]:
    """The mean of a method's primary score by task, at the longest preset, over the seeds that the board counts.

    A row at the method's default settings is preferred; any other row names the settings that it changes.
    """
    records = read_records([path for path in Store(records_folder()).paths() if path.name.split(".")[1:2] == [method]])[0]
    entry = registry.entry("methods", method)
    defaults = {(method, entry.distribution): (version_of(entry), default_settings_of(entry))}
    tasks = catalogue({record.spec.task for record in records}, registry)
    board = aggregate(records, catalogue=tasks, method_defaults=defaults)
    own = [row for row in board.rows if row.primary in row.scores and not row.section.changed]

    def place(row: BoardRow) -> tuple[object, ...]:
        return row.kind != "ablation", PRESETS.index(row.section.preset), min(len(row.seeds), ENOUGH_SEEDS)

    best = {}
    for task in sorted({row.section.task for row in own}):
        row = max((row for row in own if row.section.task == task), key=place)
        seeds = f"{len(row.seeds)} seed{'' if len(row.seeds) == 1 else 's'}"
        context = ", ".join([row.section.preset, seeds, *([row.variant] if row.kind == "ablation" and row.variant else [])])
        best[task] = f"{row.primary} {row.scores[row.primary].mean:.4g} ({context})"
    return best


def show_facts(facts: Mapping[str, Json], *, as_json: bool) -> None:
    """Facts as an aligned list, or as JSON."""
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", min_width=12, max_width=24, overflow="fold")
    table.add_column(overflow="fold")
    budgets = facts.get("budgets")
    for name, value in facts.items():
        if name == "budgets":
            table.add_row("budgets", "below")
            continue
        shown = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name, escape(shown + (f": {EXPLAINED[name]}" if name in EXPLAINED else "")))
    console = output.console()
    console.print(table)
    if isinstance(budgets, dict) and budgets:
        console.print(_budget_table(budgets))


def _budget_table(budgets: dict[str, dict[str, Json]]) -> Table:
    """One line per budget entry in which presets differ, and one line for all entries that they share."""
    table = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left", caption_style="")
    for name in ("budget", *budgets):
        table.add_column(name, justify="left" if name == "budget" else "right", overflow="fold")
    same = []
    for name in next(iter(budgets.values())):
        values = [_plain(budget[name]) for budget in budgets.values()]
        if len(set(values)) > 1:
            table.add_row(name, *values)
        else:
            same.append(f"{name} {values[0]}")
    table.caption = f"all presets: {', '.join(same)}" if same else None
    return table
