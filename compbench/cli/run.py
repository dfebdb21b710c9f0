"""run: one method on one task."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import click

from compbench.api.schemas import RunRequest, name_of
from compbench.cli import output
from compbench.cli.names import names
from compbench.cli.options import RunOptions, rebuild_board, run_options, run_requests, threads_option
from compbench.cli.plan import plan_of, rescorable
from compbench.cli.result import show_result
from compbench.registry.registry import Registry
from compbench.registry.resolve import check_request
from compbench.runner.audit import Listener
from compbench.runner.one_run import look_up, processes_of, seal
from compbench.runner.one_run import run as run_one
from compbench.runner.signals import terminate_like_ctrl_c
from compbench.store.lease import Busy
from compbench.store.records import Store
from compbench.sweep.parse import parse_overrides
from compbench.sweep.tuning import read_settings
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


class OneRunOptions(RunOptions):
    """The options of `run` except those that are arguments of `run` itself."""

    curve: int
    keep_samples: bool


@click.command()
@click.option("--method", required=True, shell_complete=names("methods"), help="Name of a method (`compbench list`).")
@click.option("--task", required=True, shell_complete=names("tasks"), help="Name of a task.")
@run_options
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take the settings from a file that `compbench tune` wrote; --set may still change one.",
)
@click.option(
    "--sealed",
    "is_sealed",
    is_flag=True,
    help="Let a hash of the method's code choose what is held out, so that nothing can be tuned to it (docs/sealed.md).",
)
@click.option("--in-process", is_flag=True, help="Run everything in this process, for debuggers; there is no time limit.")
@click.option("--trace", is_flag=True, help="Write a torch profiler trace of some training steps next to the weights.")
@click.option(
    "--curve",
    default=0,
    metavar="K",
    type=click.IntRange(0, 20),
    help="Also score the model K times during training: after 1/2, 1/4, 1/8 ... of the steps.",
)
@click.option("--keep-samples", is_flag=True, help="Keep the samples next to the weights, for `rescore`.")
@threads_option
@click.option("--dry-run", is_flag=True, help="Only print each run's identity, the name of its record, and whether it exists.")
@click.option("--verbose", is_flag=True, help="Print all scores, counts and losses at the end, as `compbench show` does.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON; with --dry-run, what that prints.")
def run(
    method: str,
    task: str,
    settings_file: Path | None,
    is_sealed: bool,
    in_process: bool,
    trace: bool,
    threads: int,
    dry_run: bool,
    verbose: bool,
    as_json: bool,
    **options: Unpack[OneRunOptions],
) -> None:
    """Fit a method on a task, sample held-out and seen combinations, score them, write a record.

    \b
    compbench run --method factored --task shapes3d-heavy
    compbench run --method fkc --task gmm-id --seed 0-2 --set num_particles=16
    compbench run --method mono --task gmm-id --set budget.train_steps=500

    If this run was done before, its record is returned at once; --force runs it again.  Exit status: 0 done, 1 the run failed
    (its record says why), 2 wrong usage or another process is doing this run, 130 stopped by Ctrl-C (continue with --resume).
    """
    terminate_like_ctrl_c()
    overrides, tuning = parse_overrides(options["overrides"]), None
    if settings_file is not None:
        tuned = read_settings(settings_file, method)
        overrides, tuning = {**tuned.settings, **overrides}, tuned.tuning
    if options["curve"] and options["resume"]:
        raise CompbenchError("--curve resumes by itself; leave --resume out.")
    _refuse_several(method, task)
    requests = run_requests(
        [method],
        [task],
        overrides,
        options,
        seeds=options["seeds"],
        trace=trace,
        threads=threads,
        keep_samples=options["keep_samples"],
        curve=options["curve"],
        tuning=tuning,
    )
    check_request(requests[0], Registry(options["plugins"]))  # before a plan is printed
    if dry_run:
        _foretell(_sealed(requests) if is_sealed else requests, as_json=as_json)
        return
    worst, seconds = 0, 0.0
    for request in requests:
        if is_sealed:  # just before its run, since the code may be edited during an earlier seed's
            (request,) = _sealed([request])
        try:
            with _Announced(request, quiet=options["quiet"] or as_json, force=options["force"]) as shown:
                outcome = run_one(
                    request,
                    force=options["force"],
                    resume=options["resume"],
                    in_process=in_process,
                    listener=shown.report,
                    begins=shown.begin,
                )
        except Busy as busy:  # the other seeds still run
            if len(requests) == 1:
                raise
            click.echo(f"compbench: {busy}", err=True)
            worst = max(worst, 2)
            continue
        seconds += 0.0 if outcome.reused else outcome.record.seconds
        if as_json:
            click.echo(json.dumps(outcome.record.model_dump(mode="json"), sort_keys=True))
        else:
            show_result(outcome.record, outcome.path, reused=outcome.reused, verbose=verbose, plugins=options["plugins"])
        worst = max(worst, {"ok": 0, "killed": 130, "refused": 2}.get(outcome.record.status, 1))
        if outcome.record.status == "killed":
            break
    pages = rebuild_board(Path(requests[0].home), seconds=seconds)
    if not as_json:
        output.show_pages(pages)
    sys.exit(worst)


class _Announced(contextlib.ExitStack):
    """Show a run's title, plan and progress from the moment when it begins; an impossible request never begins."""

    def __init__(self, request: RunRequest, *, quiet: bool, force: bool) -> None:
        super().__init__()
        self._request, self._quiet, self._force = request, quiet, force
        self.report: Listener = lambda stage, done, total: self._listener(stage, done, total)
        self._listener: Listener = lambda stage, done, total: None
        self._loading = not quiet and sys.stderr.isatty()
        if self._loading:  # processes take seconds to load torch
            click.echo(f"loading {request.method} and {request.task} ...", err=True, nl=False)
            self.callback(self._clear)

    def _clear(self) -> None:
        if self._loading:
            click.echo("\r\033[K", err=True, nl=False)
            self._loading = False

    def begin(self) -> None:
        if self._quiet:
            return
        self._clear()
        request = self._request
        paths = Store(Home(Path(request.home)).records).paths()  # listed once
        plan = plan_of(request, paths)
        if not self._force and (old := rescorable(request, paths)):
            again = " ".join([f"compbench rescore {old}", *(f"--metric {name}" for name in request.metrics)])
            click.echo(f"compbench: {old} is the same run with other metrics; `{again}` trains nothing.", err=True)
        title = f"{request.method} on {request.task}, {request.preset}, seed {request.seed}"
        self._listener = self.enter_context(output.listener(quiet=False, title=title, plan=plan.words, seconds=plan.seconds))


