"""A pool of runs on one machine: each GPU is a slot, or each slot has a share of the CPU's cores."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import re
import subprocess
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from compbench.api.executor import RunResult, SweepListener, SweepOptions, too_many_failures
from compbench.api.schemas import CARD, Card, Record, RunRequest
from compbench.runner.attempt import Outcome
from compbench.runner.one_run import processes_of, run
from compbench.runner.processes import Processes
from compbench.runner.signals import Stopping, stopped_by_signals
from compbench.store.lease import Busy, wait
from compbench.system.devices import num_cores
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.home import Home

JOIN_SECONDS = 90.0
"""Longest wait for slots that were asked to stop: longer than the grace period of a child."""


DISK_SECONDS = 10.0
"""Seconds before a run that could not write is tried again, if `retries` allows it."""
LOST_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EROFS, errno.ENOLCK, errno.EREMOTEIO, errno.ETIMEDOUT)
"""Errors of a disk that is full, slow or gone; a failed run's reason quotes them, as in "[Errno 28]"."""
LOG = logging.getLogger("compbench.sweep")

STOPPED = "stopped before it began"


def work_through(
    requests: Sequence[RunRequest],
    how: SweepOptions,
    *,
    listener: SweepListener = lambda slot, request, stage, done, total: None,
    finished: Callable[[int, RunResult], None] = lambda index, result: None,
    stopping: Stopping | None = None,
) -> list[RunResult]:
    """Run all requests, `how.slots` at a time.  A run that exists returns its record (`existing.known` finds records faster).

    Runs that another sweep is already doing are awaited last.  Signals, `stopping` and a full disk end the current runs (each
    leaves a `killed` record and a checkpoint), and no other run starts.

    Args:
        requests: what to run; the order is kept.
        how: options of the sweep.
        listener: called with progress.
        finished: called with each result and its position among the requests.
        stopping: set it to stop; the pool sets it if it stops early.

    Returns:
        one result for each request, in order.
    """
    pool = _Pool(requests, how, listener, finished, stopping or Stopping())
    workers = [threading.Thread(target=pool.work, args=(slot,), daemon=True) for slot in range(pool.slots)]
    with stopped_by_signals(pool.stopping):
        for worker in workers:
            worker.start()
        patience = JOIN_SECONDS
        while patience > 0 and (alive := next((worker for worker in workers if worker.is_alive()), None)):
            alive.join(timeout=0.5)
            patience -= 0.5 * pool.stopping.is_set()
    if pool.bug is not None:
        raise pool.bug
    return pool.results()


