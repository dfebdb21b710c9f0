"""Runs as a SLURM job array: each member works through its share with the same slots (extra `slurm`).

The parent submits, reads from files what members finished, and waits; nothing is unpickled from the cluster.  A member that
hears that its time is nearly up stops like a sweep on Ctrl-C, with checkpoints, and asks to be queued again.  Members,
other sweeps and earlier sweeps share the store's leases and records: no run is done twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from compbench.api.executor import Executor, ExecutorSettings, RunResult, SweepListener, SweepOptions, not_installed
from compbench.api.hookspecs import hookimpl
from compbench.api.schemas import RunRequest
from compbench.runner.signals import stopped_by_signals
from compbench.sweep.pool import STOPPED, left, work_through
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import Json

CANCEL_SECONDS = 120.0
"""Longest wait for members that were cancelled; SLURM kills them well before."""


class SlurmSettings(ExecutorSettings):
    """What the members of the array are, and what each asks of the cluster."""

    members: int = Field(4, ge=1, le=10_000, description="number of members of the array; each takes its share of the runs")
    side_by_side: int = Field(256, ge=1, le=10_000, description="number of members that may run at the same time")
    minutes: int = Field(60, ge=1, le=60 * 24 * 60, description="time limit of a member")
    stop_seconds: int = Field(120, ge=30, le=3600, description="seconds before the time limit in which a member saves and stops")
    requeues: int = Field(8, ge=0, le=1000, description="how often a member that ran out of time is queued again to continue")
    cpus: int = Field(2, ge=1, le=1024, description="cores per member")
    gpus: int = Field(0, ge=0, le=64, description="GPUs per member; a member has as many slots, unless --slots is given")
    memory_gb: float = Field(8.0, gt=0, le=100_000, description="memory per member")
    partition: str = Field("", max_length=80, description="partition; '' is the cluster's default")
    account: str = Field("", max_length=80, description="account; '' is the user's default")
    qos: str = Field("", max_length=80, description="quality of service; '' is the default")
    constraint: str = Field("", max_length=200, description="features that a node must have; '' is any")
    setup: tuple[str, ...] = Field((), max_length=50, description='shell lines before a member starts: ["module load cuda"]')
    wait: bool = Field(True, description="wait for the members; false only submits them")
    look_seconds: float = Field(
        30.0, ge=0.5, le=3600, description="seconds between two calls of sacct, which reports dead members"
    )


@dataclass
class Member:
    """One member's share; called on the node.  Written to be pickled by name: a node has the same compbench.

    Attributes:
        requests: its share.
        how: how to run them.
        ledger: file in which it tells of each finished run, a line each.
        requeues: times that it may be queued again.
    """

    requests: list[RunRequest]
    how: SweepOptions
    ledger: Path
    requeues: int
    _out_of_time: threading.Event = field(default_factory=threading.Event)

    def __getstate__(self) -> dict[str, Json]:
        return {name: value for name, value in self.__dict__.items() if name != "_out_of_time"}

    def __setstate__(self, state: dict[str, Json]) -> None:
        self.__dict__.update(state, _out_of_time=threading.Event())

    def __call__(self) -> None:
        """Work through the share, or what an earlier life of this member left of it."""
        known = read_ledger(self.ledger)
        todo = [index for index in range(len(self.requests)) if index not in known or known[index].status == "killed"]
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        how = self.how._replace(resume=self.how.resume or restarts > 0)
        stopping = threading.Event()

        def out_of_time(*_: object) -> None:
            self._out_of_time.set()
            stopping.set()

        signal.signal(signal.SIGUSR2, out_of_time)  # `--signal` of the job, as submitit asks for it
        with stopped_by_signals(stopping):
            if todo:
                requests = [self.requests[index] for index in todo]
                work_through(requests, how, stopping=stopping, finished=lambda number, one: self._tell(todo[number], one))
        if self._out_of_time.is_set() and restarts < self.requeues:
            subprocess.run(["scontrol", "requeue", _own_job()], check=True, timeout=60)
        if stopping.is_set():
            sys.exit(143)  # no result: what SLURM says of the member counts

    def _tell(self, index: int, result: RunResult) -> None:
        line = json.dumps({"index": index, **result._asdict()}) + "\n"
        with contextlib.suppress(OSError), self.ledger.open("ab+") as file:  # the record is what matters
            if file.tell():
                file.seek(-1, os.SEEK_END)
                line = line if file.read() == b"\n" else f"\n{line}"  # what a full disk or a kill cut stays a line of its own
            file.write(line.encode())


def work(settings: SlurmSettings, requests: Sequence[RunRequest], how: SweepOptions, listener: SweepListener) -> list[RunResult]:
    """Submit an array, and see it through unless asked not to.

    Raises:
        CompbenchError: submitit is not installed, or there is no SLURM here.
    """
    folder = Path(requests[0].home) / "slurm" / secrets.token_hex(4)
    array = _Array(settings, requests, how, folder)
    stopping = threading.Event()
    with stopped_by_signals(stopping):
        array.submit()
        if not settings.wait:
            return [
                left(request, f"queued as member {array.member_of(index)} of job {array.job}")._replace(status="queued")
                for index, request in enumerate(requests)
            ]
        while not array.all_done():
            array.read(listener)
            if stopping.wait(1.0):
                array.cancel()
                break
        array.read(listener)
    return array.results(stopped=stopping.is_set())


class _Array:
    """A job array: submitted, looked at, cancelled."""

    def __init__(self, settings: SlurmSettings, requests: Sequence[RunRequest], how: SweepOptions, folder: Path) -> None:
        self._settings, self._requests, self._how, self._folder = settings, requests, how, folder
        self._count = min(settings.members, len(requests))
        self._reported: dict[int, RunResult] = {}
        self._jobs: list[Any] = []
        self._looked = time.monotonic()

    @property
    def job(self) -> str:
        """The array's job number."""
        return str(self._jobs[0].job_id).split("_")[0]

    def member_of(self, index: int) -> int:
        """Shares are dealt like cards, so that long and short runs mix."""
        return index % self._count

    def submit(self) -> None:
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise not_installed("slurm", error) from error
        missing = [name for name in ("sbatch", "srun", "sacct", "scancel") if shutil.which(name) is None]
        if missing:
            raise CompbenchError(f"executor 'slurm' needs {missing[0]} on PATH: run this on a machine where jobs are submitted.")
        members = [
            Member(
                [request for index, request in enumerate(self._requests) if self.member_of(index) == number],
                self._how,
                self._ledger(number),
                self._settings.requeues,
            )
            for number in range(self._count)
        ]
        try:
            self._folder.mkdir(parents=True)
            executor = submitit.SlurmExecutor(folder=self._folder)
            executor.update_parameters(**self._parameters())
            with executor.batch():
                self._jobs = [executor.submit(member) for member in members]
        except OSError as error:
            raise Unwritable.of(self._folder, error) from error
        except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            raise CompbenchError(f"SLURM did not take the job: {' '.join(str(error).split())[-300:]}") from error

    def all_done(self) -> bool:
        """Whether each member has ended: it says so by a file, or SLURM, asked now and then, says so of a dead one."""
        force = time.monotonic() - self._looked >= self._settings.look_seconds
        if force:
            self._looked = time.monotonic()
            self._jobs[0].watcher.update()
        return all(job.paths.result_pickle.exists() or job.watcher.is_done(job.job_id, mode="cache") for job in self._jobs)

    def read(self, listener: SweepListener) -> None:
        """Take in what members reported since the last time."""
        for number in range(self._count):
            own = [index for index in range(len(self._requests)) if self.member_of(index) == number]
            for position, result in read_ledger(self._ledger(number)).items():
                if self._reported.get(own[position]) != result:
                    self._reported[own[position]] = result
                    listener(number, self._requests[own[position]], "done", 1, 1)

    def cancel(self) -> None:
        """End the members, and wait until they have."""
        subprocess.run(["scancel", self.job], check=False, timeout=60)
        end = time.monotonic() + CANCEL_SECONDS
        while time.monotonic() < end and not all(job.done(force_check=True) for job in self._jobs):
            time.sleep(1.0)

    def results(self, *, stopped: bool) -> list[RunResult]:
        """One result for each request; of a dead member's rest, how it died."""
        found = []
        for index, request in enumerate(self._requests):
            job = self._jobs[self.member_of(index)]
            how = f"member {job.job_id} ended as {job.watcher.get_state(job.job_id, mode='cache')}; its log: {job.paths.stderr}"
            found.append(self._reported.get(index) or left(request, STOPPED if stopped else how))
        return found

    def _ledger(self, number: int) -> Path:
        return self._folder / f"finished.{number}.jsonl"

    def _parameters(self) -> dict[str, Json]:
        settings = self._settings
        named = {name: getattr(settings, name) for name in ("partition", "account", "qos", "constraint")}
        return {
            "job_name": "compbench",
            "time": settings.minutes,
            "signal_delay_s": settings.stop_seconds,
            "cpus_per_task": settings.cpus,
            **({"gpus_per_node": settings.gpus} if settings.gpus else {}),
            "mem": f"{settings.memory_gb * 1024:.0f}MB",
            "array_parallelism": settings.side_by_side,
            "setup": list(settings.setup),
            **{name: value for name, value in named.items() if value},
        }


def read_ledger(path: Path) -> dict[int, RunResult]:
    """What a member reported, by position in its share; the latest word on each.  A line that is not whole is passed over."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError:
        return {}
    found = {}
    for line in lines:
        if line.endswith("\n"):
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                facts = json.loads(line)
                index = facts.pop("index")
                found[index] = RunResult(**facts)
    return found


def _own_job() -> str:
    """This member's job as SLURM names it; submitit submits a single member as a plain job, not as an array of one."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


@hookimpl
def compbench_executors() -> tuple[Executor, ...]:
    return (Executor("slurm", SlurmSettings, work),)
