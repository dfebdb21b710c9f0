"""Run requests as a SLURM job array: each member works through its share with the same slots (extra `slurm`).

The parent submits, reads the members' results from files, and waits; nothing is unpickled from the cluster.  When SLURM signals
that a member's time is nearly up, the member stops like a sweep on Ctrl-C, with checkpoints, and asks to be requeued.  Members,
other sweeps and earlier sweeps share the store's leases and records, so no run is done twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import Field, model_validator

from compbench.api.executor import (
    Executor,
    ExecutorSettings,
    RunResult,
    SweepListener,
    SweepOptions,
    not_installed,
    too_many_failures,
)
from compbench.api.hookspecs import hookimpl
from compbench.api.schemas import RunRequest
from compbench.runner.processes import last_line, log_tail
from compbench.runner.signals import WORDS, Stopping, stopped_by_signals, unheard_by_children
from compbench.sweep import scheduler
from compbench.sweep.ledger import ArrayFacts, arrays, ledger_of, read_ledger, reported, tell
from compbench.sweep.pool import STOPPED, ended, left, work_through
from compbench.sweep.scheduler import Silent, State
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import Json, remove_tree

if TYPE_CHECKING:
    from submitit import Job, SlurmExecutor

CANCEL_SECONDS = 120.0
"""Longest wait for cancelled members; SLURM kills them well before."""
SUBMIT_SECONDS = 180.0
"""Longest wait for sbatch."""
SURE_SECONDS = 2.0
"""A member counts as ended if it was missing from the queue twice, this many seconds apart."""
OUT_OF_TIME = "SLURM's time limit for the member is near"
ENDED_BY_SLURM = "SLURM ended the member (a cancel, a preemption or its time limit)"
LEFT = ("left", "killed")
LOST = re.compile(r"member \S+ ended as (NODE_FAIL|BOOT_FAIL|OUT_OF_MEMORY|PREEMPTED)\b")
"""Pattern of endings that the cluster caused; with `retries`, the runs of such a member are submitted again."""
LOG = logging.getLogger("compbench.sweep")
"""Log of messages while a sweep waits; the command line shows them."""

Scalar = str | int | float | bool


class SlurmSettings(ExecutorSettings):
    """Number and limits of the array's members, and the resources that each requests."""

    members: int = Field(4, ge=1, le=10_000, description="number of members of the array; each takes its share of the runs")
    side_by_side: int = Field(256, ge=1, le=10_000, description="number of members that may run at the same time")
    minutes: int = Field(
        60, ge=1, le=60 * 24 * 60, description="time limit of a member; at least twice stop_seconds and a minute"
    )
    stop_seconds: int = Field(120, ge=30, le=3600, description="seconds before the time limit in which a member saves and stops")
    requeues: int = Field(8, ge=0, le=1000, description="how often a member that ran out of time is requeued to continue")
    cpus: int = Field(2, ge=1, le=1024, description="cores per member, which its slots share")
    gpus: int = Field(0, ge=0, le=64, description="GPUs per member; a member has as many slots, unless --slots is given")
    memory_gb: float = Field(8.0, gt=0, le=100_000, description="memory per member")
    partition: str = Field("", max_length=80, description="partition; '' is the cluster's default")
    account: str = Field("", max_length=80, description="account; '' is the user's default")
    qos: str = Field("", max_length=80, description="quality of service; '' is the default")
    constraint: str = Field("", max_length=200, description="features that a node must have; '' is any")
    extra: dict[str, Scalar] = Field(
        default_factory=dict, max_length=50, description='further options of sbatch: {"reservation": "x", "gres": "gpu:a100:2"}'
    )
    setup: tuple[str, ...] = Field((), max_length=50, description='shell lines before a member starts: ["module load cuda"]')
    wait: bool = Field(True, description="wait for the members; false only submits them")
    look_seconds: float = Field(
        30.0, ge=0.5, le=3600, description="seconds between two calls of squeue, which lists the running members"
    )

    @model_validator(mode="after")
    def _has_time_to_work(self) -> SlurmSettings:
        """SLURM may send its signal up to a minute early, so a member with too little time would stop before it did any work."""
        least = -(-(2 * self.stop_seconds + 60) // 60)
        if self.minutes < least:
            raise ValueError(
                f"minutes={self.minutes} leaves a member no time to work before it saves (stop_seconds={self.stop_seconds}); "
                f"use minutes={least} or more, or fewer stop_seconds"
            )
        return self


@dataclass
class Member:
    """The work of one member, called on the node.  It is pickled by name, because the node has the same compbench.

    Attributes:
        requests: its share of the runs.
        how: options of the sweep.
        ledger: file to which it adds one line per finished run.
        requeues: how often it may be requeued.
    """

    requests: list[RunRequest]
    how: SweepOptions
    ledger: Path
    requeues: int

    def __call__(self) -> None:
        """Work through the share, or through what is left of it after a requeue."""
        known = read_ledger(self.ledger)
        todo = [index for index in range(len(self.requests)) if index not in known or known[index].status == "killed"]
        job, restarts = scheduler.environment(os.environ)
        how = self.how._replace(resume=self.how.resume or restarts > 0)
        stopping = Stopping({**WORDS, signal.SIGTERM: ENDED_BY_SLURM})

        def comes_back() -> bool:
            return stopping.why == OUT_OF_TIME and restarts < self.requeues

        def finished(number: int, result: RunResult) -> None:
            if not (result.status == "killed" and comes_back()):  # the member is requeued and reports then
                tell(self.ledger, todo[number], result)

        with _out_of_time(stopping), stopped_by_signals(stopping):
            if todo:
                work_through([self.requests[index] for index in todo], how, stopping=stopping, finished=finished)
        if comes_back():
            subprocess.run(["scontrol", "requeue", job], check=True, timeout=60)
        if stopping.is_set():
            sys.exit(143)  # no result is written, so SLURM's state of the member counts


@contextlib.contextmanager
def _out_of_time(stopping: Stopping) -> Iterator[None]:
    """Stop when SLURM signals that the time is nearly up.

    The signal is SIGUSR2 (`--signal`, which submitit sets), sent to every process of the step.  This process blocks it, so that
    its children block it too, and a thread waits for it.
    """
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            if signal.sigtimedwait({signal.SIGUSR2}, 0.5):
                stopping.stop(OUT_OF_TIME)

    signal.signal(signal.SIGUSR2, lambda *_: stopping.stop(OUT_OF_TIME))  # a thread started earlier may get the signal
    with unheard_by_children():
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            yield
        finally:
            over.set()
            listener.join()


def work(settings: SlurmSettings, requests: Sequence[RunRequest], how: SweepOptions, listener: SweepListener) -> list[RunResult]:
    """Submit an array, and wait for its end unless `wait` is false.

    Raises:
        CompbenchError: submitit is not installed, or SLURM is not available here.
    """
    place = Path(requests[0].home) / "slurm"
    remove_finished(place)
    array = _Array(settings, requests, how, place / secrets.token_hex(4))
    stopping = Stopping()
    with stopped_by_signals(stopping):
        array.submit()
        if not settings.wait:
            return array.promised()
        results = _seen_through(array, how, listener, stopping)
        for _ in range(how.retries):
            again = [index for index, result in enumerate(results) if LOST.search(result.reason) and result.status in LEFT]
            if stopping.is_set() or not again:
                break
            LOG.info("job %s lost %d runs with their members; they are submitted again", array.facts.job, len(again))
            array = _Array(
                settings, [requests[index] for index in again], how._replace(resume=True), place / secrets.token_hex(4)
            )
            array.submit()
            for index, result in zip(again, _seen_through(array, how, listener, stopping), strict=True):
                results[index] = result
    remove_finished(place)
    return results


def _seen_through(array: _Array, how: SweepOptions, listener: SweepListener, stopping: Stopping) -> list[RunResult]:
    """Wait until the array has ended; end it on a signal, or when too many of its runs have failed."""
    while not array.all_done():
        array.read(listener)
        if why := array.too_many_failures(how):
            stopping.stop(why)
        if stopping.wait(1.0):
            array.cancel()
            break
    array.read(listener)
    return array.results(stopping)


def remove_finished(place: Path) -> None:
    """Remove the files of arrays whose runs are all done; the records keep the results."""
    for folder, facts in arrays(place):
        told = reported(folder, facts.shares)
        ended = len(list(folder.glob("*_result.pkl"))) >= len(facts.shares)  # the member has finished
        if ended and len(told) == facts.num_runs and all(result.status not in ("killed", "left") for result in told.values()):
            remove_tree(folder)


T = TypeVar("T")


def _submitted(executor: SlurmExecutor, members: Sequence[Member]) -> list[Job[None]]:
    with executor.batch():
        return [executor.submit(member) for member in members]


def _within_time(call: Callable[[], T]) -> T:
    """Return what `call` returns, or raise what it raises.  Raises CompbenchError if it takes longer than `SUBMIT_SECONDS`."""
    found: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            found.append(call())
        except Exception as error:
            errors.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(SUBMIT_SECONDS)
    if errors:
        raise errors[0]
    if not found:
        raise CompbenchError(f"sbatch did not answer for {SUBMIT_SECONDS:g} s; see `squeue --me` before you submit again.")
    return found[0]


class _Array:
    """A job array: submit it, look at its progress, cancel it."""

    def __init__(self, settings: SlurmSettings, requests: Sequence[RunRequest], how: SweepOptions, folder: Path) -> None:
        slots = how.slots or settings.gpus or 1
        threads = max(1, settings.cpus // slots)
        self._settings, self._how, self._folder = settings, how, folder
        self._requests = [request.model_copy(update={"threads": request.threads or threads}) for request in requests]
        self._results: dict[int, RunResult] = {}
        self._states: dict[str, State] = {}
        self._missing: dict[str, float] = {}
        self._next_look, self._said, self._silence = 0.0, "", ""
        self._could_not_cancel = False

    def submit(self) -> None:
        """Submit the array, and log its job number.

        Raises:
            CompbenchError: SLURM is not available here, or refused the job.
        """
        try:
            import submitit
        except ModuleNotFoundError as error:
            raise not_installed("slurm", error) from error
        missing = [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]
        if missing:
            raise CompbenchError(f"executor 'slurm' needs {missing[0]} on PATH: run this on a machine where jobs are submitted.")
        logger = submitit.core.logger.get_logger()
        logger.handlers, logger.propagate = [logging.NullHandler()], False  # submitit writes to standard output
        count = min(self._settings.members, len(self._requests))
        if 0 < (most := scheduler.max_array_size()) < count:
            LOG.warning("arrays have at most %d members here (MaxArraySize), so this one has as many, not %d", most, count)
            count = most
        shares = tuple(tuple(range(number, len(self._requests), count)) for number in range(count))  # mixes long and short runs
        members = [
            Member(
                [self._requests[index] for index in share], self._how, ledger_of(self._folder, number), self._settings.requeues
            )
            for number, share in enumerate(shares)
        ]
        try:
            self._folder.mkdir(parents=True)
            executor = submitit.SlurmExecutor(folder=self._folder)
            executor.update_parameters(**self._parameters())
            jobs = _within_time(partial(_submitted, executor, members))
            self.facts = ArrayFacts(
                job=jobs[0].job_id.split("_")[0], shares=shares, submitted=datetime.now(UTC).isoformat(timespec="seconds")
            )
            self.facts.save(self._folder)
        except OSError as error:
            remove_tree(self._folder)
            raise Unwritable.of(self._folder, error) from error
        except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
            remove_tree(self._folder)
            raise CompbenchError(f"SLURM refused the job: {' '.join(str(error).split())[-300:]}") from error
        members_of = "1 member" if count == 1 else f"{count} members"
        LOG.info("job %s, %s; logs in %s", self.facts.job, members_of, self._folder)

    def promised(self) -> list[RunResult]:
        """One result ("queued") for each request of an array for which no process waits."""
        return [
            left(request, f"queued as member {index % len(self.facts.shares)} of job {self.facts.job}")._replace(status="queued")
            for index, request in enumerate(self._requests)
        ]

    def all_done(self) -> bool:
        """Whether each member has ended: it wrote its last file, or it is no longer in the queue."""
        numbers = range(len(self.facts.shares))
        waiting = [number for number in numbers if not self._has_result(number)]
        if waiting and time.monotonic() >= self._next_look:
            self._look()
        now = time.monotonic()
        return all(now - self._missing.get(self.facts.member(number), now) >= SURE_SECONDS for number in waiting)

    def read(self, listener: SweepListener) -> None:
        """Read what members reported since the last call."""
        for index, result in reported(self._folder, self.facts.shares).items():
            if self._results.get(index) != result:
                self._results[index] = result
                if result.status != "killed":
                    listener(index % len(self.facts.shares), self._requests[index], ended(result), 1, 1)

    def too_many_failures(self, how: SweepOptions) -> str:
        """Why the array has to end; "" if it may continue."""
        return too_many_failures(self._results.values(), how)

    def cancel(self) -> None:
        """End the members, and wait until they have left the queue."""
        try:
            scheduler.cancel(self.facts.job)
        except Silent as error:
            self._could_not_cancel = True
            LOG.error("job %s could not be cancelled (%s); type: scancel %s", self.facts.job, error, self.facts.job)
            return
        end = time.monotonic() + CANCEL_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(Silent):
                if not scheduler.queued(self.facts.job):
                    return
            time.sleep(1.0)
        LOG.error("job %s is still in the queue; see: squeue -j %s", self.facts.job, self.facts.job)

    def results(self, stopping: Stopping) -> list[RunResult]:
        """One result for each request; if a member ended early, its remaining runs get the way in which it ended."""
        endings: dict[str, State] = {}
        if len(self._results) < len(self._requests) or any(one.status == "killed" for one in self._results.values()):
            endings = scheduler.endings(self.facts.job)
        found = []
        for index, request in enumerate(self._requests):
            result = self._results.get(index)
            number = index % len(self.facts.shares)
            if result is not None and result.status != "killed":
                found.append(result)
            elif stopping.is_set():
                why = STOPPED if stopping.by_signal else stopping.why
                if self._could_not_cancel:
                    why = f"{stopping.why}; job {self.facts.job} may still run it"
                stopped = result and result._replace(reason=f"{stopping.why}; continue with --resume")
                found.append(stopped or left(request, why))
            else:
                how = _how_ended(self.facts.member(number), endings)
                killed = result and result._replace(reason=f"{how}; continue with --resume")
                found.append(killed or left(request, f"{how}{self._last_words(number)}"))
        return found

    def _look(self) -> None:
        """Ask SLURM for the queue, and log changes: numbers by state, and why members wait."""
        now = time.monotonic()
        self._next_look = now + self._settings.look_seconds
        try:
            states, self._silence = scheduler.queued(self.facts.job), ""
        except Silent as error:
            if not self._silence:
                LOG.warning("SLURM does not answer (%s); members keep running, and this process keeps waiting", error)
            self._silence = str(error)
            self._missing = {}  # a member is gone only if two looks in a row miss it
            return
        names = [self.facts.member(number) for number in range(len(self.facts.shares))]
        self._missing = {name: self._missing.get(name, now) for name in names if name not in states}
        again = [name for name, state in states.items() if state.name == "PENDING" and self._ran(name)]
        if any(now - since < SURE_SECONDS for since in self._missing.values()):
            self._next_look = min(self._next_look, now + SURE_SECONDS)
        said = scheduler.summary(states.values()) + (f", {len(again)} of them queued again" if again else "")
        if states and said != self._said:
            LOG.info("job %s: %s", self.facts.job, said)
            self._said = said
        self._states |= {name: state for name, state in states.items() if state.name != "PENDING"}

    def _ran(self, name: str) -> bool:
        return name in self._states

    def _has_result(self, number: int) -> bool:
        return (self._folder / f"{self.facts.member(number)}_0_result.pkl").exists()

    def _last_words(self, number: int) -> str:
        log = self._folder / f"{self.facts.member(number)}_0_log.err"
        said = last_line(log_tail(log))
        return f'; its log ends with "{said}" ({log})' if said else f"; its log: {log}"

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
            "srun_args": ["--export=ALL"],  # some sites set SBATCH_EXPORT=NONE, and a member would not know its own job
            "additional_parameters": dict(settings.extra),
            **{name: value for name, value in named.items() if value},
        }


def _how_ended(name: str, endings: Mapping[str, State]) -> str:
    state = endings.get(name)
    if state is None:
        return f"member {name} left SLURM's queue, and SLURM does not say how it ended"
    return f"member {name} ended as {state.name}{f' ({state.reason})' if state.reason else ''}"


@hookimpl
def compbench_executors() -> tuple[Executor, ...]:
    return (Executor("slurm", SlurmSettings, work),)
