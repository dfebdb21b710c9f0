"""show: a record for people: what was run, where, its verification level, its scores and its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from compbench.board.catalogue import catalogue
from compbench.board.groups import section_of
from compbench.board.notation import SMOKE, count, operations
from compbench.board.scale import real_of
from compbench.cli import cell_map as lattice
from compbench.cli import curves, output
from compbench.cli.names import records
from compbench.cli.options import plugin_option
from compbench.registry.declared import declared
from compbench.registry.defaults import literal_defaults
from compbench.registry.meaning import difference_in_words, differing
from compbench.registry.registry import Registry
from compbench.store import conditions, verification
from compbench.store.captions import caption
from compbench.store.counts import PREFIX, beyond_budget, counted, in_words
from compbench.store.format import clean
from compbench.store.loss_curves import unrecovered_spike
from compbench.store.records import Store, read_record
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

if TYPE_CHECKING:
    from rich.console import Console

    from compbench.api.interfaces import Score
    from compbench.api.schemas import Record, Structure

MOST_MATCHES = 10
"""An ambiguous `show` lists at most this many names."""


@click.command()
@click.argument("record", required=False, shell_complete=records())
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
@click.option("--verbose", is_flag=True, help="Also show every count and every loss curve.")
@plugin_option("File of the record's method, if that is not installed.")
def show(record: str | None, as_json: bool, verbose: bool, plugins: tuple[Path, ...]) -> None:
    """Show a record by path, part of its name, or identity; without one, list the records.

    \b
    compbench show
    compbench show shapes3d-heavy.factored.quick.s0
    """
    store = Store(Home.of_user().records)
    if record is None:
        paths = store.paths()
        for path in paths:
            click.echo(path.name)
        if not paths:
            click.echo(f"compbench: there are no records in {store.folder} yet; `compbench run` writes some.", err=True)
        return
    path = _found(store, record)
    try:
        found = read_record(path)
    except CompbenchError as error:
        raise CompbenchError(f"{path} {error}") from error
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json"), sort_keys=True))
    else:
        show_record(found, path, reused=False, verbose=verbose, plugins=plugins)


def _found(store: Store, text: str) -> Path:
    """The one record that matches; if several match, the error lists them."""
    matching = store.matching(text)
    if len(matching) < 2:
        return matching[0] if matching else store.find(text)
    more = f"\n  and {len(matching) - MOST_MATCHES} more" if len(matching) > MOST_MATCHES else ""
    listed = "".join(f"\n  {path.stem}" for path in matching[:MOST_MATCHES])
    raise CompbenchError(f"{len(matching)} records match '{text}'; name one:{listed}{more}")


def show_record(record: Record, path: Path, *, reused: bool, verbose: bool = False, plugins: Sequence[Path] = ()) -> None:
    """Print a record for people: scores next to those of real data, cost, and where everything is.

    For an accuracy, the score of real data is the judge's accuracy on real samples; for a distance, it is the distance between
    two samples of real data.
    """
    console = output.console()
    print_head(console, record, reused=reused)
    print_named(console, circumstances(record, path, plugins))
    if record.scores:
        console.print(_score_table(record.scores))
        print_named(console, _on_scores(record.scores))
        print_lattice(console, record)
    for point in record.curve:
        values = ", ".join(f"{name} {value:.4g}" for name, value in point.scores.items())
        output.say(console, f"after step {point.step}: ", values)
    if record.status == "ok":
        print_named(console, _speeds(record))
        for line in stages(record):
            console.print(line, soft_wrap=True)
        print_named(console, _extension(record))
        print_named(console, counts(record, verbose=verbose))
    print_files(console, record, path)


def print_head(console: Console, record: Record, *, reused: bool) -> None:
    """Print what was run, and why it failed if it did."""
    spec = record.spec
    console.print(
        f"[bold]{escape(spec.method)}[/bold] on [bold]{escape(spec.task)}[/bold]  seed {spec.seed}, {spec.preset}, "
        f"{escape(spec.device_class)}, {spec.precision}, {_source(record)}"
    )
    if reused:
        output.say(console, "", "This spec was run before; this is its record (--force runs it again).")
    if record.status != "ok":
        console.print(f"[bold red]{record.status}[/bold red]: {escape(record.reason)}")
        if record.traceback:
            console.print(escape(record.traceback[-1500:]), style="dim")


def print_files(console: Console, record: Record, path: Path) -> None:
    """Print where the record and its pictures are, and what each picture shows."""
    output.say(console, "record   ", str(path))
    for artifact in record.artifacts:
        output.say(console, "picture  ", str(path.with_name(artifact.name)))
        if words := caption(record, artifact.name):
            output.say(console, "         ", words)


def print_lattice(console: Console, record: Record) -> None:
    """Print the share of correct samples in each cell, without wrapping the grid's rows, and the summary lines."""
    for line in lattice.lines(record.scores, lattice.names_of(record)):
        if line.startswith(" "):
            console.print(line, soft_wrap=True, highlight=False)
        else:
            output.say(console, "", line, later="  ")


