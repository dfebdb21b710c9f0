"""What the terminal shows: progress, score tables, facts.  Plain text where the output is not a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from compbench.board.notation import duration
from compbench.cli.wrapping import on_terminal, paragraph, wrapped
from compbench.data.colour_font import ColourFont
from compbench.data.sources import INSTALLED, SOURCES, InstalledSource
from compbench.store.format import clean
from compbench.sweep.estimate import hours_of
from compbench.system.errors import CompbenchError
from compbench.system.fonts import find_font

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.progress import Task as ProgressTask

    from compbench.api.executor import RunResult
    from compbench.api.schemas import RunRequest
    from compbench.registry.registry import LoadResult

MOST_BARS = 20
"""Largest number of a run's stages that get a bar or a line; the harness itself has fewer stages."""
LINE_SECONDS = 60.0
"""Seconds between lines of progress within a stage if standard error is not a terminal."""
MEANINGS = {"seen-split judge": "a second classifier that never ranks, trained on seen combinations alone"}
"""Explanations of stages whose names say too little; each is printed once."""


@contextlib.contextmanager
def listener(
    *, quiet: bool, title: str, plan: str = "", seconds: float | None = None
) -> Iterator[Callable[[str, int, int], None]]:
    """A progress listener for one run, on standard error: its plan, and a bar per stage with steps/s and the time that is left.

    If the `seconds` of the whole run are known, another bar covers all stages.  If standard error is not a terminal, plain lines
    are printed instead: the plan, one line when a stage begins, and one line a minute.  These lines say how much time the run
    still needs by the plan, or how much the stage still needs if the plan gives no duration.
    """
    if quiet:
        yield lambda stage, done, total: None
        return
    if not sys.stderr.isatty():
        yield _lines(title, plan, seconds)
        return
    with _progress() as progress:
        progress.console.print(f"[bold]{escape(title)}[/bold]")
        if plan:
            progress.console.print("\n".join(map(escape, wrapped("plan  ", plan))), soft_wrap=True, highlight=False)
        bars: dict[str, TaskID] = {}
        began = time.monotonic()
        whole = progress.add_task("all stages, seconds", total=round(seconds), of="of the run") if seconds else None

        def report(stage: str, done: int, total: int) -> None:
            if stage not in bars and len(bars) < MOST_BARS:
                bars[stage] = progress.add_task(stage, total=total, of="of the stage")
                if stage in MEANINGS:
                    progress.console.print(f"{stage}: {MEANINGS[stage]}", highlight=False)
            if stage in bars:
                progress.update(bars[stage], completed=done, total=total)
            if whole is not None and seconds:
                progress.update(whole, completed=min(round(time.monotonic() - began), round(0.99 * seconds)))

        yield report


