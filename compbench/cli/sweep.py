"""sweep: a grid of runs."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

import click

from compbench.api.executor import ExecutorSettings, RunResult, SweepOptions
from compbench.cli import output
from compbench.cli.names import names
from compbench.cli.options import RunOptions, list_option, rebuild_board, run_options, run_requests
from compbench.cli.plan import published_seconds
from compbench.cli.sweeps import cancel, status
from compbench.registry.declared import missing_extra
from compbench.registry.registry import Registry
from compbench.registry.resolve import updated
from compbench.runner.signals import terminate_like_ctrl_c
from compbench.store.listing import Listing
from compbench.store.records import collector_paused
from compbench.sweep import parse
from compbench.sweep.estimate import expected_seconds, hours_of, longest_first, seconds_taken
from compbench.sweep.existing import RequestedRun, known, listing_of
from compbench.sweep.grid import Grid, default_preset, grids
from compbench.sweep.matrix import RunFacts, run_facts
from compbench.sweep.parse import parse_lists, parse_overrides
from compbench.sweep.pool import STOPPED, cards_of, result_of
from compbench.system.errors import CompbenchError
from compbench.system.home import Home, remove_left_over


@click.group(invoke_without_command=True)
@list_option(
    "--method",
    "methods",
    shell_complete=names("methods"),
    help="Names or patterns: factored,mono or 'f*'; '*,!example' leaves one out.",
)
@list_option("--task", "tasks", shell_complete=names("tasks"), help="Names or patterns: 'shapes3d-*'.")
@click.option(
    "--file",
    default="",
    metavar="NAME",
    help="Run the grids of a sweep file, FILE.toml or a shipped one; --method and --task select from them.",
)
@click.option("--chain", is_flag=True, help="Do all runs of a method in the same processes, which start only once.")
@run_options
@click.option(
    "--slots", default=0, type=click.IntRange(0), help="Number of runs at the same time; 0 means one per GPU, or one on a CPU."
)
@click.option(
    "--max-failures",
    default=0,
    type=click.IntRange(0),
    help="Stop the sweep once this many runs have failed; 0 means no limit.",
)
@click.option(
    "--retries",
    default=0,
    type=click.IntRange(0, 100),
    help="How often to repeat a run that ran out of memory or disk, or whose node was lost.",
)
@click.option(
    "--executor", default="local", show_default=True, metavar="NAME", help="Executor: local, slurm, ray or one from a plugin."
)
@click.option(
    "--executor-set",
    "executor_words",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the executor; `compbench info slurm` lists them.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only say how many runs of each task exist, how many are missing, and how long those may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON; with --dry-run, print each run.")
def sweep(
    methods: str,
    tasks: str,
    file: str,
    chain: bool,
    slots: int,
    max_failures: int,
    retries: int,
    executor: str,
    executor_words: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **options: Unpack[RunOptions],
) -> None:
    """Run a grid of methods, tasks, seeds and settings.  The same command again runs only what is missing.

    \b
    compbench sweep --method factored,mono --task 'shapes3d-*' --seed 0-2
    compbench sweep --file core --dry-run           what the published board lacks
    compbench sweep --file core --method mono       only the runs of mono
    compbench sweep --file weighted-table1 --preset paper     a table of a paper
    compbench sweep status                          what is running in this COMPBENCH_HOME

    A setting with several values makes the grid larger: --set head_width=1,2.  On a CPU, --slots 2 gives each run half of the
    cores; their speeds are then marked as those of a shared machine.  --executor slurm or ray runs them on a cluster
    (docs/executors.md).

    Exit status: 0 done, 1 some runs failed, 2 wrong usage, 130 stopped.
    """
    if click.get_current_context().invoked_subcommand:
        return
    terminate_like_ctrl_c()
    chosen = Registry().load("executors", executor)
    option = "--executor-set"
    settings = updated(chosen.settings(), parse_overrides(executor_words, option), f"executor '{executor}'", "", option=option)
    if file and not _given("preset"):
        options["preset"] = default_preset(file)
    grids = _here(_grids(methods, tasks, file, options), executor, options)
    home = Home.of_user()
    with run_facts(home) as facts, collector_paused():
        requested = _requested(grids, facts, options)
        if _has_other_devices(settings, options["device"]):
            requested = [one._replace(elsewhere=True) for one in requested]
        if executor == "local":
            requested = _with_packages(requested, tasks, home.data)
        listing = listing_of(requested)
        if dry_run:
            _foretell(requested, listing, facts, options, as_json=as_json)
            return
        there = {} if options["force"] else dict(_there(requested, listing, facts))
    chain = chain or all(grid.chain for grid in grids)
    missing = [place for place in range(len(requested)) if place not in there]
    if executor != "local" or slots > 1:  # without slots, runs keep the order of the command line
        missing = _longest_first(requested, missing, listing, options)
    done: list[RunResult] = []
    pages: tuple[Path, ...] = ()
    if missing:
        quiet = options["quiet"]
        with output.notices(quiet=quiet), output.sweep_listener(len(missing), quiet=quiet or as_json) as listener:
            how = SweepOptions(slots, options["force"], options["resume"], chain, max_failures, retries)
            done = chosen.work(settings, [requested[place].request for place in missing], how, listener)
        pages = rebuild_board(home.root, seconds=sum(result.seconds for result in done if not result.reused))
    else:
        with contextlib.suppress(OSError):  # a run does this before it begins; here nothing runs
            remove_left_over(home.root)
    by_place = there | dict(zip(missing, done, strict=True))
    results = [by_place[place] for place in range(len(requested))]
    if as_json:
        click.echo(json.dumps([result._asdict() for result in results], sort_keys=True))
    else:
        output.show_sweep(results, pages)
        if not missing:
            click.echo("Nothing is missing.")
    _say_what_is_left(results)
    sys.exit(_exit_status(done) if done else 0)


def _here(grids: Sequence[Grid], executor: str, options: RunOptions) -> list[Grid]:
    """The grids that can run here; a line on standard error names those that need a missing GPU."""
    elsewhere = executor != "local" and options["device"] != "cpu"
    if not any(grid.gpu for grid in grids) or elsewhere or options["device"].startswith("cuda") or cards_of(options["device"]):
        return list(grids)
    left, rest = ", ".join(grid.tasks for grid in grids if grid.gpu), [grid for grid in grids if not grid.gpu]
    if not rest:
        raise CompbenchError(f"every grid needs a GPU ({left}), and there is none here.")
    click.echo(f"compbench: no GPU here, so tasks that need one at --preset {options['preset']} are left out: {left}.", err=True)
    return rest


def _has_other_devices(settings: ExecutorSettings, device: str) -> bool:
    """Whether `--device auto` means a GPU where the executor runs and a CPU here, or the reverse."""
    gpus = getattr(settings, "gpus", None)
    return gpus is not None and device == "auto" and bool(gpus) != bool(cards_of(device))


def _requested(grids: Sequence[Grid], facts: RunFacts, options: RunOptions) -> list[RequestedRun]:
    """The requests of all grids, each once; a grid of applicable pairs skips pairs that cannot work together."""
    not_on = facts.matrix(options["plugins"]) if any(grid.applicable for grid in grids) else {}
    requested = [
        RequestedRun(request, grid.any_device)
        for grid in grids
        for overrides in grid.overrides()
        for request in run_requests(*_names(grid, options), overrides, options, seeds=grid.seeds, precision=grid.precision)
        if not (grid.applicable and not_on.get(request.method, {}).get(request.task))
    ]
    if not requested:
        raise CompbenchError("no pair of these methods and tasks can work together; `compbench list --matrix` says why.")
    return list({one.request.model_dump_json(): one for one in requested}.values())  # grids of a file may overlap


def _with_packages(requested: Sequence[RequestedRun], tasks: str, data: Path) -> list[RequestedRun]:
    """The requests without those whose task needs packages that are missing; a line on standard error names the tasks.

    A task that `--task` names in full stays, and its runs fail with the same install line.

    Args:
        requested: the requests.
        tasks: the words of `--task`.
        data: folder of official data files.
    """
    registry, named = Registry(), set(tasks.split(","))
    sources = {one.request.task: one.request.source for one in requested if one.request.task not in named}
    found = {task: missing_extra(registry.entry("tasks", task), data, source) for task, source in sources.items()}
    missing = {task: extra for task, extra in found.items() if extra}
    if not missing:
        return list(requested)
    what = f"need packages that are not installed: {', '.join(missing)}"
    cure = " ".join(["pip install", *(f"'{extra}'" for extra in sorted(set(missing.values())))])
    rest = [one for one in requested if one.request.task not in missing]
    if not rest:
        raise CompbenchError(f"all these tasks {what}. To run them: {cure}")
    click.echo(f"compbench: tasks are left out that {what}. To run them too: {cure}", err=True)
    return rest


def _foretell(
    requested: Sequence[RequestedRun], listing: Listing, facts: RunFacts, options: RunOptions, *, as_json: bool
) -> None:
    """Print which runs exist, which are missing and how long those may take: one line per task, or each run as JSON."""
    requests, found = [one.request for one in requested], known(requested, listing, facts, every=True)
    there = [one.outcome is not None for one in found]
    on_gpu = bool(cards_of(options["device"]))
    own = expected_seconds(requests, seconds_taken(listing, {one.preset for one in requests}, on_gpu=on_gpu))
    seconds = (
        own if on_gpu else [published_seconds(one) if took is None else took for one, took in zip(requests, own, strict=True)]
    )
    if as_json:
        names = {"method", "task", "seed", "preset", "overrides"}
        rows = [request.model_dump(mode="json", include=names) for request in requests]
        outcomes = [
            {"identity": one.identity, "there": done, "seconds": None if done else took}
            for one, done, took in zip(found, there, seconds, strict=True)
        ]
        click.echo(json.dumps([row | own for row, own in zip(rows, outcomes, strict=True)], sort_keys=True))
    else:
        output.show_missing(requests, there, seconds)
    left = [took for took, done in zip(seconds, there, strict=True) if not done]
    hours = hours_of(left)
    said = f": {hours} hours, one after another" if left and hours else ""
    devices = Counter(one.outcome.record.spec.device_class for one in found if one.outcome is not None)
    of_which = "".join(f", {number} of them on {card}" for card, number in sorted(devices.items()) if card != "cpu")
    click.echo(f"{sum(there)} of {len(requested)} runs are there{of_which}; {len(left)} missing{said}.", err=True)


def _there(requested: Sequence[RequestedRun], listing: Listing, facts: RunFacts) -> Iterator[tuple[int, RunResult]]:
    """The position and the result of each run that exists, so that it is not given to an executor.

    If the identities cannot be computed, all runs count as missing; each then finds its own record when it starts.
    """
    try:
        found = known(requested, listing, facts, every=False)
    except CompbenchError as error:
        click.echo(f"compbench: existing runs could not be found in advance: {error}", err=True)
        return
    for place, (one, (_, outcome)) in enumerate(zip(requested, found, strict=True)):
        if outcome is not None:
            yield place, result_of(one.request, outcome)


def _longest_first(requested: Sequence[RequestedRun], places: Sequence[int], listing: Listing, options: RunOptions) -> list[int]:
    """The positions of some requests, longest expected runs first."""
    requests = [requested[place].request for place in places]
    taken = seconds_taken(listing, {one.preset for one in requests}, on_gpu=bool(cards_of(options["device"])))
    return [places[own] for own in longest_first(requests, taken)]


def _say_what_is_left(results: Sequence[RunResult]) -> None:
    """Print one line on standard error if the sweep stopped before all of its runs were done."""
    stopped = [result for result in results if result.status in ("left", "killed")]
    if stopped:
        why = next((result.reason for result in stopped if result.status == "left"), stopped[0].reason).rstrip(".")
        done = f"{len(results) - len(stopped)} of {len(results)} runs are done, {len(stopped)} are left"
        click.echo(f"compbench: {why}. {done}: the same command runs those (--resume: from their checkpoints).", err=True)


def _exit_status(results: Sequence[RunResult]) -> int:
    """0 if all went well, 2 if no request can be run, 130 if a signal to this command stopped the sweep, else 1."""
    if any(result.reason.startswith(("stopped by", STOPPED)) and result.status in ("killed", "left") for result in results):
        return 130
    if all(result.status == "usage" for result in results):
        return 2
    return 0 if all(result.status in ("ok", "queued") for result in results) else 1


def _grids(methods: str, tasks: str, file: str, options: RunOptions) -> list[Grid]:
    """The requested grids: the one of --method and --task, or those of a file.

    For a file's grids, --seed, --precision and --set replace values, and --method and --task keep only what they name.
    """
    own = parse_lists(options["overrides"])
    if not file:
        if not methods or not tasks:
            raise CompbenchError("a sweep needs --method and --task, or --file; `compbench sweep --help` shows both.")
        return [Grid(methods=methods, tasks=tasks, seeds=options["seeds"], precision=options["precision"], set=own)]
    values = (("seeds", options["seeds"]), ("precision", options["precision"]))
    given = {name: value for name, value in values if _given(name)}
    found = [grid.model_copy(update={**given, "set": {**grid.set, **own}}) for grid in grids(file, options["preset"])]
    if not methods and not tasks:
        return found
    requested = _names(Grid(methods=methods or "*", tasks=tasks or "*"), options)
    narrowed = []
    for grid in found:
        left = [[name for name in own if name in chosen] for own, chosen in zip(_names(grid, options), requested, strict=True)]
        if all(left):
            narrowed.append(grid.model_copy(update=dict(zip(("methods", "tasks"), map(",".join, left), strict=True))))
    if not narrowed:
        said = " and ".join(f"--{name} {words}" for name, words in (("method", methods), ("task", tasks)) if words)
        raise CompbenchError(f"no grid of --file {file} has {said}; without these, --dry-run lists its tasks.")
    return narrowed


def _given(option: str) -> bool:
    """Return whether an option was given on the command line."""
    return click.get_current_context().get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE


def _names(grid: Grid, options: RunOptions) -> tuple[list[str], list[str]]:

    return parse.names("methods", grid.methods, options["plugins"]), parse.names("tasks", grid.tasks, ())


for verb in (status, cancel):
    sweep.add_command(verb)
