"""list, plugins: what is installed, with one line each."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from compbench.cli.options import home_of_user

if TYPE_CHECKING:
    from compbench.registry.registry import Entry, LoadResult

SOURCES = (
    "exact: a formula is the data; official: the authors' files are here; "
    "embedded: made by compbench (`compbench data list` names the official files)."
)


@click.command("list")
@click.option("--matrix", is_flag=True, help="Which method works on which task, and why not; loads them.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_(matrix: bool, as_json: bool) -> None:
    """List methods, tasks by family, metrics and executors with one line each.  Imports none of them without --matrix.

    \b
    compbench list
    compbench list --matrix
    compbench list --json | jq '.tasks[] | select(.data == "official") | .name'
    """
    from compbench.registry.registry import KINDS, Registry

    if matrix:
        _show_matrix(as_json=as_json)
        return
    registry = Registry()
    found = {kind: registry.entries(kind) for kind in KINDS}
    if as_json:
        click.echo(json.dumps({kind: [_row(entry) for entry in entries] for kind, entries in found.items()}))
        return
    for kind, entries in found.items():
        click.secho(kind, bold=True)
        for line in _task_lines(entries) if kind == "tasks" else _lines(entries):
            click.echo(line)
        if not entries:
            click.echo("  none installed; first-party methods: pip install compbench-methods")


def _show_matrix(*, as_json: bool) -> None:
    """A line a method: on how many tasks it works, and each reason why it does not work on others."""
    from compbench.sweep.matrix import matrix

    pairs = matrix()
    if as_json:
        refused = {method: {task: why for task, why in row.items() if why} for method, row in pairs.items()}
        click.echo(json.dumps(refused, indent=1, sort_keys=True))
        return
    width = max(map(len, pairs), default=0)
    for method, reasons in pairs.items():
        not_on: dict[str, list[str]] = {}
        for task, reason in reasons.items():
            if reason:
                not_on.setdefault(reason.split(": ", 1)[1].rstrip("."), []).append(task)
        works = len(reasons) - sum(map(len, not_on.values()))
        why = "; ".join(f"not on {', '.join(names)}: {reason}" for reason, names in not_on.items())
        for line in _wrapped(f"  {method:<{width}}  ", f"{works} of {len(reasons)} tasks{'; ' if why else ''}{why}"):
            click.echo(line)


def _row(entry: Entry) -> dict[str, str]:
    from compbench.registry.declared import OTHERS, data_here, declared, missing_extra

    row = {"name": entry.name, "summary": entry.summary, "distribution": entry.distribution, "problem": entry.problem}
    if entry.kind == "tasks":
        data = home_of_user().data
        own = declared(entry)
        row |= {"family": own.family or OTHERS, "data": data_here(entry, data)}
        row |= {"missing_extra": own.extra if missing_extra(entry, data) else ""}
    return row


def _task_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """Tasks under the names of their families, with the data that each would take here."""
    from compbench.registry.declared import by_family, data_here, missing_extra

    width = max((len(entry.name) for entry in entries), default=0)
    data = home_of_user().data
    for name, own in by_family(entries).items():
        yield click.style(f"  {name}", italic=True) if sys.stdout.isatty() else f"  {name}"
        for entry in own:
            missing = missing_extra(entry, data)
            extra = f" (pip install '{missing}')" if missing else ""
            kind = data_here(entry, data)
            yield from _wrapped(f"    {entry.name:<{width}}  {kind:<8}  ", entry.summary + extra + _problem(entry))
    yield from _wrapped("  ", SOURCES)


def _lines(entries: Sequence[Entry]) -> Iterator[str]:
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        yield from _wrapped(f"  {entry.name:<{width}}  ", entry.summary + _problem(entry))


def _problem(entry: Entry) -> str:
    return f" [broken: {entry.problem}]" if entry.problem else ""


def _wrapped(start: str, text: str) -> list[str]:
    """Lines of at most the terminal's width, 80 where there is none; the later ones begin below the text."""
    width = max(len(start) + 30, min(shutil.get_terminal_size().columns, 110))
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start)) or [start.rstrip()]


@click.command()
@click.option("--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def plugins(plugins: tuple[Path, ...], as_json: bool) -> None:
    """Load every plugin in its own guard and say which are ok, broken or incompatible, and why.

    \b
    compbench plugins
    compbench plugins --plugin my_method.py
    """
    from compbench.cli import output

    output.show_plugins(states(plugins), as_json=as_json)


def states(plugins: Sequence[Path] = ()) -> list[LoadResult]:
    """Every plugin after an attempt to load it behind a border, without its value; one that ends the process is broken."""
    from compbench.registry.registry import KINDS, LoadResult, Registry, State
    from compbench.runner.isolated import scratch, values_of
    from compbench.runner.messages import LineOfText
    from compbench.runner.processes import Ended
    from compbench.system.home import Home

    registry = Registry(tuple(plugins))
    entries = [entry for kind in KINDS for entry in registry.entries(kind)]
    files, found = [str(path.resolve()) for path in plugins], list[LoadResult]()
    while left := entries[len(found) :]:
        arguments, kind = {"plugins": files, "first": len(found)}, tuple[State, LineOfText]
        try:
            with scratch() as folder:
                states = values_of("compbench.cli.list:loaded", arguments, kind, folder, home=Home.of_user())
                for entry, (state, reason) in zip(left, states, strict=False):
                    found.append(LoadResult(entry, state, reason))
        except Ended as end:
            found.append(LoadResult(entries[len(found)], "broken", end.reason))
    return found


def loaded(progress: object, *, plugins: Sequence[str], first: int) -> Iterator[tuple[str, str]]:
    """(state, reason) of every plugin from one on.  For a process of its own."""
    from compbench.registry.registry import KINDS, Registry

    registry = Registry(tuple(map(Path, plugins)))
    for entry in [entry for kind in KINDS for entry in registry.entries(kind)][first:]:
        attempt = registry.attempt(entry)
        yield attempt.state, attempt.reason
