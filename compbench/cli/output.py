"""What the terminal shows: progress, score tables, facts.  Plain text where the output is not a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.progress import Progress, TaskID
    from rich.progress import Task as ProgressTask

    from compbench.interfaces import Method, Metric, Score, Task
    from compbench.registry import Entry, Loaded
    from compbench.schemas import Record, RunRequest
    from compbench.sweep.executor import Executor, Result


@contextlib.contextmanager
def listener(*, quiet: bool, title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress listener for one run: a bar a stage with steps/s and time left, on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda stage, done, total: None
        return
    with _progress() as progress:
        progress.console.print(f"[bold]{escape(title)}[/bold]")
        bars: dict[str, TaskID] = {}

        def hear(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done, total=total)

        yield hear


@contextlib.contextmanager
def sweep_listener(count: int, *, quiet: bool) -> Iterator[Callable[[int, RunRequest, str, int, int], None]]:
    """A progress listener for a sweep: one bar for all runs and one for what each slot does; a line a run if no terminal."""
    if quiet:
        yield lambda slot, request, stage, done, total: None
        return
    if not sys.stderr.isatty():
        finished = [0]

        def tell(slot: int, request: RunRequest, stage: str, done: int, total: int) -> None:
            if stage == "done":
                finished[0] += 1
                print(
                    f"{finished[0]}/{count} {request.method} {request.task} seed {request.seed}",
                    file=sys.stderr,
                    flush=True,
                )

        yield tell
        return
    with _progress() as progress:
        whole = progress.add_task("runs", total=count)
        bars: dict[int, TaskID] = {}

        def hear(slot: int, request: RunRequest, stage: str, done: int, total: int) -> None:
            if slot not in bars:
                bars[slot] = progress.add_task("", total=total)
            if stage == "done":
                progress.advance(whole)
            label = f"{request.method} {request.task} {request.seed}: {stage}"
            progress.update(bars[slot], description=label, completed=done, total=total)

        yield hear


def _progress() -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: ProgressTask) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:.1f}/s" if speed else "", style="cyan")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        Speed(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


@contextlib.contextmanager
def bytes_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress listener for downloads: (file, bytes done, bytes in all or 0)."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars: dict[str, TaskID] = {}

        def hear(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total or None)
            progress.update(bars[name], completed=done)

        yield hear


def show(record: Record, path: Path, *, reused: bool, pages: Sequence[Path]) -> None:
    """A record for people: scores beside their ceilings and floors, cost, and where everything is."""
    console = _console()
    spec = record.spec
    console.print(
        f"[bold]{escape(spec.method)}[/bold] on [bold]{escape(spec.task)}[/bold]  seed {spec.seed}, {spec.preset}, "
        f"{escape(spec.device_class)}, {spec.precision}, {_source(record)}"
    )
    if reused:
        console.print("This spec had been run before; this is its record (--force runs it again).")
    if record.status != "ok":
        console.print(f"[bold red]{record.status}[/bold red]: {escape(record.reason)}")
        if record.traceback:
            console.print(escape(record.traceback[-1500:]), style="dim")
    if record.scores:
        console.print(_score_table(record.scores))
    if record.status == "ok":
        for line in _profile_lines(record):
            console.print(line)
        if record.notes:
            told = (f"{name} {value:.3g}" for name, value in record.notes.items() if isinstance(value, float))
            console.print(f"noted by the method: {escape(', '.join(told))}")
    console.print(f"record  {escape(str(path))}", soft_wrap=True)
    for artifact in record.artifacts:
        console.print(f"picture {escape(str(path.with_name(artifact.name)))}", soft_wrap=True)
    for page in pages:
        if page.suffix == ".html":
            console.print(f"board   {escape(str(page))}", soft_wrap=True)


def _source(record: Record) -> str:
    if record.spec.source == "embedded":
        return "[yellow]embedded data (no official files)[/yellow]"
    return "official data"


def _score_table(scores: Sequence[Score]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score")
    for name in ("value", "ceiling", "floor", "n"):
        table.add_column(name, justify="right")
    table.add_column("")
    for score in scores:
        style = "bold green" if score.primary else ""
        value = "unavailable" if score.value is None else f"{score.value:.4g}"
        note = score.reason or ("ranks the board" if score.primary else "")
        table.add_row(score.name, value, _figure(score.ceiling), _figure(score.floor), str(score.n), escape(note), style=style)
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _profile_lines(record: Record) -> Iterator[str]:
    p = record.profile
    if p.train_steps_per_second:
        share = f", {p.share_of_peak_training:.1%} of the measured peak" if p.share_of_peak_training else ""
        yield f"training {p.train_steps_per_second:.3g} steps/s, {p.train_samples_per_second:.4g} samples/s{share}"
    if p.sample_samples_per_second:
        yield (
            f"sampling {p.sample_samples_per_second:.3g} samples/s at batch {p.sample_batch}, p50 {p.latency_p50_ms:.4g} ms, "
            f"p95 {p.latency_p95_ms:.4g} ms, {p.evaluations_per_sample or '?'} evaluations a sample"
        )
    facts = []
    if p.parameters:
        facts.append(f"{p.parameters / 1e6:.3g} M parameters")
    if p.flops_per_train_step:
        facts.append(f"{p.flops_per_train_step / 1e9:.3g} GFLOP a training step")
    if p.flops_per_sample:
        facts.append(f"{p.flops_per_sample / 1e9:.3g} GFLOP a sample")
    if p.peak_memory_bytes:
        facts.append(f"peak memory {p.peak_memory_bytes / 2**20:.0f} MiB")
    yield ", ".join(facts)
    yield ("seconds  " + ", ".join(f"{stage.name} {stage.seconds:.1f}" for stage in p.stages) + f"; in all {record.seconds:.1f}")
    if p.extension:
        e = p.extension
        frozen = {True: "frozen weights bit-identical", False: "FROZEN WEIGHTS CHANGED", None: "nothing frozen"}
        yield (
            f"extension {e.mode}: {e.new_parameters} new parameters, {e.seconds:.1f} s = "
            f"{e.share_of_base:.0%} of the base's training, {frozen[e.frozen_identical]}"
        )


def show_sweep(results: Sequence[Result], pages: Sequence[Path]) -> None:
    """One line a run."""
    console = _console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("method", "task", "seed", "status", "seconds", "score"):
        table.add_column(name)
    for result in results:
        status = f"{result.status}{' (had been run)' if result.reused else ''}"
        note = result.primary or result.reason
        table.add_row(
            result.method,
            result.task,
            str(result.seed),
            status,
            f"{result.seconds:.0f}",
            escape(note[:120]),
            style="" if result.status == "ok" else "red",
        )
    console.print(table)
    for page in pages:
        console.print(f"board {escape(str(page))}", soft_wrap=True)


def task_facts(task: Task, entry: Entry) -> dict[str, Any]:
    """What `info` says of a task: lattice, holdout and its identifiability, budgets, sources."""
    from compbench.factors import identifiability
    from compbench.home import Home

    found = identifiability(task.holdout.pattern_space.sizes, task.holdout.seen_cells) if task.holdout.cells else None
    facts: dict[str, Any] = {
        "task": task.name,
        "summary": entry.summary,
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
            "yes: the seen cells fix all main effects"
            if found.feasible
            else "no: the seen cells do not fix the main effects; no method can learn the others from the pair alone"
        )
    elif task.extends:
        facts["holdout"] = f"none; adds '{task.extends}' to a model of the other factors"
    facts["silos"] = task.silos
    if task.guidance_weights:
        weights = ", ".join(f"{preset} {weight:g}" for preset, weight in task.guidance_weights.items())
        facts["guidance weight"] = f"{weights}: w of every composed sample on the factors of the holdout, 1 on others"
    facts["ranked by"] = task.primary
    for preset, budget in task.budgets.items():
        facts[f"budget {preset}"] = ", ".join(f"{name} {_plain(value)}" for name, value in budget.model_dump().items())
    source = task.source(Home.of_user().data, "auto")
    facts["data"] = f"{source.kind}: {source.name} ({source.fingerprint})"
    for name, field in type(task.settings).model_fields.items():
        facts[f"--set task.{name}"] = f"{getattr(task.settings, name)} ({field.description})"
    for index, note in enumerate(task.notes):
        facts[f"note {index + 1}"] = note
    for index, note in enumerate(task.paper_notes):
        facts[f"--preset paper {index + 1}"] = note
    return facts


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def method_facts(method: Method, entry: Entry) -> dict[str, Any]:
    """What `info` says of a method: where it is from, and its settings with bounds."""
    facts: dict[str, Any] = {
        "method": method.name,
        "summary": entry.summary,
        "version": method.version,
        "distribution": f"{entry.distribution} {entry.version}",
        "file": f"{entry.module} (sha256 {entry.sha256[:12]})",
        "makes": ", ".join(method.kinds),
        "can extend": "yes" if method.extend else "no: retrained from scratch on extension tasks",
    }
    return facts | _setting_facts(method.settings, "--set")


def _setting_facts(settings: type[BaseModel], option: str) -> dict[str, str]:
    """Each setting with its default, its bounds and what it means."""
    facts = {}
    for name, schema in settings.model_json_schema().get("properties", {}).items():
        bounds = " ".join(
            f"{sign} {schema[key]}"
            for key, sign in (
                ("minimum", ">="),
                ("exclusiveMinimum", ">"),
                ("maximum", "<="),
                ("exclusiveMaximum", "<"),
            )
            if key in schema
        )
        facts[f"{option} {name}"] = f"{schema.get('default')}  {schema.get('type', '')} {bounds}  {schema.get('description', '')}"
    return facts


def executor_facts(executor: Executor, entry: Entry) -> dict[str, Any]:
    """What `info` says of an executor, and its settings with bounds."""
    facts = {"executor": executor.name, "summary": entry.summary, "distribution": f"{entry.distribution} {entry.version}"}
    return facts | _setting_facts(executor.settings, "--executor-set")


def metric_facts(metric: Metric, entry: Entry) -> dict[str, Any]:
    """What `info` says of a metric."""
    return {
        "metric": metric.name,
        "summary": entry.summary,
        "version": metric.version,
        "better": metric.direction,
        "unit": metric.unit or "none",
        "margin": metric.margin,
    }


def show_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    """Facts as an aligned list, or as JSON."""
    if as_json:
        print(json.dumps(facts))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        shown = ", ".join(f"{key} {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name, escape(shown))
    _console().print(table)


def show_plugins(loaded: Sequence[Loaded], *, as_json: bool) -> None:
    """Every plugin with its state, and the reason if it is not ok."""
    rows = [
        {
            "kind": one.entry.kind,
            "name": one.entry.name,
            "state": one.state,
            "distribution": f"{one.entry.distribution} {one.entry.version}",
            "reason": one.reason,
        }
        for one in loaded
    ]
    if as_json:
        print(json.dumps(rows))
        return
    colours = {"ok": "green", "broken": "red", "incompatible": "yellow"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "name", "state", "from", "reason"):
        table.add_column(name)
    for row in rows:
        state = f"[{colours[row['state']]}]{row['state']}[/]"
        table.add_row(row["kind"], row["name"], state, escape(row["distribution"]), escape(row["reason"]))
    _console().print(table)


def show_sources(folder: Path) -> None:
    """Official data sources and which of their files are in the data folder."""
    from compbench.data.sources import SOURCES

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("source", "files here", "what", "licence"):
        table.add_column(name)
    for source in SOURCES.values():
        here = sum((folder / file.name).is_file() for file in source.files)
        table.add_row(source.name, f"{here} of {len(source.files)}", source.summary, source.licence)
    _console().print(table)


def _console() -> Console:
    width = None if sys.stdout.isatty() else 160
    return Console(width=width, highlight=False)