def _sealed(requests: Sequence[RunRequest]) -> list[RunRequest]:
    """The requests, each with the holdout pattern that its method's code and its seed draw."""
    with processes_of(Home(Path(requests[0].home))) as processes:
        return [seal(request, processes) for request in requests]


def _refuse_several(method: str, task: str) -> None:
    """Raise CompbenchError if `--method` or `--task` is a list or a pattern, which only `sweep` takes."""
    for kind, words in (("method", method), ("task", task)):
        if re.search(r"[,*?\[]", words):
            command = shlex.join(["compbench", "sweep", "--method", method, "--task", task])
            raise CompbenchError(f"run takes one {kind}; for several: {command}")


def _foretell(requests: Sequence[RunRequest], *, as_json: bool) -> None:
    """Print the identity of each run, and the name of its record and whether that exists; with `as_json` an object for each."""
    home = Home(Path(requests[0].home))
    with processes_of(home) as processes:
        for request in requests:
            spec, finished = look_up(request, processes)
            attempt = finished.record.attempt if finished else Store(home.records).next_attempt(spec, spec.identity)
            name = name_of(spec, spec.identity, attempt)
            if as_json:
                facts = {"identity": spec.identity, "record": name, "seed": request.seed, "there": finished is not None}
                click.echo(json.dumps(facts, sort_keys=True))
                continue
            there = "is there" if finished else "none yet" if attempt == 1 else "none yet; earlier attempts failed"
            click.echo(f"identity {spec.identity}\nrecord   {name} ({there})")
