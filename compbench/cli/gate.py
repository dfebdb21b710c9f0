"""gate: test whether this code is worse or slower than a base."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import click

from compbench.cli.names import names
from compbench.cli.options import Finite, list_option
from compbench.gate import answer as report
from compbench.gate import baseline, sides, worktree
from compbench.gate.regression import Listener, Plan, usable
from compbench.gate.regression import gate as compared
from compbench.gate.rows import EXIT, accepted_in, answer
from compbench.gate.sides import CellOptions, CouldNotRun, Side
from compbench.gate.suite import Cell, Suite, read
from compbench.registry.registry import Registry
from compbench.runner.signals import interrupted_once
from compbench.sweep import parse
from compbench.system.errors import CompbenchError
from compbench.system.files import write_atomically
from compbench.system.home import Home, scratch_folder

FILE = click.Path(path_type=Path, dir_okay=False)


class GateOptions(TypedDict):
    """The options of `gate`, as click parsed them."""

    base_ref: str
    baseline: Path | None
    write_baseline: Path | None
    suite: str
    methods: str
    tasks: str
    plugins: tuple[Path, ...]
    tolerance: float
    pairs: int
    clock: Literal["auto", "cpu", "wall"]
    always: bool
    accept: tuple[str, ...]
    markdown: Path | None
    as_json: bool


@click.command()
@click.option("--base-ref", default="", metavar="REF", help="Compare with this commit: HEAD~1, origin/main.")
@click.option("--baseline", type=FILE, metavar="FILE", help="Compare with stored facts and scores; never with stored speeds.")
@click.option("--write-baseline", type=FILE, metavar="FILE", help="Store the facts and scores of this environment.")
@click.option("--suite", default="", metavar="NAME", help="Run the cases of a suite: compbench-ci, or your own FILE.toml.")
@list_option(
    "--method",
    "methods",
    shell_complete=names("methods"),
    help="Without --suite: methods by name or pattern; preset smoke, seeds 0-4.",
)
@list_option("--task", "tasks", shell_complete=names("tasks"), help="Without --suite: tasks by name or pattern.")
@click.option("--plugin", "plugins", type=FILE, multiple=True, metavar="FILE.py", help="File of a method that is not installed.")
@click.option("--tolerance", type=Finite(0, 10), default=0.05, show_default=True, help="Largest slowdown that passes.")
@click.option(
    "--pairs",
    type=click.IntRange(2, 500),
    default=3,
    show_default=True,
    help="Pairs of processes to time; more while the answer is unclear, up to 10 or twice as many.",
)
@click.option(
    "--clock",
    type=click.Choice(["auto", "cpu", "wall"]),
    default="auto",
    show_default=True,
    help="CPU time, or wall time on GPUs.",
)
@click.option("--always", is_flag=True, help="Measure both sides even if their code and packages are the same.")
@click.option("--accept", multiple=True, metavar="PATTERN", help="Accept an intended regression: 'factored/* parameters'.")
@click.option("--markdown", type=FILE, metavar="FILE", help="Also write the table for a pull request.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def gate(**options: Unpack[GateOptions]) -> None:
    """Test whether this code is worse or slower than a base: compare exact facts, paired scores, and speeds.

    \b
    compbench gate --base-ref HEAD~1 --method my-method --task gauss2d-fact-id
    compbench gate --base-ref origin/main --suite compbench-ci --markdown gate.md
    compbench gate --baseline ci.json --suite compbench-ci

    Exit status: 0 pass, 1 regression, 2 wrong usage, 3 inconclusive, 4 could not run.  A commit message with the trailer
    `Gate-accept: factored/* parameters` accepts that regression, as --accept does.
    """
    plan = _plan(options)
    try:
        with interrupted_once(), scratch_folder(Path(tempfile.gettempdir())) as folder:
            status = _gated(plan, options, folder)
    except CouldNotRun as error:
        click.echo(f"compbench: {error}", err=True)
        status = EXIT["could not run"]
    sys.exit(status)


def _gated(plan: Plan, options: GateOptions, folder: Path) -> int:

    stored = baseline.read(options["baseline"]) if options["baseline"] else None
    head = sides.head_of(folder, Home.of_user().data, _resolved(options["plugins"]))
    say = _say(options["as_json"])
    with _base(options, folder, say) as base:
        meant = accepted_in(worktree.messages(Path.cwd(), options["base_ref"]))
        plan = plan._replace(accept=(*plan.accept, *meant))
        result = compared(plan, head, base, stored, say)
    compares = base is not None or stored is not None
    if compares and options["as_json"]:
        facts = {"accepted": list(plan.accept), "tolerance": plan.tolerance, "clock": plan.options.clock}
        click.echo(report.as_json(result.rows, facts))
    elif compares:
        report.terminal(result.rows)
    if options["write_baseline"]:  # only now: if a file cannot be written, the result of minutes is not lost
        try:
            baseline.write(options["write_baseline"], usable(result.facts), usable(result.scores))
        except sides.Unable as error:
            raise sides.CouldNotRun(f"no baseline was written: {error}") from error
        click.echo(f"wrote {options['write_baseline']}", err=True)
    if not compares:
        return 0
    if options["markdown"]:
        write_atomically(options["markdown"], report.markdown(result.rows).encode())
    return EXIT[answer(result.rows)]


def _plan(options: GateOptions) -> Plan:
    """Make a plan from the options; errors in them are found before anything is built."""
    suite = _suite(options)
    if not (options["base_ref"] or options["baseline"] or options["write_baseline"]):
        raise CompbenchError(
            "there is nothing to compare with. Use --base-ref or --baseline; --write-baseline stores a baseline."
        )
    if options["clock"] == "cpu" and suite.device != "cpu":
        raise CompbenchError("--clock cpu does not measure work on a GPU; use --clock wall.")
    clock = ("cpu" if suite.device == "cpu" else "wall") if options["clock"] == "auto" else options["clock"]
    cell_options = CellOptions(suite.device, suite.source, clock, suite.speed_seconds)
    return Plan(suite, cell_options, options["tolerance"], options["pairs"], options["accept"], options["always"])


def _suite(options: GateOptions) -> Suite:

    files = _resolved(options["plugins"])
    if options["suite"]:
        if options["methods"] or options["tasks"]:
            raise CompbenchError("a suite names its own cases; leave --method and --task out.")
        suite, registry = read(options["suite"]), Registry(files)
        for cell in suite.cell:
            registry.entry("methods", cell.method)
            registry.entry("tasks", cell.task)
        return suite
    if not options["methods"] or not options["tasks"]:
        raise CompbenchError("a gate needs --method and --task, or --suite compbench-ci.")
    cells = [
        Cell(method=method, task=task)
        for task in parse.names("tasks", options["tasks"], ())
        for method in parse.names("methods", options["methods"], files)
    ]
    return Suite(cell=tuple(cells))


@contextlib.contextmanager
def _base(options: GateOptions, folder: Path, say: Listener) -> Iterator[Side | None]:
    """The base's side, if the base is a commit."""
    ref = options["base_ref"]
    if not ref:
        yield None
        return
    say(f"base: building an environment for {ref}")
    with worktree.built(ref, folder, Home.of_user().data, _resolved(options["plugins"])) as base:
        yield base


def _resolved(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        if not path.is_file():
            raise CompbenchError(f"--plugin {path}: there is no such file.")
    return tuple(path.resolve() for path in paths)


def _say(quiet: bool) -> Listener:
    return (lambda line: None) if quiet else lambda line: click.echo(line, err=True)
