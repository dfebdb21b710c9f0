"""run, sweep."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from compbench.verbs.options import rebuild_board, run_options, run_requests


@click.command()
@click.option("--method", required=True, help="Name of a method (`compbench list`).")
@click.option("--task", required=True, help="Name of a task.")
@run_options
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
    requests = run_requests([method], [task], options, trace=trace, threads=threads)
    worst = 0
    for request in requests:
        with console.listener(quiet=options["quiet"] or as_json, title=f"{request.method} on {request.task}") as listener:
            outcome = run_one(request, force=options["force"], resume=options["resume"], in_process=in_process, listener=listener)
        pages = rebuild_board(Path(request.home))
        if as_json:
            click.echo(json.dumps(outcome.record.model_dump(mode="json"), sort_keys=True))
        else:
            console.show(outcome.record, outcome.path, reused=outcome.reused, pages=pages)
        worst = max(worst, {"ok": 0, "killed": 130, "refused": 2}.get(outcome.record.status, 1))
        if outcome.record.status == "killed":
            break
    sys.exit(worst)


@click.command()
@click.option("--method", "methods", required=True, help="Names or patterns: factored,mono or 'f*'.")
@click.option("--task", "tasks", required=True, help="Names or patterns: 'shapes3d-*'.")
@run_options
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
        for request in run_requests(*chosen, {**options, "overrides": overrides})
    ]
    if dry_run:
        for request in requests:
            click.echo(f"{request.method} {request.task} seed={request.seed} {request.preset} {request.overrides or ''}")
        return
    with console.sweep_listener(len(requests), quiet=options["quiet"] or as_json) as listener:
        results = work_through(requests, slots=slots, force=options["force"], resume=options["resume"], listener=listener)
    pages = rebuild_board(Path(requests[0].home))
    if as_json:
        click.echo(json.dumps([result._asdict() for result in results], sort_keys=True))
    else:
        console.show_sweep(results, pages)
    sys.exit(0 if all(result.status == "ok" for result in results) else 1)