class _Pool:
    """Requests, the slots that work on them, and their progress."""

    def __init__(
        self,
        requests: Sequence[RunRequest],
        how: SweepOptions,
        listener: SweepListener,
        finished: Callable[[int, RunResult], None],
        stopping: Stopping,
    ) -> None:
        self.requests, self.how, self.listener, self.stopping = requests, how, listener, stopping
        self._finished = finished
        self._cards = cards_of(requests[0].device if requests else "cpu")
        self.slots = how.slots or len(self._cards) or 1
        self._elsewhere: queue.SimpleQueue[tuple[int, Path]] = queue.SimpleQueue()
        self._results: dict[int, RunResult] = {}
        self._reason = STOPPED
        self._tries: Counter[int] = Counter()
        self.bug: BaseException | None = None
        count = range(len(requests))
        methods = list(dict.fromkeys(request.method for request in requests))
        order = sorted(count, key=lambda index: methods.index(requests[index].method)) if how.chain else list(count)
        self._waiting: deque[int] = deque(order)

    def results(self) -> list[RunResult]:
        return [self._results.get(index) or left(request, self._reason) for index, request in enumerate(self.requests)]

    def work(self, slot: int) -> None:
        """The loop of one slot: work until no request is left."""
        home = Home(Path(self.requests[0].home))
        try:
            with processes_of(home) if self.how.chain else contextlib.nullcontext() as processes:
                while (index := self._next()) is not None:
                    self._work_on(index, slot, processes)
        except Unwritable as error:
            self._give_up(str(error))
        except KeyboardInterrupt:
            return
        except BaseException as error:  # a bug of ours, not of a plugin: the main thread raises it
            self.bug = error
            self.stopping.stop("compbench itself failed")

    def _keep(self, index: int, result: RunResult, slot: int) -> None:
        self._results[index] = result
        self._finished(index, result)
        if result.status != "killed":
            self.listener(slot, self.requests[index], ended(result), 1, 1)
        if why := too_many_failures(list(self._results.values()), self.how):
            self._give_up(why)

    def _next(self) -> int | None:
        """The next request: one that no slot is working on, else one that another sweep has released."""
        if self.stopping.is_set():
            return None
        with contextlib.suppress(IndexError):
            return self._waiting.popleft()
        try:
            index, lease = self._elsewhere.get_nowait()
        except queue.Empty:
            return None
        wait(lease, alarm=self._alarm)
        return index

    def _work_on(self, index: int, slot: int, processes: Processes | None) -> None:
        request = self._placed(self.requests[index], slot)

        def report(stage: str, done: int, total: int) -> None:
            self.listener(slot, request, stage, done, total)

        how = self.how
        resume = how.resume or self._tries[index] > 0
        try:
            outcome = run(request, force=how.force, resume=resume, processes=processes, listener=report, alarm=self._alarm)
            if is_lost(outcome.record) and self._tries_again(index, outcome.record.reason):
                return
            self._keep(index, result_of(request, outcome), slot)
        except Busy as busy:
            self._elsewhere.put((index, busy.path))
        except KeyboardInterrupt:
            return  # `results` reports it as left
        except Unwritable as error:
            if not self._tries_again(index, str(error), after=DISK_SECONDS):
                self._give_up(str(error))
        except CompbenchError as error:
            self._keep(index, left(request, str(error))._replace(status="usage"), slot)
        except Exception as error:  # a bug of ours in one run fails that run, not the sweep
            self._keep(index, left(request, _bug(error))._replace(status="failed"), slot)

    def _tries_again(self, index: int, why: str, *, after: float = 0.0) -> bool:
        """Put a lost run at the end of the queue if it may be tried again, to start after `after` seconds at the earliest."""
        if self._tries[index] >= self.how.retries or self.stopping.wait(after):
            return False
        self._tries[index] += 1
        request = self.requests[index]
        named = f"{request.method} {request.task} seed {request.seed}"
        LOG.info("%s is tried again (%d of %d): %s", named, self._tries[index], self.how.retries, why)
        self._waiting.append(index)
        return True

    def _alarm(self) -> None:
        if self.stopping.is_set():
            raise KeyboardInterrupt(self.stopping.why)

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self.stopping.stop(reason.rstrip("."))

    def _placed(self, request: RunRequest, slot: int) -> RunRequest:
        """The request with its slot's GPU (the only one that its processes see) and its share of the cores."""
        own = {"slots": max(self.slots, request.slots), "threads": request.threads or max(1, num_cores() // self.slots)}
        place = {"device": "cuda:0", "card": self._cards[slot % len(self._cards)]} if self._cards else {}
        return request.model_copy(update={**own, **place})


def result_of(request: RunRequest, outcome: Outcome) -> RunResult:
    """The result of a run that has a record."""
    record = outcome.record
    primary = record.primary
    shown = f"{primary.name} {primary.value:.3f}" if primary and primary.value is not None else ""
    named = (request.method, request.task, request.seed)
    return RunResult(*named, record.status, record.reason, record.seconds, outcome.reused, str(outcome.path), shown)


def _bug(error: Exception) -> str:
    traceback.print_exception(error, file=sys.stderr)
    return f"compbench itself failed: {type(error).__name__}: {' '.join(str(error).split())[:500]}"


def is_lost(record: Record) -> bool:
    """Whether a run ended for lack of memory or disk, so that the same code may succeed another time."""
    found = re.search(r"\[Errno (\d+)\]|died of (SIGBUS)", record.reason)
    lost_disk = found is not None and (found[2] is not None or int(found[1]) in LOST_ERRORS)
    return record.status == "oom" or (record.status == "failed" and lost_disk)


def ended(result: RunResult) -> str:
    """The last stage that a listener gets when a run has ended."""
    return "done" if result.status == "ok" else f"done: {result.status}"


def left(request: RunRequest, reason: str) -> RunResult:
    """The result of a run that was not done yet."""
    return RunResult(request.method, request.task, request.seed, "left", reason, 0.0, False, "", "")


DRIVER = Path("/proc/driver/nvidia/version")
"""This file exists if the kernel has NVIDIA's driver, also in containers without NVIDIA's tool."""


def cards_of(device: str, variables: Mapping[str, str] = os.environ) -> list[Card]:
    """The GPUs for slots, found without importing torch; none for a CPU, or if the run itself must report the problem.

    Args:
        device: auto, cpu, cuda or cuda:N; N counts the GPUs that are visible.
        variables: the environment, whose CUDA_VISIBLE_DEVICES names the visible ones by index or UUID.
    """
    if device == "cpu":
        return []
    listed = variables.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and device == "auto" and not (DRIVER.exists() or _num_cards()):
        return []  # CUDA_VISIBLE_DEVICES may be set without any GPU
    given = map(str, range(_num_cards())) if listed is None else map(str.strip, listed.split(","))
    # as in CUDA, entries behind an invalid entry are not visible
    entries = takewhile(lambda entry: entry != "-1" and re.fullmatch(CARD, entry), given)
    cards = [Card(number=number, entry=entry) for number, entry in enumerate(entries)]
    if device.startswith("cuda:"):
        number = device.removeprefix("cuda:")
        return cards[int(number) :][:1] if number.isdecimal() else []
    return cards


def _num_cards() -> int:
    """Number of GPUs that nvidia-smi lists; 0 without the tool, or if it does not answer."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
