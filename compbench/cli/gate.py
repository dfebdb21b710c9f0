"""gate."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compbench.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.gate.regression import Listener, Plan
    from compbench.gate.sides import Side
    from compbench.gate.suite import Suite

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option("--base-ref", default="", metavar="REF", help="Compare with this commit: HEAD~1, origin/main.")
@click.option("--fresh-environment", is_flag=True, help="Install all packages of --base-ref anew, not only the commit's own.")
@click.option("--base-python", type=FILE, metavar="PATH", help="Compare with what this interpreter has installed.")
@click.option("--base-plugin", "base_plugins", type=FILE, multiple=True, metavar="FILE.py", help="The base's --plugin.")
@click.option("--baseline", type=FILE, metavar="FILE", help="Compare with stored facts and scores; never with stored speeds.")
@click.option("--write-baseline", type=FILE, metavar="FILE", help="Store the facts and scores of this environment.")
@click.option("--suite", default="", metavar="NAME", help="Cells of a suite: compbench-ci, or FILE.toml.")
@click.option("--method", "methods", default="", help="Without --suite: names or patterns, as for sweep.")
@click.option("--task", "tasks", default="", help="Names or patterns.")
@click.option("--preset", type=click.Choice(["smoke", "quick", "paper"]), default="smoke", show_default=True)
@click.option("--seed", "seeds", default="0-4", show_default=True, help="Seeds of the scores; each is a pair.")
@click.option("--set", "overrides", multiple=True, metavar="NAME=VALUE", help="As for run.")
@click.option("--score", "wanted", multiple=True, metavar="NAME", help="Scores to gate instead of the one that ranks.")
@click.option("--plugin", "plugins", type=FILE, multiple=True, metavar="FILE.py", help="A method that is not installed.")
@click.option("--only", default="exact,scores,speed", show_default=True, help="Some of the gates.")
@click.option("--tolerance", type=click.FloatRange(0, 10), default=0.05, show_default=True, help="Slowdown that is no matter.")
@click.option("--pairs", type=click.IntRange(2, 1000), default=5, show_default=True, help="Pairs of processes before a look.")
@click.option("--max-pairs", type=click.IntRange(2, 1000), default=10, show_default=True, help="Pairs for rows still unclear.")
@click.option("--clock", type=click.Choice(["cpu", "wall"]), default="wall", show_default=True, help="cpu is calmer in CI.")
@click.option("--device", default="cpu", show_default=True, help="Of scores and speed; exact facts are the CPU's.")
@click.option("--source", type=click.Choice(["auto", "official", "embedded"]), default="auto", show_default=True)
@click.option("--accept", multiple=True, metavar="PATTERN", help="A regression that is meant: 'factored/* parameters'.")
@click.option("--markdown", type=FILE, metavar="FILE", help="Also write the table for a pull request.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--quiet", is_flag=True, help="Do not say what is being measured.")
def gate(**options: Any) -> None:
    """Find out whether this code is worse or slower than a base: exact facts, paired scores, raced processes.

    \b
    compbench gate --base-ref HEAD~1 --method my-method --task gauss2d-fact-id
    compbench gate --base-ref origin/main --suite compbench-ci --markdown gate.md
    compbench gate --baseline ci.json --suite compbench-ci

    Exit status: 0 pass, 1 regression, 2 wrong usage, 3 inconclusive, 4 could not run.  A commit message with the trailer
    `Gate-accept: factored/* parameters` accepts that regression, as --accept does.
    """
    from compbench.gate.sides import CouldNotRun
    from compbench.gate.table import EXIT

    plan = _plan(options)
    try:
        with tempfile.TemporaryDirectory(prefix="compbench-gate-") as folder:
            status = _gated(plan, options, Path(folder))
    except CouldNotRun as error:
        click.echo(f"compbench: {error}", err=True)
        status = EXIT["could not run"]
    sys.exit(status)


def _gated(plan: Plan, options: dict[str, Any], folder: Path) -> int:
    from compbench.cli.options import home_of_user
    from compbench.gate import baseline, report, sides
    from compbench.gate.regression import gate as compared
    from compbench.gate.regression import usable
    from compbench.gate.table import EXIT, answer

    stored = baseline.read(options["baseline"]) if options["baseline"] else None
    head = sides.head_of(folder, home_of_user().data, _resolved(options["plugins"]))
    with _base(options, folder) as (base, commits):
        plan = plan._replace(accept=(*plan.accept, *commits))
        result = compared(plan, head, base, stored, _say(options["quiet"] or options["as_json"]))
    if options["write_baseline"]:
        try:
            baseline.write(options["write_baseline"], usable(result.facts), usable(result.scores))
        except sides.Unable as error:
            raise sides.CouldNotRun(f"no baseline was written: {error}") from error
        click.echo(f"wrote {options['write_baseline']}", err=True)
        if base is None and stored is None:
            return 0
    if options["markdown"]:
        from compbench.files import write_atomically

        write_atomically(options["markdown"], report.markdown(result.rows).encode())
    if options["as_json"]:
        facts = {"accepted": list(plan.accept), "tolerance": plan.tolerance, "clock": plan.asked.clock}
        click.echo(report.as_json(result.rows, facts))
    else:
        report.terminal(result.rows)
    return EXIT[answer(result.rows)]


def _plan(options: dict[str, Any]) -> Plan:
    """The plan of the options; whatever is wrong with them is said before anything is built."""
    from compbench.gate.regression import Plan
    from compbench.gate.sides import Asked
    from compbench.gate.suite import GATES

    suite = _suite(options)
    gates = tuple(name.strip() for name in options["only"].split(","))
    if not set(gates) <= set(GATES):
        raise CompbenchError(f"--only {options['only']}: use some of {','.join(GATES)}.")
    if options["base_ref"] and options["base_python"]:
        raise CompbenchError("--base-ref and --base-python are two bases; use one.")
    if not (options["base_ref"] or options["base_python"] or options["baseline"] or options["write_baseline"]):
        raise CompbenchError("compare with what? Use --base-ref, --base-python or --baseline; --write-baseline stores one.")
    if options["max_pairs"] < options["pairs"]:
        raise CompbenchError(f"--max-pairs {options['max_pairs']} is less than --pairs {options['pairs']}.")
    if options["clock"] == "cpu" and options["device"] != "cpu":
        raise CompbenchError("--clock cpu does not see what a GPU does; use --clock wall.")
    asked = Asked(options["device"], options["source"], options["clock"], suite.speed_seconds)
    return Plan(suite, gates, asked, options["tolerance"], options["pairs"], options["max_pairs"], options["accept"])


def _suite(options: dict[str, Any]) -> Suite:
    from compbench.gate.suite import Cell, Suite, read
    from compbench.registry import Registry
    from compbench.sweep.parse import names, parse_overrides, parse_seeds

    files = _resolved(options["plugins"])
    if options["suite"]:
        if options["methods"] or options["tasks"] or options["overrides"] or options["wanted"]:
            raise CompbenchError("--suite names its own cells; leave --method, --task, --set and --score out.")
        suite, registry = read(options["suite"]), Registry(files)
        for cell in suite.cell:
            registry.entry("methods", cell.method)
            registry.entry("tasks", cell.task)
        return suite
    if not options["methods"] or not options["tasks"]:
        raise CompbenchError("a gate needs --method and --task, or --suite compbench-ci.")
    parse_seeds(options["seeds"])
    more = {"preset": options["preset"], "seeds": options["seeds"], "set": parse_overrides(options["overrides"])}
    cells = [
        Cell(method=method, task=task, scores=options["wanted"], **more)
        for task in names("tasks", options["tasks"], ())
        for method in names("methods", options["methods"], files)
    ]
    return Suite(cell=tuple(cells))


@contextlib.contextmanager
def _base(options: dict[str, Any], folder: Path) -> Iterator[tuple[Side | None, list[str]]]:
    """The base's side, if there is a live one, and the patterns that the commits since then accept."""
    from compbench.cli.options import home_of_user
    from compbench.gate import worktree
    from compbench.gate.sides import Side, home_of
    from compbench.gate.table import accepted_in

    home = home_of(folder / "base", home_of_user().data)
    plugins = _resolved(options["base_plugins"] or options["plugins"])
    python = options["base_python"]
    if python is not None:
        if not python.is_file():
            raise CompbenchError(f"--base-python {python}: there is no such interpreter.")
        yield Side("base", python.absolute(), home, plugins, own=False), accepted_in(worktree.last_message(Path.cwd()))
        return
    if not options["base_ref"]:
        yield None, accepted_in(worktree.last_message(Path.cwd()))
        return
    top = worktree.repository(Path.cwd())
    commit = worktree.commit_of(top, options["base_ref"])
    say = _say(options["quiet"] or options["as_json"])
    say(f"base: {options['base_ref']} is {commit[:12]}; building its environment")
    with worktree.checked_out(top, commit) as tree:
        python = worktree.environment(tree, top, folder / "environment", fresh=options["fresh_environment"])
        if not options["base_plugins"]:
            plugins = tuple(worktree.counterpart(path, top.resolve(), tree) for path in plugins)
        yield Side("base", python, home, plugins, own=False), accepted_in(worktree.messages_since(top, commit))


def _resolved(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    for path in paths:
        if not path.is_file():
            raise CompbenchError(f"--plugin {path}: there is no such file.")
    return tuple(path.resolve() for path in paths)


def _say(quiet: bool) -> Listener:
    return (lambda line: None) if quiet else lambda line: click.echo(line, err=True)
