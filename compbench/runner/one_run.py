"""One run: start contestant and referee, let them work within the time limit, and write the record whatever happens.

    RunRequest -> the two sides describe what they resolved -> RunSpec -> Attempt -> Record

This process never imports torch and never runs a plugin's code.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from compbench.api.schemas import RunRequest, RunSpec
from compbench.registry.registry import Registry
from compbench.registry.resolve import check_request, task_of
from compbench.runner.attempt import Attempt, Outcome, Pair
from compbench.runner.audit import Listener, Watch
from compbench.runner.messages import OF_THE_REFEREE, ContestantDescribed, M, Message, RefereeDescribed
from compbench.runner.processes import Ended, Processes, log_tail
from compbench.runner.supervisor import cpu_seconds_below
from compbench.runner.worker import GONE
from compbench.store import sealed
from compbench.store.lease import Busy, Lost
from compbench.system.errors import CompbenchError
from compbench.system.home import Home, scratch_folder

DESCRIBE_SECONDS = 300.0
"""Time limit for a plugin's import, in seconds; a plugin that takes longer counts as hanging."""


def run(
    request: RunRequest,
    *,
    force: bool = False,
    resume: bool = False,
    in_process: bool = False,
    expected: RunSpec | None = None,
    processes: Processes | None = None,
    registry: Registry | None = None,
    listener: Listener = lambda stage, done, total: None,
    alarm: Callable[[], None] = lambda: None,
    begins: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run one spec, or return its finished record; the record of this attempt is stored whatever its status.

    Args:
        force: run again even if there is a finished record.
        resume: continue from the last checkpoint of the same spec.
        in_process: run everything in this process, for debuggers, without time limit and protection.
        expected: the spec that the request must resolve to here, except for the version of the code (`check_same`).
        processes: processes shared by consecutive runs; without them, the run starts its own.
        registry: registry for method and task, which may have methods without a file; only with `in_process`.
        listener: called with (stage, done, total).
        alarm: called twice a second; may raise KeyboardInterrupt, which ends the run as Ctrl-C does.
        begins: called once the request is known to be possible and to have no finished record, before any work.

    Raises:
        CompbenchError: the request itself is wrong.
        Busy: the same spec is being run by another process, on this machine or another.
        Unwritable: the store cannot be written.
    """
    home = Home(Path(request.home))
    check_request(request, registry or Registry(tuple(map(Path, request.plugins))))
    with processes_of(home) if processes is None else contextlib.nullcontext(processes) as own:
        pair: Pair
        if in_process:
            from compbench.runner.in_process import InProcessPair

            pair = InProcessPair(request, own.folder, listener, registry)
        else:
            pair = ProcessPair(request, own, listener, alarm)
        try:
            attempt = Attempt(request, home, pair, force=force, resume=resume, in_process=in_process, registry=registry)
            outcome = attempt.run(expected, begins)
        except BaseException as error:
            _let_go(own, well=isinstance(error, Busy) and not isinstance(error, Lost))
            raise
        _let_go(own, well=outcome.record.status == "ok")
        return outcome


def _let_go(processes: Processes, *, well: bool) -> None:
    """Keep the processes for the next run if this run went well, and end them otherwise."""
    if well:
        processes.release()
    else:
        processes.close()


def look_up(
    request: RunRequest, processes: Processes, *, alarm: Callable[[], None] = lambda: None
) -> tuple[RunSpec, Outcome | None]:
    """The spec that a request resolves to, and its finished record if there is one; nothing is run, the processes are kept."""
    attempt, found = _resolved(request, processes, alarm)
    return attempt.spec, found


def _resolved(request: RunRequest, processes: Processes, alarm: Callable[[], None]) -> tuple[Attempt, Outcome | None]:
    """The attempt of a request once both sides have described themselves, and its finished record if there is one."""
    check_request(request, Registry(tuple(map(Path, request.plugins))))
    pair = ProcessPair(request, processes, lambda stage, done, total: None, alarm)
    attempt, well = Attempt(request, Home(Path(request.home)), pair), False
    try:
        found, well = attempt.find(), True
    finally:
        _let_go(processes, well=well)
    return attempt, found


def seal(request: RunRequest, processes: Processes, *, alarm: Callable[[], None] = lambda: None) -> RunRequest:
    """The request with the holdout that is drawn from the hash of its method's code (`compbench.store.sealed`).

    Raises:
        CompbenchError: the request is wrong, chooses a pattern itself, or its task's pattern cannot be chosen.
    """
    if chosen := [name for name in request.overrides if name in {f"task.{own}" for own in sealed.PATTERN}]:
        raise CompbenchError(f"--sealed draws the pattern itself; leave --set {chosen[0]} out.")
    attempt, _ = _resolved(request, processes, alarm)
    task = task_of(request, Registry(tuple(map(Path, request.plugins))))
    pattern = sealed.pattern(task, attempt.spec, attempt.code.parts["method"])
    return request.model_copy(update={"overrides": {**request.overrides, **pattern}, "sealed": True})


@contextlib.contextmanager
def processes_of(home: Home) -> Iterator[Processes]:
    """Processes for consecutive runs; they end with the block."""
    with scratch_folder(home.root) as scratch, contextlib.closing(Processes(scratch)) as processes:
        yield processes


class ProcessPair:
    """Contestant and referee as child processes."""

    def __init__(self, request: RunRequest, processes: Processes, listener: Listener, alarm: Callable[[], None]) -> None:
        self._request, self._processes, self.alarm = request, processes, alarm
        self._contestant, self._referee = processes.take(request)
        self.contestant_folder, self.referee_folder = self._contestant.folder, self._referee.folder
        self.predecessors = processes.predecessors
        self.watch = Watch(listener, lambda: cpu_seconds_below(self._contestant.process.pid))
        self.deadline = time.monotonic() + request.time_limit if request.time_limit else float("inf")

    def describe(self) -> tuple[ContestantDescribed, RefereeDescribed]:
        limit = min(self.deadline, time.monotonic() + DESCRIBE_SECONDS)
        contestant = self._contestant.expect(ContestantDescribed, deadline=limit, alarm=self.alarm)
        return contestant, self._referee.expect(RefereeDescribed, deadline=limit, alarm=self.alarm)

    def ask(self, order: Message, kind: type[M]) -> M:
        child = self._referee if isinstance(order, OF_THE_REFEREE) else self._contestant
        child.order(order)
        try:
            return child.expect(kind, deadline=self.deadline, progress=self.watch, alarm=self.alarm)
        except Ended as end:
            if end.reason == GONE:  # the referee only sees that the contestant is gone; the parent knows how it died
                raise self._contestant.death() from end
            raise

    def is_outdated(self) -> bool:
        return self._processes.is_outdated(self._request)

    def stop(self, *, gracefully: bool = False) -> None:
        self._processes.close(gracefully=gracefully)

    def log(self) -> str:
        """The end of what the contestant printed."""
        return log_tail(self._contestant.log)