def _lines(title: str, plan: str, seconds: float | None) -> Callable[[str, int, int], None]:
    """Print title and plan, and return a listener that prints a line when a stage begins and one a minute."""
    began = time.monotonic()
    stages: dict[str, tuple[float, int]] = {}  # by first word of the stage: time and progress of its first report
    last = [began]

    def line(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def report(stage: str, done: int, total: int) -> None:
        now, name = time.monotonic(), stage.partition(" ")[0]
        is_new = name not in stages
        if is_new and len(stages) < MOST_BARS:
            stages[name] = now, done
        elif is_new or now - last[0] < LINE_SECONDS:
            return
        last[0], (start, first) = now, stages[name]
        left = (now - start) * (total - done) / (done - first) if first < done < total and stage == name else 0.0
        rest = f", about {duration(left)} left of the {clean(stage)}" if left else ""
        if seconds and now - began < seconds:
            rest = f", about {duration(seconds - (now - began))} left of the run by the plan"
        meaning = f" ({MEANINGS[stage]})" if is_new and stage in MEANINGS else ""
        line(f"{duration(now - began)}  {clean(stage)}{meaning} {done}/{total}{rest}")

    line(clean(title))
    if plan:
        line(f"plan  {clean(plan)}")
    return report


@contextlib.contextmanager
def sweep_listener(count: int, *, quiet: bool) -> Iterator[Callable[[int, RunRequest, str, int, int], None]]:
    """A progress listener for a sweep: one bar for all runs and one per slot; without a terminal, one line per run."""
    if quiet:
        yield lambda slot, request, stage, done, total: None
        return
    if not sys.stderr.isatty():
        finished = [0]

        def tell(slot: int, request: RunRequest, stage: str, done: int, total: int) -> None:
            if stage.startswith("done"):
                finished[0] += 1
                named = f"{request.method} {request.task} seed {request.seed}"
                print(f"{finished[0]}/{count} {named}{stage.removeprefix('done')}", file=sys.stderr, flush=True)

        yield tell
        return
    with _progress() as progress:
        whole = progress.add_task("runs", total=count, of="of the sweep")
        bars: dict[int, TaskID] = {}

        def report(slot: int, request: RunRequest, stage: str, done: int, total: int) -> None:
            if slot not in bars:
                bars[slot] = progress.add_task("", total=total, of="of the stage")
            if stage.startswith("done"):
                progress.advance(whole)
            label = f"{request.method} {request.task} {request.seed}: {stage}"
            progress.update(bars[slot], description=label, completed=done, total=total)

        yield report


@contextlib.contextmanager
def notices(*, quiet: bool) -> Iterator[None]:
    """Show an executor's messages (a job's number, why it waits) on standard error; if `quiet`, show only warnings."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(f"compbench: {record.getMessage()}", file=sys.stderr, flush=True)

    logger, lines = logging.getLogger("compbench"), Lines()
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before[0])
        logger.propagate = before[1]


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
        TextColumn("{task.description}", markup=False),  # text from a child process
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        Speed(),
        TimeElapsedColumn(),
        TextColumn("gone"),
        TimeRemainingColumn(),
        TextColumn("left {task.fields[of]}"),
        console=Console(stderr=True),
    )


@contextlib.contextmanager
def bytes_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress listener for downloads: it takes (file, bytes done, total bytes or 0)."""
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

        def report(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total or None)
            progress.update(bars[name], completed=done)

        yield report


def show_sweep(results: Sequence[RunResult], pages: Sequence[Path]) -> None:
    """Print one line per run."""
    terminal = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("method", "task", "seed", "status", "seconds", "score"):
        table.add_column(name, overflow="fold")
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
    terminal.print(table)
    show_pages(pages)


def show_missing(requests: Sequence[RunRequest], there: Sequence[bool], seconds: Sequence[float | None]) -> None:
    """Print one line per task: its number of methods, settings and seeds, how many runs exist, and hours for the missing ones.

    Hours are the sum of the expected seconds over the missing runs; a line below the table says what ? means.
    """
    tasks: dict[str, list[tuple[RunRequest, bool, float | None]]] = {}
    for request, done, took in zip(requests, there, seconds, strict=True):
        tasks.setdefault(request.task, []).append((request, done, took))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", no_wrap=True)
    table.add_column("preset", overflow="fold")
    for name in ("methods", "settings", "seeds", "there", "missing", "hours"):
        table.add_column(name, justify="right", overflow="fold")
    unknown = False
    for task, runs in tasks.items():
        own = [request for request, _, _ in runs]
        settings = {json.dumps(request.overrides, sort_keys=True) for request in own}
        sizes = len({one.method for one in own}), len(settings), len({one.seed for one in own})
        missing = [took for _, done, took in runs if not done]
        hours = hours_of(missing) or "?"
        unknown = unknown or hours == "?"
        table.add_row(task, own[0].preset, *map(str, (*sizes, len(runs) - len(missing), len(missing), hours)))
    console().print(table)
    if unknown:
        say(console(), "? ", "neither a finished run here nor a published one says how long such runs take")


def show_pages(pages: Sequence[Path]) -> None:
    """Print where the rebuilt board is."""
    for page in pages:
        if page.suffix == ".html":
            say(console(), "board    ", str(page))


def show_plugins(loaded: Sequence[LoadResult], *, as_json: bool) -> None:
    """Print every plugin with its state, and the reason if it is not ok."""
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
        table.add_column(name, overflow="fold")
    for row in rows:
        state = f"[{colours[row['state']]}]{row['state']}[/]"
        table.add_row(row["kind"], row["name"], state, escape(row["distribution"]), escape(row["reason"]))
    console().print(table)


def show_sources(folder: Path) -> None:
    """Print the official data sources, how many files of each are in the data folder, and what installs a missing font."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("source", "files here", "what", "licence"):
        table.add_column(name, overflow="fold")
    for source in SOURCES.values():
        here = sum((folder / file.name).is_file() for file in source.files)
        table.add_row(source.name, f"{here} of {len(source.files)}", source.summary, source.licence)
    advice = []
    for installed in INSTALLED.values():
        state, what_to_do = _state_of(installed, folder)
        table.add_row(installed.name, state, installed.summary, installed.licence)
        advice += [f"{installed.name}: {what_to_do}"] if what_to_do else []
    console().print(table)
    for line in advice:  # below the table, where no column breaks a command
        console().print(escape(line), soft_wrap=True)


def _state_of(installed: InstalledSource, folder: Path) -> tuple[str, str]:
    """Whether a font is here, with the version that it states, and what to do if it is not here or cannot be read."""
    path = find_font(installed.file, folder)
    if path is None:
        return "missing", installed.install
    try:
        version = escape(clean(ColourFont(path).version.partition(";")[0])).lower()
    except CompbenchError as error:
        return "not readable", str(error)
    return f"installed, {version}" if version else "installed", ""


def say(terminal: Console, start: str, text: str, later: str | None = None) -> None:
    """Print a paragraph."""
    terminal.print(escape(paragraph(start, text, later)), soft_wrap=True, highlight=False)


class WithoutTrailingBlanks(io.TextIOBase):
    """A stream that strips trailing blanks from each line; tables pad their last column with them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r"[ \t]+(?=\n|$)", "", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def console() -> Console:
    """The terminal, or a plain stream of COLUMNS characters per line (default 80) without trailing blanks."""
    if on_terminal():
        return Console(highlight=False)
    plain = cast(IO[str], WithoutTrailingBlanks(sys.stdout))
    return Console(file=plain, width=shutil.get_terminal_size().columns, highlight=False)
