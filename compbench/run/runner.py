"""One run: start contestant and referee, let them work within the time limit, and write the record whatever happens.

    RunRequest -> the two sides describe what they resolved -> RunSpec -> Attempt -> Record

This process never imports torch and never runs a plugin's code.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from compbench.home import Home, scratch_folder
from compbench.registry import Registry
from compbench.run import messages
from compbench.run.attempt import Attempt, Outcome
from compbench.run.audit import Listener, Watch
from compbench.run.cpu_time import cpu_seconds_below
from compbench.run.pair import Pair
from compbench.run.processes import Child, Ended, M, Processes, log_tail
from compbench.run.worker import GONE
from compbench.schemas import RunRequest, RunSpec
from compbench.store.lease import Busy, Lost

DESCRIBE_SECONDS = 300.0
"""A plugin whose import takes longer hangs."""


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
) -> Outcome:
    """Run one spec, or return its finished record.

    Args:
        request: what was asked for.
        force: run again even if there is a finished record.
        resume: go on from the last checkpoint of the same spec.
        in_process: everything in this process, for debuggers; no time limit, no protection.
        expected: the spec that the request must resolve to here, up to the version of the code (`check_same`).
        processes: those that runs follow each other in; none for processes of its own.
        registry: where method and task are found, with methods that are no files; in this process only.
        listener: called with (stage, done, total).
        alarm: called twice a second; may raise KeyboardInterrupt, which ends the run as Ctrl-C does.

    Returns:
        the record of this attempt, whatever its status; it is in the store.

    Raises:
        CompbenchError: the request itself is wrong.
        Busy: the same spec is being run by another process, on this machine or another.
        Unwritable: the store cannot be written.
    """
    home = Home(Path(request.home))
    with _processes(home, processes) as own:
        pair: Pair
        if in_process:
            from compbench.run.in_process import InProcessPair

            pair = InProcessPair(request, own.folder, listener, registry)
        else:
            pair = ProcessPair(request, own, listener, alarm)
        try:
            attempt = Attempt(request, home, pair, force=force, resume=resume, in_process=in_process, registry=registry)
            outcome = attempt.run(expected)
        except Busy as busy:
            if isinstance(busy, Lost):
                own.close(gracefully=False)
            else:
                own.release()
            raise
        except BaseException:
            own.close(gracefully=False)
            raise
        if outcome.record.status == "ok":
            own.release()
        else:
            own.close(gracefully=False)
        return outcome


def look_up(
    request: RunRequest, processes: Processes, *, alarm: Callable[[], None] = lambda: None
) -> tuple[RunSpec, Outcome | None]:
    """What a request resolves to, and its finished record if there is one; nothing is run.

    The processes stay for the next: they only read plugins.

    Raises:
        CompbenchError: the request itself is wrong.
    """
    pair = ProcessPair(request, processes, lambda stage, done, total: None, alarm)
    attempt = Attempt(request, Home(Path(request.home)), pair, force=False, resume=False, in_process=False)
    try:
        found = attempt.find()
    except BaseException:
        processes.close(gracefully=False)
        raise
    processes.release()
    return attempt.spec, found


@contextlib.contextmanager
def processes_of(home: Home) -> Iterator[Processes]:
    """Processes for runs that follow each other; they end with the block."""
    with scratch_folder(home.root) as scratch:
        processes = Processes(scratch)
        try:
            yield processes
        finally:
            processes.close(gracefully=False)


@contextlib.contextmanager
def _processes(home: Home, processes: Processes | None) -> Iterator[Processes]:
    if processes is not None:
        yield processes
        return
    with processes_of(home) as own:
        yield own


class ProcessPair:
    """Contestant and referee as child processes."""

    def __init__(self, request: RunRequest, processes: Processes, listener: Listener, alarm: Callable[[], None]) -> None:
        self._processes = processes
        self.alarm = alarm
        self._contestant, self._referee = processes.take(request)
        self.contestant_folder, self.referee_folder = self._contestant.folder, self._referee.folder
        self.predecessors = processes.predecessors
        self.watch = Watch(listener, lambda: cpu_seconds_below(self._contestant.process.pid))
        self.deadline = time.monotonic() + request.time_limit if request.time_limit else float("inf")

    def describe(self) -> tuple[messages.ContestantDescribed, messages.RefereeDescribed]:
        limit = min(self.deadline, time.monotonic() + DESCRIBE_SECONDS)
        contestant = self._contestant.expect(messages.ContestantDescribed, deadline=limit, alarm=self.alarm)
        return contestant, self._referee.expect(messages.RefereeDescribed, deadline=limit, alarm=self.alarm)

    def prepare(self) -> None:
        self._ask(self._referee, messages.Prepare(), messages.Prepared)

    def open(self, order: messages.Open) -> messages.Opened:
        return self._ask(self._contestant, order, messages.Opened)

    def fit(self, order: messages.Fit) -> messages.Fitted:
        return self._ask(self._contestant, order, messages.Fitted)

    def evaluate(self) -> messages.Evaluated:
        try:
            return self._ask(self._referee, messages.Evaluate(), messages.Evaluated)
        except Ended as end:
            if end.reason == GONE:  # the referee only sees that it is gone; how it died is known here
                raise self._contestant.death() from end
            raise

    def measure(self) -> messages.Measured:
        return self._ask(self._contestant, messages.Measure(), messages.Measured)

    def stop(self, *, gracefully: bool) -> None:
        self._processes.close(gracefully=gracefully)

    def log(self) -> str:
        """What the contestant printed, at its end."""
        return log_tail(self._contestant.log)

    def _ask(self, child: Child, order: messages.Message, kind: type[M]) -> M:
        child.order(order)
        return child.expect(kind, deadline=self.deadline, progress=self.watch, alarm=self.alarm)
