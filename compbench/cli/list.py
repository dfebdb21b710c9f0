"""list, info, plugins, show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compbench.cli.options import home_of_user
from compbench.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.registry import Entry, Kind


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_(as_json: bool) -> None:
    """List methods, tasks, metrics and executors with one line each.  Imports none of them."""
    from compbench.registry import KINDS, Registry

    registry = Registry()
    found = {kind: registry.entries(kind) for kind in KINDS}
    if as_json:
        rows = {
            kind: [{"name": e.name, "summary": e.summary, "distribution": e.distribution, "problem": e.problem} for e in entries]
            for kind, entries in found.items()
        }
        click.echo(json.dumps(rows))
        return
    for kind, entries in found.items():
        click.secho(kind, bold=True)
        width = max((len(entry.name) for entry in entries), default=0)
        for entry in entries:
            note = click.style(f"  [broken: {entry.problem}]", fg="red") if entry.problem else ""
            click.echo(f"  {entry.name:<{width}}  {entry.summary}{note}")
        if not entries:
            click.echo("  none installed; first-party methods: pip install compbench-methods")


@click.command()
@click.argument("name")
@click.option("--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def info(name: str, plugins: tuple[Path, ...], as_json: bool) -> None:
    """What a task asks and whether it can be learnt, or what a method or executor is and which settings it has."""
    from compbench.cli import output
    from compbench.errors import suggest
    from compbench.registry import KINDS, Registry

    registry = Registry(plugins)
    shown: dict[Kind, Callable[[Any, Entry], dict[str, Any]]] = {
        "tasks": output.task_facts,
        "methods": output.method_facts,
        "metrics": output.metric_facts,
        "executors": output.executor_facts,
    }
    for kind, facts in shown.items():
        if name in registry.names(kind):
            output.show_facts(facts(registry.load(kind, name), registry.entry(kind, name)), as_json=as_json)
            return
    raise suggest("task, method, metric or executor", name, [n for kind in KINDS for n in registry.names(kind)])


@click.command()
@click.option("--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def plugins(plugins: tuple[Path, ...], as_json: bool) -> None:
    """Load every plugin in its own guard and say which are ok, broken or incompatible, and why."""
    from compbench.cli import output
    from compbench.registry import KINDS, Registry

    registry = Registry(plugins)
    loaded = [registry.attempt(entry) for kind in KINDS for entry in registry.entries(kind)]
    output.show_plugins(loaded, as_json=as_json)


@click.command()
@click.argument("record", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def show(record: str | None, as_json: bool) -> None:
    """Show a record by path, name or identity; without one, list the records."""
    from compbench.cli import output
    from compbench.store.records import Store, read_record

    store = Store(home_of_user().records)
    if record is None:
        for path in store.paths():
            click.echo(path.name)
        return
    path = store.find(record)
    try:
        found = read_record(path)
    except CompbenchError as error:
        raise CompbenchError(f"{path} {error}") from error
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json"), sort_keys=True))
    else:
        output.show(found, path, reused=False, pages=())
