"""The command line: verbs, one call each.  Everything heavy is imported inside the verb that needs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from compbench import __version__
from compbench.errors import CompbenchError

PRESETS = ("smoke", "quick", "paper")


class Verbs(click.Group):
    """Shows a `CompbenchError` as one line and exits with 2; anything else is our bug and keeps its traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CompbenchError as error:
            click.echo(f"compbench: {error}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            sys.stderr.close()
            ctx.exit(0)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="compbench")
def main() -> None:
    """Compare methods for compositional generation under one protocol.

    \b
    compbench list                                             what there is
    compbench info shapes3d-heavy                              what a task asks, and whether it can be learnt
    compbench run --method factored --task shapes3d-heavy      fit, sample, score, record (minutes on a CPU)
    compbench sweep --method factored,mono --task 'shapes3d-*' --seed 0-2
    compbench board                                            rebuild the leaderboard from the records

    Runs, caches and downloaded data live in COMPBENCH_HOME (default: the user's data folder).
    """


def _run_options(command: Any) -> Any:
    """Options that `run` and `sweep` share."""
    options = [
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of the method, of the budget (budget.train_steps=500) or of the task (task.judge=pooled).",
        ),
        click.option(
            "--preset",
            type=click.Choice(PRESETS),
            default="quick",
            show_default=True,
            help="smoke: seconds; quick: minutes on two cores; paper: the paper's protocol on a GPU.",
        ),
        click.option("--seed", "seeds", default="0", show_default=True, help="A seed, or several: 0-4 or 0,42,123."),
        click.option("--device", default="auto", show_default=True, help="auto (first GPU, else CPU), cpu, cuda or cuda:N."),
        click.option(
            "--precision",
            type=click.Choice(["auto", "fp32", "bf16"]),
            default="auto",
            show_default=True,
            help="bf16 is autocast; auto takes it where the device has it natively.",
        ),
        click.option(
            "--source",
            type=click.Choice(["auto", "official", "embedded"]),
            default="auto",
            show_default=True,
            help="Official data where downloaded, else the embedded renderer.",
        ),
        click.option("--time-limit", default="0", metavar="TIME", help="For a whole run: 90, 15m or 2h.  0 is none."),
        click.option(
            "--plugin",
            "plugins",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE.py",
            help="A method from a file that is not installed.",
        ),
        click.option("--force", is_flag=True, help="Run again even if there is a finished record of the same spec."),
        click.option("--resume", is_flag=True, help="Go on from the last checkpoint of a killed fit."),
        click.option("--quiet", is_flag=True, help="No progress bars."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@click.option("--method", required=True, help="Name of a method (`compbench list`).")
@click.option("--task", required=True, help="Name of a task.")
@_run_options
@click.option("--in-process", is_flag=True, help="Everything in this process, for debuggers; no time limit.")
@click.option("--trace", is_flag=True, help="Write a torch profiler trace of some training steps beside the weights.")
@click.option("--threads", default=0, type=click.IntRange(0), help="CPU threads; 0 takes all cores.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def run(method: str, task: str, in_process: bool, trace: bool, threads: int, as_json: bool, **options: Any) -> None:
    """Fit a method on a task, sample held-out and seen combinations, score them, write a record.

    The same spec again returns the finished record at once, unless --force.  Exit status: 0 done, 1 the run failed (there
    is a record of that too), 2 wrong usage, 130 stopped by Ctrl-C (go on with --resume).
    """
    from compbench import console
    from compbench.runner import run as run_one
    from compbench.runner import terminate_like_ctrl_c

    terminate_like_ctrl_c()
    requests = _requests([method], [task], options, trace=trace, threads=threads)
    worst = 0
    for request in requests:
        with console.listener(quiet=options["quiet"] or as_json, title=f"{request.method} on {request.task}") as listener:
            outcome = run_one(request, force=options["force"], resume=options["resume"], in_process=in_process, listener=listener)
        pages = _rebuild(Path(request.home))
        if as_json:
            click.echo(json.dumps(outcome.record.model_dump(mode="json"), sort_keys=True))
        else:
            console.show(outcome.record, outcome.path, reused=outcome.reused, pages=pages)
        worst = max(worst, {"ok": 0, "killed": 130, "refused": 2}.get(outcome.record.status, 1))
        if outcome.record.status == "killed":
            break
    sys.exit(worst)


@main.command()
@click.option("--method", "methods", required=True, help="Names or patterns: factored,mono or 'f*'.")
@click.option("--task", "tasks", required=True, help="Names or patterns: 'shapes3d-*'.")
@_run_options
@click.option("--slots", default=0, type=click.IntRange(0), help="Runs side by side; 0 is one a GPU, or one on a CPU.")
@click.option("--dry-run", is_flag=True, help="Only say what would be run.")
@click.option("--json", "as_json", is_flag=True, help="Print a summary as JSON.")
def sweep(methods: str, tasks: str, slots: int, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Run a grid of methods, tasks, seeds and settings; rerunning the command does only what is missing.

    A setting with several values makes the grid larger: --set hidden=64,256.  On a CPU, --slots 2 gives each run half of the
    cores; their speeds are then marked as those of a shared machine.
    """
    from compbench import console
    from compbench.runner import terminate_like_ctrl_c
    from compbench.sweeps.grid import expand, names
    from compbench.sweeps.pool import work_through

    terminate_like_ctrl_c()
    chosen = (names("methods", methods, options["plugins"]), names("tasks", tasks, ()))
    requests = [
        request
        for overrides in expand(options["overrides"])
        for request in _requests(*chosen, {**options, "overrides": overrides})
    ]
    if dry_run:
        for request in requests:
            click.echo(f"{request.method} {request.task} seed={request.seed} {request.preset} {request.overrides or ''}")
        return
    with console.sweep_listener(len(requests), quiet=options["quiet"] or as_json) as listener:
        results = work_through(requests, slots=slots, force=options["force"], resume=options["resume"], listener=listener)
    pages = _rebuild(Path(requests[0].home))
    if as_json:
        click.echo(json.dumps([result._asdict() for result in results], sort_keys=True))
    else:
        console.show_sweep(results, pages)
    sys.exit(0 if all(result.status == "ok" for result in results) else 1)


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_(as_json: bool) -> None:
    """List methods, tasks and metrics with one line each.  Imports none of them."""
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


@main.command()
@click.argument("name")
@click.option("--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def info(name: str, plugins: tuple[Path, ...], as_json: bool) -> None:
    """What a task asks and whether it can be learnt, or what a method is and which settings it has."""
    from compbench import console
    from compbench.errors import suggest
    from compbench.registry import Registry

    registry = Registry(plugins)
    for kind, facts in (
        ("tasks", console.task_facts),
        ("methods", console.method_facts),
        ("metrics", console.metric_facts),
    ):
        if name in registry.names(kind):
            console.show_facts(facts(registry.load(kind, name), registry.entry(kind, name)), as_json=as_json)
            return
    raise suggest("task, method or metric", name, [n for kind in ("tasks", "methods", "metrics") for n in registry.names(kind)])


@main.command()
@click.option("--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), metavar="FILE.py")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def plugins(plugins: tuple[Path, ...], as_json: bool) -> None:
    """Load every plugin in its own guard and say which are ok, broken or incompatible, and why."""
    from compbench import console
    from compbench.registry import KINDS, Registry

    registry = Registry(plugins)
    loaded = [registry.attempt(entry) for kind in KINDS for entry in registry.entries(kind)]
    console.show_plugins(loaded, as_json=as_json)


@main.group()
def data() -> None:
    """Official data: what there is, fetching and verifying it, and pictures of the embedded renderers."""


@data.command("list")
def data_list() -> None:
    """Official data sources, and which of their files are here."""
    from compbench import console

    console.show_sources(_home().data)


@data.command("fetch")
@click.argument("name")
@click.option("--offline", is_flag=True, help="Only say what is missing and where to put it.")
def data_fetch(name: str, offline: bool) -> None:
    """Download a source: resumable, locked, verified before it gets its name."""
    from compbench import console
    from compbench.data.download import fetch

    with console.bytes_progress() as progress:
        for path in fetch(_source(name), _home().data, offline=offline, progress=progress):
            click.echo(path)


@data.command("verify")
@click.argument("name")
def data_verify(name: str) -> None:
    """Check the files of a source against their hashes; exit status 1 if one is missing or wrong."""
    from compbench.data.download import verify

    statuses = verify(_source(name), _home().data)
    for status in statuses:
        click.echo(f"{status.name}: {status.state}{f' ({status.detail})' if status.detail else ''}")
    sys.exit(0 if all(status.state == "ok" for status in statuses) else 1)


@data.command("path")
def data_path() -> None:
    """The folder where official files are looked for; copies brought by hand go there."""
    click.echo(_home().data)


@data.command("render")
@click.argument("name", type=click.Choice(["shapes3d", "mpi3d"]))
@click.option("--output", type=click.Path(path_type=Path), default=Path("rendered.png"), show_default=True)
@click.option("--rows", default=4, show_default=True, type=click.IntRange(1, 64))
@click.option("--seed", default=0, show_default=True)
def data_render(name: str, output: Path, rows: int, seed: int) -> None:
    """Write a grid of random images from an embedded renderer."""
    from compbench.data.pictures import render_grid

    render_grid(name, output, _home().cache, rows=rows, seed=seed)
    click.echo(output)


@main.command()
@click.option("--records", type=click.Path(path_type=Path), help="Folder of records; default: those of COMPBENCH_HOME.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the board goes; default: COMPBENCH_HOME/board.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the board is stale.")
def board(records: Path | None, output: Path | None, check: bool) -> None:
    """Rebuild the board (CSV, Markdown, one HTML page) from records.  The same records give the same bytes."""
    from compbench.boards.site import rebuild, stale

    records, output = records or _home().records, output or _home().board
    if not records.is_dir():
        raise CompbenchError(f"there are no records in {records}; `compbench run` writes some.")
    if check:
        old = stale(records, output)
        for path in old:
            click.echo(f"stale: {path}", err=True)
        sys.exit(1 if old else 0)
    pages, problems = rebuild(records, output)
    for problem in problems:
        click.echo(f"passed over: {problem.path.name} {problem.reason}", err=True)
    for page in pages:
        click.echo(page)


@main.command()
@click.argument("record", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def show(record: str | None, as_json: bool) -> None:
    """Show a record by path, name or identity; without one, list the records."""
    from compbench import console
    from compbench.records import Store, parse

    store = Store(_home().records)
    if record is None:
        for path in store.paths():
            click.echo(path.name)
        return
    path = store.find(record)
    try:
        found = parse(path.read_bytes())
    except CompbenchError as error:
        raise CompbenchError(f"{path} {error}") from error
    if as_json:
        click.echo(json.dumps(found.model_dump(mode="json"), sort_keys=True))
    else:
        console.show(found, path, reused=False, pages=())


def _home() -> Any:
    from compbench.home import Home

    return Home.of_user()


def _source(name: str) -> Any:
    from compbench.data.sources import SOURCES
    from compbench.errors import suggest

    if name not in SOURCES:
        raise suggest("data source", name, list(SOURCES))
    return SOURCES[name]


def _requests(methods: list[str], tasks: list[str], options: dict[str, Any], **more: Any) -> list[Any]:
    """One RunRequest for each method, task and seed.  Unknown names are found here, before anything is started."""
    from compbench.registry import Registry
    from compbench.schemas import RunRequest
    from compbench.sweeps.grid import parse_overrides, parse_seeds, parse_time

    files = tuple(path.resolve() for path in options["plugins"])
    registry = Registry(files)
    for kind, asked in (("methods", methods), ("tasks", tasks)):
        for name in asked:
            registry.entry(kind, name)
    return [
        RunRequest(
            task=task,
            method=method,
            overrides=parse_overrides(options["overrides"]),
            preset=options["preset"],
            seed=seed,
            device=options["device"],
            precision=options["precision"],
            source=options["source"],
            plugins=tuple(str(path) for path in files),
            time_limit=parse_time(options["time_limit"]),
            home=str(_home().root),
            **more,
        )
        for seed in parse_seeds(options["seeds"])
        for task in tasks
        for method in methods
    ]


def _rebuild(home: Path) -> tuple[Path, ...]:
    """Update the board after a run; a board that cannot be built must not lose the run."""
    from compbench.boards.site import rebuild
    from compbench.home import Home

    try:
        pages, _ = rebuild(Home(home).records, Home(home).board)
    except CompbenchError as error:
        click.echo(f"compbench: the board was not updated: {error}", err=True)
        return ()
    return pages


if __name__ == "__main__":
    main()
