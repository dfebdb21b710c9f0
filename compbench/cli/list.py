"""list: what is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

import click

from compbench.cli.names import names
from compbench.cli.wrapping import paragraph, width_of_terminal, wrapped
from compbench.registry.declared import OTHERS, by_family, data_here, declared, kind_of_data, missing_extra
from compbench.registry.registry import KINDS, Entry, Registry
from compbench.system.errors import CompbenchError, suggest
from compbench.system.home import Home

SOURCES = (
    "exact: a formula is the data; official: the authors' files are here; "
    "built-in: made by compbench (`compbench data list` names the official files)."
)

SHORT = 5
"""Number of letters of each family's name above the matrix if the terminal is too narrow for whole names."""


@click.command("list")
@click.argument("word", required=False, shell_complete=names(*KINDS, words=KINDS))
@click.option("--matrix", is_flag=True, help="Print which methods work on which families of tasks; with WORD also why not.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(word: str | None, matrix: bool, as_json: bool) -> None:
    """List the names of methods, tasks by family, metrics and executors.

    \b
    compbench list
    compbench list methods        a line for each; also tasks, metrics, executors
    compbench list particles      names with this word in name, summary or family
    compbench list --matrix
    compbench list --json | jq '.tasks[] | select(.data == "official") | .name'

    Nothing is imported, except by --matrix, which loads every method and task.
    """
    registry = Registry()
    found = {kind: _chosen(registry.entries(kind), kind, word or "") for kind in KINDS}
    if word and not any(found.values()):
        raise suggest(
            "method, task, metric or executor", word, [*KINDS, *(name for kind in KINDS for name in registry.names(kind))]
        )
    if matrix:
        if not found["methods"]:
            raise CompbenchError(f"--matrix lists methods, and '{word}' names none; `compbench list --matrix` lists all of them.")
        _show_matrix({entry.name for entry in found["methods"]}, whole=not word, as_json=as_json)
        return
    if as_json:
        click.echo(json.dumps({kind: [_row(entry) for entry in entries] for kind, entries in found.items()}))
        return
    for kind, entries in found.items():
        if entries or not word:
            click.secho(kind, bold=True)
            for line in _names(entries, kind) if not word else _task_lines(entries) if kind == "tasks" else _lines(entries):
                click.echo(line)
    if not word:
        click.echo("A line for each: `compbench list tasks`.  By a word: `compbench list WORD`.")


def _chosen(entries: Sequence[Entry], kind: str, word: str) -> list[Entry]:
    """The entries of a kind that a word selects: all if it is empty or names the kind, else those that contain it."""
    if word.lower() in ("", kind, kind[:-1]):
        return list(entries)
    if word.lower() in {*KINDS, *(one[:-1] for one in KINDS)}:
        return []  # it names another kind
    texts = {entry: f"{entry.name} {entry.summary} {declared(entry).family if kind == 'tasks' else ''}" for entry in entries}
    return [entry for entry, text in texts.items() if word.lower() in text.lower()]


def _names(entries: Sequence[Entry], kind: str) -> Iterator[str]:
    """Names only: tasks by family, others by package if they come from several packages."""
    if not entries:
        yield "  none installed; first-party methods: pip install compbench-methods"
        return
    owners = list(dict.fromkeys(entry.distribution for entry in entries))
    groups = by_family(entries) if kind == "tasks" else {one: [e for e in entries if e.distribution == one] for one in owners}
    heads = {name: f"  {name:<{max(map(len, groups))}}  " if len(groups) > 1 else "  " for name in groups}
    for name, own in groups.items():
        words = [f"{entry.name}{' (broken)' if entry.problem else ''}" for entry in own]
        yield from wrapped(heads[name], ", ".join(words))


def _show_matrix(chosen: set[str], *, whole: bool, as_json: bool) -> None:
    """One line per method and one column per family: + works on all of its tasks, . on some, - on none.

    Without `whole`, the line is followed by the reasons why the method does not work on some tasks.
    """
    from compbench.sweep.matrix import run_facts

    with run_facts(Home.of_user()) as facts:
        pairs = {method: row for method, row in facts.matrix().items() if method in chosen}
    if as_json:
        refused = {method: {task: why for task, why in row.items() if why} for method, row in pairs.items()}
        click.echo(json.dumps(refused, indent=1, sort_keys=True))
        return
    families = {name: [entry.name for entry in own] for name, own in by_family(Registry().entries("tasks")).items()}
    width = max((*map(len, pairs), len("method")), default=0)
    heads, gap = list(families), "  "
    if 0 < width_of_terminal() < len(gap.join(["x" * width, *heads])):
        heads, gap = [head[:SHORT] for head in heads], " "
    click.echo(gap.join([f"{'method':<{width}}", *heads]))
    for method, reasons in pairs.items():
        works = [[not reasons[task] for task in tasks if task in reasons] for tasks in families.values()]
        signs = ["+" if own and all(own) else "." if any(own) else "-" for own in works]
        cells = (f"{sign:^{len(head)}}" for head, sign in zip(heads, signs, strict=True))
        click.echo(gap.join([f"{method:<{width}}", *cells]).rstrip())
        for line in [] if whole else _reasons(reasons):
            click.echo(line)
    why = "+ works on all tasks of the family, . on some, - on none; why: compbench list METHOD --matrix, or --json"
    click.echo(paragraph("", why))


def _reasons(reasons: Mapping[str, str]) -> Iterator[str]:
    """Each reason why a method does not work on some tasks, with the names of these tasks."""
    not_on: dict[str, list[str]] = {}
    for task, reason in reasons.items():
        if reason:
            not_on.setdefault(reason.split(": ", 1)[1].rstrip("."), []).append(task)
    for reason, tasks in not_on.items():
        yield from wrapped("    ", f"not on {', '.join(tasks)}: {reason}")


def _row(entry: Entry) -> dict[str, str]:
    row = {"name": entry.name, "summary": entry.summary, "distribution": entry.distribution, "problem": entry.problem}
    if entry.kind == "tasks":
        data = Home.of_user().data
        own = declared(entry)
        row |= {"family": own.family or OTHERS, "data": data_here(entry, data)}
        row |= {"missing_extra": own.extra if missing_extra(entry, data) else ""}
    return row


def _task_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """Tasks under the names of their families, with the data source that each would use here."""
    width = max((len(entry.name) for entry in entries), default=0)
    data = Home.of_user().data
    for name, own in by_family(entries).items():
        yield click.style(f"  {name}", italic=True) if sys.stdout.isatty() else f"  {name}"
        for entry in own:
            missing = missing_extra(entry, data)
            extra = f" (pip install '{missing}')" if missing else ""
            kind = kind_of_data(data_here(entry, data))
            yield from wrapped(f"    {entry.name:<{width}}  {kind:<8}  ", entry.summary + extra + _problem(entry))
    yield from wrapped("  ", SOURCES)


def _lines(entries: Sequence[Entry]) -> Iterator[str]:
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        yield from wrapped(f"  {entry.name:<{width}}  ", entry.summary + _problem(entry))


def _problem(entry: Entry) -> str:
    return f" [broken: {entry.problem}]" if entry.problem else ""
