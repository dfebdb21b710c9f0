"""What a shell completes besides verbs and options: plugins, records and settings, read without importing a plugin."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from compbench.registry.defaults import setting_names
from compbench.registry.registry import Kind, Registry
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
MOST_RECORDS = 200
"""At most this many names of records are offered, because a terminal shows no more."""


def names(*kinds: Kind, words: tuple[str, ...] = ()) -> Complete:
    """Complete names of some kinds of plugins, and `words`; after a comma, the next name of a list."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = [CompletionItem(f"{before}{comma}{word}") for word in words if word.startswith(last)]
        with contextlib.suppress(CompbenchError):
            registry = Registry(_files(ctx))
            for entry in (entry for kind in kinds for entry in registry.entries(kind)):
                if entry.name.startswith(last):
                    found.append(CompletionItem(f"{before}{comma}{entry.name}", help=entry.summary))
        return found

    return complete


def records(*, methods: bool = False) -> Complete:
    """Complete names of records in COMPBENCH_HOME; with `methods`, also those of methods."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from compbench.store.records import Store

        own = [path.stem for path in Store(Home.of_user().records).paths() if path.stem.startswith(incomplete)]
        found = names("methods")(ctx, param, incomplete) if methods else []
        return found + [CompletionItem(name) for name in own[:MOST_RECORDS]]

    return complete


def settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete NAME= of `--set`: the settings in the method's and the task's files, and the budget's entries."""
    with contextlib.suppress(CompbenchError):
        known = sorted({name for name in _settings(ctx, Registry(_files(ctx))) if name.startswith(incomplete)})
        return [CompletionItem(f"{name}=") for name in known]
    return []


def _settings(ctx: click.Context, registry: Registry) -> Iterator[str]:
    from compbench.api.interfaces import Budget

    yield from (f"budget.{name}" for name in Budget.model_fields)
    kinds: tuple[tuple[Kind, str], ...] = (("methods", ""), ("tasks", "task."))
    for kind, prefix in kinds:
        chosen = ctx.params.get(kind[:-1]) or ctx.params.get(kind) or ""
        for entry in registry.entries(kind):
            if entry.name == chosen and entry.file:
                yield from (f"{prefix}{name}" for name in setting_names(entry.file))


def _files(ctx: click.Context) -> tuple[Path, ...]:
    return tuple(path for path in ctx.params.get("plugins") or () if Path(path).is_file())