def print_named(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print a line for each (name, value)."""
    for name, value in lines:
        output.say(console, f"{name:<8} ", clean(value))


def _source(record: Record) -> str:
    if record.spec.source == "embedded":
        known = (entry for entry in Registry().entries("tasks") if entry.name == record.spec.task)
        missing = " (no official files here)" if any(declared(entry).files for entry in known) else ""
        return f"[yellow]built-in data{missing}[/yellow]" if missing else "built-in data"
    return "official data"


def _score_table(scores: Sequence[Score]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score", min_width=max(len(score.name) for score in scores), overflow="fold")
    for name in ("value", "real data", "n"):
        table.add_column(name, justify="right", overflow="fold")
    for score in scores:
        style = "bold green" if score.primary else ""
        value = "unavailable" if score.value is None else f"{score.value:.4g}"
        table.add_row(score.name, value, _figure(real_of(score)), str(score.n), style=style)
    return table


def _on_scores(scores: Sequence[Score]) -> Iterator[tuple[str, str]]:
    """Say which score ranks on the board, why some have no value, and what to know about others: each reason once."""
    yield from (("ranked", f"by {score.name}") for score in scores if score.primary)
    named: dict[tuple[str, str], list[str]] = {}
    for score in scores:
        if score.reason:
            named.setdefault(("missing" if score.value is None else "noted", score.reason), []).append(score.name)
    yield from ((what, f"{', '.join(names)}: {reason}") for (what, reason), names in named.items())


def _figure(value: float | None, unknown: str = "") -> str:
    return unknown if value is None else f"{value:.4g}"


def latency(milliseconds: float | None) -> str:
    """A latency in words, 12.3 ms or 79.7 s, with three digits; "?" if it is not known."""
    if milliseconds is None:
        return "?"
    value, unit = (milliseconds, "ms") if milliseconds < 999.5 else (milliseconds / 1000, "s")
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def _speeds(record: Record) -> Iterator[tuple[str, str]]:
    """Speeds of training and sampling, then sizes; what is unknown is left out."""
    p = record.profile
    if p.train_steps_per_second is not None:
        share = f", {p.share_of_peak_training:.1%} of the measured peak" if p.share_of_peak_training else ""
        yield "training", f"{p.train_steps_per_second:.3g} steps/s, {_figure(p.train_samples_per_second, '?')} samples/s{share}"
    if p.sample_samples_per_second is not None:
        p50, p95 = (latency(value) for value in (p.latency_p50_ms, p.latency_p95_ms))
        speed = f"{p.sample_samples_per_second:.3g} samples/s at batch {p.sample_batch}, p50 {p50}, p95 {p95}"
        yield "sampling", f"{speed}, {_figure(p.evaluations_per_sample, '?')} evaluations a sample"
    facts = []
    if p.parameters is not None:
        facts.append(f"{count(p.parameters)} parameters")
    if p.flops_per_train_step is not None and p.train_steps != 0:
        facts.append(f"{operations(p.flops_per_train_step)} a training step")
    if p.flops_per_sample is not None:
        facts.append(f"{operations(p.flops_per_sample)} a sample")
    if p.peak_memory_bytes:
        facts.append(f"peak memory {p.peak_memory_bytes / 2**20:.0f} MiB")
    if facts:
        yield "size", ", ".join(facts)


def _extension(record: Record) -> Iterator[tuple[str, str]]:
    """What an extension task's second stage added."""
    if e := record.profile.extension:
        frozen = {True: "frozen weights bit-identical", False: "FROZEN WEIGHTS CHANGED", None: "nothing frozen"}
        added = f"{e.new_parameters} new parameters, {e.seconds:.1f} s = {e.share_of_base:.0%} of the base's training"
        yield "extended", f"{e.mode}: {added}, {frozen[e.frozen_identical]}"


def between(record: Record) -> float:
    """Seconds of a run outside of all stages: processes start, and messages are exchanged."""
    return max(0.0, record.seconds - sum(stage.seconds for stage in record.profile.stages))


def stages(record: Record) -> Iterator[str]:
    """A table of a run's stages: wall-clock and CPU seconds of each, and wall-clock seconds between them (starts, messages)."""
    p = record.profile
    yield f"{'stage':<10}{'wall s':>10}{'CPU s':>10}"
    for stage in p.stages:
        cpu = f"{stage.cpu_seconds:.1f}" if stage.cpu_seconds or not stage.seconds else "-"  # a few stages have no CPU time
        yield f"{stage.name:<10}{stage.seconds:10.1f}{cpu:>10}"
    yield f"{'between':<10}{between(record):10.1f}{'-':>10}   processes that start, and messages"
    yield f"{'in all':<10}{record.seconds:10.1f}"


def counts(record: Record, *, verbose: bool) -> Iterator[tuple[str, str]]:
    """Loss curves, counts of the harness, and notes of the method."""
    for line in curves.lines(record.losses, whole=verbose):
        yield "loss", line
    if found := "; ".join(filter(None, map(unrecovered_spike, record.losses))):
        yield "unstable", f"the loss of {found} and did not recover; a lower learning rate may help"
    if words := in_words(record):
        yield "counted", ", ".join(words)
    if words := conditions.in_words(record):
        yield "asked", "; ".join(words)
    if record.structure is not None:
        yield "hidden", _structure_in_words(record.structure)
    if verbose:
        yield from (("", f"{name} {value:.6g}") for name, value in counted(record).items())
    noted = [f"{name} {value:.6g}" for name, value in record.notes.items() if isinstance(value, float)]
    own = [note for note in noted if not note.startswith(PREFIX)]
    if own:
        yield "noted", f"by the method: {', '.join(own)}"


def _structure_in_words(found: Structure) -> str:
    """How additive the hidden activations are, and how far the factors' effects share directions."""
    chance = found.num_effects / (found.num_cells - 1) if found.num_cells > 1 else 1.0
    r2 = (
        f"R2 {found.r2:.3f} of the additive decomposition by factor (without structure about {chance:.2g})"
        if found.r2 is not None
        else f"no R2: {found.num_effects} effects fit any activations of {found.num_cells} cells"
    )
    cosine = "no cosine" if found.cosine is None else f"cosine {found.cosine:.3f} between the factors' spans"
    return f"{r2}, {cosine}; {found.num_cells} seen cells, {found.layer} (docs/hidden_structure.md)"


def circumstances(record: Record, path: Path | None = None, plugins: Sequence[Path] = ()) -> Iterator[tuple[str, str]]:
    """What a reader must know besides the scores: what was changed, versions, code, level, date and machine.

    Without a path, the record's versions and level are left out, because finding them is slow.
    """
    spec, where = record.spec, record.environment
    yield "settings", ", ".join(f"{name}={value}" for name, value in sorted(spec.settings.items())) or "none"
    yield "changed", _changed_in_words(record, plugins)
    if spec.preset == "smoke":
        yield "note", SMOKE
    if path is not None:
        yield (
            "versions",
            f"method {spec.method_version}, task {spec.task_version}, compbench {where.compbench}; {_code_age(record, plugins)}",
        )
    if over := beyond_budget(record):
        yield "budget", f"the run went beyond its budget: {'; '.join(over)}"
    if rarely := conditions.untrained_in_words([record]):
        yield "warning", f"the sampler asks the network for what it was hardly trained on: {'; '.join(rarely)}"
    if path is not None:
        yield "level", _level(record, path)
    if record.resumed:
        yield "resumed", "the run continued from a checkpoint: seconds and counts belong to the last process only"
    if record.rescored:
        yield "scored", f"scored again, from what was kept of {record.rescored}"
    shared = f", shared by {where.slots} runs" if where.slots > 1 else ""
    machine = where.device if where.device != "cpu" else where.cpu or "unknown processor"
    began = record.started[:16].replace("T", " ")
    torch = f", torch {where.torch}" if where.torch else ""  # a run that ended before torch was loaded has no version
    known = f"{where.threads} of {where.cores} threads"
    threads = known if where.threads else f"{where.cores} cores"  # the same for threads
    yield "where", f"{began} UTC, {machine}, {threads}{shared}{torch}"
    if record.profile.distrust:
        yield "doubted", f"speeds: {record.profile.distrust}"


def _changed_in_words(record: Record, plugins: Sequence[Path]) -> str:
    """The settings that differ from the defaults, in words.

    A record names the settings that were given.  Older records do not; if their method is not installed, the changes are unknown.
    """
    registry = Registry(tuple(plugins))
    if record.given is None and record.spec.method not in registry.names("methods") and not record.samples_only:
        return f"not known: the method's defaults are not here{_file_of(record)}"
    return ", ".join(_changed(record, registry)) or "no setting: the method's defaults, the preset's budget"


def _changed(record: Record, registry: Registry) -> Iterator[str]:
    """NAME=VALUE of each setting that was given or differs from the installed defaults, and of changed task and budget."""
    spec = record.spec
    known = registry.names("methods")
    file = registry.entry("methods", spec.method).file if spec.method in known else None
    defaults = literal_defaults(file) if file else {}
    settings = {} if record.samples_only else spec.settings  # settings of a record of samples are the samples' hash
    for name, value in settings.items():
        given = record.given is None or name in record.given
        if given and (name not in defaults or value not in defaults[name]):
            yield f"{name}={value}"
    section = section_of(record, catalogue([spec.task], registry))
    budget = {f"{name}={getattr(spec.budget, name)}" for name in spec.budget_changed}
    yield from (f"task.{one}" for one in section.changed if one.partition("=")[0] not in spec.budget_changed)
    yield from (f"budget.{one}" for one in sorted(budget))


def _code_age(record: Record, plugins: Sequence[Path]) -> str:
    try:
        return difference_in_words(differing(record, Registry(tuple(plugins)))).replace("the code", "today's code", 1)
    except CompbenchError:
        return f"its method or task is not installed here{_file_of(record)}"


def _file_of(record: Record) -> str:
    """How to name the file that a record's method came from; "" where it came from a package."""
    return f"; name its file with --plugin {record.plugin.module}" if record.plugin.version == "file" else ""


def _level(record: Record, path: Path) -> str:
    try:
        found, _ = verification.read(verification.beside(path.parent), [record], path.parent)
    except (CompbenchError, OSError):
        found = {}
    standing = found.get(record.name, verification.Verification())
    if record.samples_only:
        return f"{verification.SAMPLES_ONLY}: compbench saw no training; training data {standing.training_data}"
    return f"{standing.level}, training data {standing.training_data}"
