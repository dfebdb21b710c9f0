"""check: test the contract of methods, tasks and metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from compbench.cli import names as completion
from compbench.cli.options import Finite, device_option_of, list_option, plugin_option
from compbench.cli.wrapping import paragraph
from compbench.registry.registry import Registry
from compbench.sweep.parse import names as names_of
from compbench.system.errors import CompbenchError
from compbench.testing.outside import check_all

LABEL = re.compile(r"(ok|failed|skipped) +| +(expected: +|found: +|to fix: +)?")
"""The beginning of each line of a report; the rest of the line is wrapped on a terminal."""


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completion.names("methods", "tasks", "metrics"))
@click.option("--all", "every", is_flag=True, help="Check all installed methods.")
@list_option("--only", metavar="CHECK", help="Run only these checks: a,b,c, or give the option again.")
@plugin_option("File of a method that is not installed; without NAME, check this method.")
@device_option_of("auto (CPU, then a GPU if there is one), cpu, cuda or cuda:N.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--verbose", is_flag=True, help="Show every check and its time, not only failures.")
@click.option(
    "--time-limit",
    type=Finite(min=1),
    default=600.0,
    show_default=True,
    help="Time limit for all checks of a method, in seconds.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of methods to check at the same time.")
def check(
    names: tuple[str, ...],
    every: bool,
    only: str,
    plugins: tuple[Path, ...],
    device: str,
    as_json: bool,
    verbose: bool,
    time_limit: float,
    jobs: int,
) -> None:
    """Check that methods, tasks or metrics keep the contract.  Methods run on tiny problems of each kind of event they claim.

    \b
    compbench check my-method
    compbench check my-task my-metric

    NAME may be a pattern of methods: 'dcfm-*'.  Each method runs in its own process.  Exit status: 0 all checks passed,
    1 some failed, 2 wrong usage.
    """
    files = tuple(file.resolve() for file in plugins)
    words = [*names, *(["*"] if every else [])]
    if not words:
        words = [entry.name for entry in Registry(files).entries("methods") if str(entry.file) in map(str, files)]
    if not words:
        raise CompbenchError("which method? Give NAME, --plugin FILE.py or --all; `compbench list` shows what there is.")
    registry = Registry(files)
    others = [(kind, word) for word in words for kind in ("tasks", "metrics") if word in registry.names(kind)]
    methods = [word for word in words if word not in {name for _, name in others} or word in registry.names("methods")]
    found = dict.fromkeys([("methods", name) for word in methods for name in names_of("methods", word, files)] + others)
    checks = [name for name in only.split(",") if name]
    reports = []
    for report in check_all(list(found), jobs=jobs, plugins=files, only=checks, device=device, time_limit=time_limit):
        reports.append(report)
        for line in () if as_json else report.lines(verbose=verbose):
            start = LABEL.match(line)
            click.echo(paragraph(line[: start.end()], line[start.end() :]) if start else line)
    if as_json:
        click.echo(json.dumps([report.as_json() for report in reports], indent=2))
    if not all(report.ok for report in reports):
        raise SystemExit(1)
