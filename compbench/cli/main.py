"""The command line: the group of verbs.  A verb's module is imported only when the verb is called."""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import click

from compbench import __version__
from compbench.system.errors import CompbenchError


class Verb(NamedTuple):
    """A verb: its module in this package, its function, and its line in the list of verbs."""

    module: str
    function: str
    summary: str


GROUPS = {
    "Run": {
        "run": Verb("run", "run", "Fit a method on a task, score its samples, write a record."),
        "sweep": Verb("sweep", "sweep", "Run a grid of methods, tasks, seeds and settings."),
        "tune": Verb("tune", "tune", "Search for good settings of a method."),
        "score": Verb("score", "score", "Score samples from any source on a task."),
        "profile": Verb("profile", "profile", "Measure what a method costs on a task."),
        "data": Verb("data", "data", "List, download and verify official data."),
    },
    "Look": {
        "list": Verb("list", "list_", "List methods, tasks by family, metrics and executors."),
        "info": Verb("info", "info", "Say what a task asks, or what a method or metric is."),
        "show": Verb("show", "show", "Show a record, or list the records."),
        "compare": Verb("compare", "compare", "Compare two methods or two records, with intervals."),
        "board": Verb("board", "board", "Rebuild the board from records and print its ranking."),
        "diagnose": Verb("diagnose", "diagnose", "Look inside the trained model of a record."),
        "plugins": Verb("plugins", "plugins", "Load every plugin; say which are broken, and why."),
        "doctor": Verb("doctor", "doctor", "Say what this machine lacks, and how to fix it."),
        "completion": Verb("completion", "completion", "Let the shell complete verbs, options and names."),
    },
    "Write a plugin": {
        "new": Verb("new", "new", "Write a plugin to start from."),
        "check": Verb("check", "check", "Check that a method, task or metric keeps the contract."),
        "gate": Verb("gate", "gate", "Test whether this code is worse or slower than a base."),
        "submit": Verb("submit", "submit", "Check records and copy them for a pull request."),
    },
    "Keep records": {
        "reproduce": Verb("submit", "reproduce", "Run a record's spec again and compare the scores."),
        "rescore": Verb("score", "rescore", "Score kept samples or weights with today's metrics."),
        "remove": Verb("remove", "remove", "Remove records from your own store."),
        "verify": Verb("store", "verify", "Check a folder of records."),
        "export": Verb("store", "export", "Write records as a table, or for a tracker."),
    },
}
"""The verbs, grouped by purpose, in the order of --help."""

VERBS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}
WIDEST = max(map(len, VERBS))


class Commands(MutableMapping[str, click.Command]):
    """The verbs by name; each is imported when it is looked up."""

    def __init__(self) -> None:
        self._found: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._found:
            verb = VERBS[name]
            command: click.Command = getattr(import_module(f"compbench.cli.{verb.module}"), verb.function)
            command.short_help = verb.summary
            self._found[name] = command
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*VERBS, *self._found]))

    def __len__(self) -> int:
        return len(VERBS.keys() | self._found.keys())

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._found[name]


def _end_stopped() -> NoReturn:
    """End as Ctrl-C does everywhere; click would print "Aborted!" and exit with 1."""
    click.echo("compbench: stopped.", err=True)
    sys.exit(130)


class Verbs(click.Group):
    """Shows a `CompbenchError` as one line and exits with 2; anything else is our bug and keeps its traceback."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except KeyboardInterrupt:
            _end_stopped()

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.ctx is not None and (error.ctx.info_name, error.option_name) == ("sweep", "--threads"):
                message = "sweep has no --threads; --slots N divides the cores among N runs."
                raise click.UsageError(message, error.ctx) from error
            if error.ctx is not None and any(option.name == "overrides" for option in error.ctx.command.params):
                name = error.option_name.lstrip("-").replace("-", "_")
                message = f"{error.message} A setting of a method, a task or the budget is --set {name}=VALUE."
                raise click.NoSuchOption(error.option_name, message, error.possibilities, error.ctx) from error
            raise
        except CompbenchError as error:
            click.echo(f"compbench: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            _end_stopped()
        except BrokenPipeError:  # the reader of our output closed its end of the pipe
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs by group without importing them."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(WIDEST), verb.summary) for name, verb in verbs.items()])


@click.group(cls=Verbs, commands=Commands(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="compbench")
def main() -> None:
    """Compare methods for compositional generation under one protocol.

    \b
    compbench list                      what there is
    compbench info shapes3d-heavy       what a task asks; can it be learnt?
    compbench run --method factored --task shapes3d-heavy      minutes on a CPU
    compbench sweep --method factored,mono --task 'shapes3d-*' --seed 0-2
    compbench board                     rebuild the leaderboard

    Runs, caches and downloaded data live in COMPBENCH_HOME (default: the user's data folder).
    """


if __name__ == "__main__":
    main()
