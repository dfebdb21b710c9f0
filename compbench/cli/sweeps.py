"""sweep status, sweep cancel: show and stop the runs in progress in a COMPBENCH_HOME, from any shell."""

from __future__ import annotations

import json
import sys

import click

from compbench.sweep.overview import array_views, cancel_array, stop_worker, worker_views
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show what is running in this COMPBENCH_HOME.

    The list has job arrays of SLURM and processes that are doing runs, on this machine and on others.

    \b
    compbench sweep status
    """
    home = Home.of_user()
    found, workers = array_views(home), worker_views(home)
    if as_json:
        rows = [{"job": one.facts.job, "runs": one.counts, "members": one.members, "folder": str(one.folder)} for one in found]
        processes = [{"pid": one.holder.pid, "host": one.holder.host, "runs": one.runs} for one in workers]
        click.echo(json.dumps({"arrays": rows, "processes": processes}, sort_keys=True))
        return
    if not found and not workers:
        click.echo("Nothing is running.")
        return
    for one in found:
        counts = ", ".join(f"{number} {name}" for name, number in sorted(one.counts.items()))
        click.echo(
            f"job {one.facts.job} ({one.facts.submitted}): runs {counts}; members {one.members or 'ended'}; logs in {one.folder}"
        )
    for worker in workers:
        click.echo(f"process {worker.holder.pid} on {worker.holder.host}: {worker.runs} running")


@click.command()
@click.argument("names", nargs=-1, metavar="[JOB|PROCESS]...")
@click.option("--all", "everything", is_flag=True, help="Cancel all that `sweep status` shows.")
def cancel(names: tuple[str, ...], everything: bool) -> None:
    """End job arrays and processes that `sweep status` shows.

    Their runs leave checkpoints, from which `sweep --resume` continues.

    \b
    compbench sweep cancel 4711
    compbench sweep cancel --all
    """
    if bool(names) == everything:
        raise CompbenchError("say which: the job or process numbers that `compbench sweep status` shows, or --all.")
    home = Home.of_user()
    found = {one.facts.job: one for one in array_views(home) if one.members}
    workers = {str(one.holder.pid): one for one in worker_views(home)}
    unknown = [name for name in names if name not in found and name not in workers]
    if unknown:
        raise CompbenchError(f"nothing running is called {unknown[0]}; `compbench sweep status` shows what there is.")
    if everything and workers and not found and not any(one.here for one in workers.values()):
        elsewhere = ", ".join(f"{one.holder.pid} on {one.holder.host}" for one in workers.values())
        raise CompbenchError(f"nothing was asked to stop: all processes are elsewhere ({elsewhere}); type there: kill PROCESS")
    failed = False
    for name in names or (*found, *(name for name, one in workers.items() if one.here)):
        try:
            if name in found:
                cancel_array(found[name])
            else:
                stop_worker(workers[name])
            click.echo(f"asked {'job' if name in found else 'process'} {name} to stop")
        except CompbenchError as error:
            failed = True
            click.echo(f"compbench: {error}", err=True)
    sys.exit(2 if failed else 0)
