"""plugins: which plugins load, and why others do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from compbench.cli import output
from compbench.cli.options import plugin_option
from compbench.registry.registry import KINDS, LoadResult, Registry, State
from compbench.runner.isolated import scratch, values_of
from compbench.runner.messages import LineOfText
from compbench.runner.processes import Ended
from compbench.system.home import Home


@click.command()
@plugin_option()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins(plugins: tuple[Path, ...], as_json: bool) -> None:
    """Load every plugin and say which are ok, broken or incompatible, and why.

    \b
    compbench plugins
    compbench plugins --plugin my_method.py
    """
    output.show_plugins(states(plugins), as_json=as_json)


def states(plugins: Sequence[Path] = ()) -> list[LoadResult]:
    """The state of every plugin after loading it in another process; a plugin that ends this process is broken."""
    registry = Registry(tuple(plugins))
    entries = [entry for kind in KINDS for entry in registry.entries(kind)]
    files, found = [str(path.resolve()) for path in plugins], list[LoadResult]()
    while left := entries[len(found) :]:
        arguments, kind = {"plugins": files, "first": len(found)}, tuple[State, LineOfText]
        try:
            with scratch() as folder:
                states = values_of("compbench.cli.plugins:loaded", arguments, kind, folder, home=Home.of_user())
                for entry, (state, reason) in zip(left, states, strict=False):
                    found.append(LoadResult(entry, state, reason))
        except Ended as end:
            found.append(LoadResult(entries[len(found)], "broken", end.reason))
    return found


def loaded(progress: object, *, plugins: Sequence[str], first: int) -> Iterator[tuple[str, str]]:
    """(state, reason) of every plugin from number `first` on; this runs in a separate process."""
    registry = Registry(tuple(map(Path, plugins)))
    for entry in [entry for kind in KINDS for entry in registry.entries(kind)][first:]:
        attempt = registry.attempt(entry)
        yield attempt.state, attempt.reason
