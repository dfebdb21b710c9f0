"""Runs in progress in a home, for any shell: job arrays from their ledgers and SLURM's queue, other runs from their leases."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from compbench.store.lease import Holder, holders
from compbench.sweep import scheduler
from compbench.sweep.ledger import ArrayFacts, arrays, reported
from compbench.sweep.scheduler import Silent
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


class ArrayView(NamedTuple):
    """A job array.

    Attributes:
        facts: the array as it was submitted.
        folder: folder of its logs and ledgers.
        counts: number of its runs by status; `left` counts runs that no member has reported.
        members: summary of its members by SLURM's state; "" if none is in the queue.
    """

    facts: ArrayFacts
    folder: Path
    counts: dict[str, int]
    members: str


class WorkerView(NamedTuple):
    """A process that is doing runs.

    Attributes:
        holder: its process and host.
        runs: number of its runs in progress.
        here: whether it is on this machine, so that it can be signalled.
    """

    holder: Holder
    runs: int
    here: bool


def array_views(home: Home) -> list[ArrayView]:
    """The arrays that were submitted from a home and have files there, oldest first."""
    found = []
    for folder, facts in arrays(home.root / "slurm"):
        counts: dict[str, int] = defaultdict(int)
        for result in reported(folder, facts.shares).values():
            counts[result.status] += 1
        if left := facts.num_runs - sum(counts.values()):
            counts["left"] = left
        try:
            members = scheduler.summary(scheduler.queued(facts.job).values())
        except Silent as error:
            members = f"unknown ({error})"
        found.append(ArrayView(facts, folder, dict(counts), members))
    return found


def worker_views(home: Home) -> list[WorkerView]:
    """The processes that hold leases, including members of arrays and processes on other machines; dead ones are left out."""
    counts: dict[Holder, int] = defaultdict(int)
    for holder in holders(home.leases):
        counts[holder] += 1
    there = [(holder, runs) for holder, runs in sorted(counts.items()) if not holder.here or holder.is_alive]
    return [WorkerView(holder, runs, holder.here) for holder, runs in there]


def cancel_array(view: ArrayView) -> None:
    """Cancel an array.  Raises CompbenchError if SLURM refuses; the message says what to type."""
    try:
        scheduler.cancel(view.facts.job)
    except Silent as error:
        raise CompbenchError(f"job {view.facts.job} could not be cancelled ({error}); type: scancel {view.facts.job}") from error


def stop_worker(view: WorkerView) -> None:
    """Ask a process on this machine to stop: its runs leave checkpoints.  Raises CompbenchError if it cannot be signalled."""
    if not view.here:
        raise CompbenchError(f"process {view.holder.pid} is on {view.holder.host}; type there: kill {view.holder.pid}")
    if not view.holder.is_alive:
        return
    with contextlib.suppress(ProcessLookupError):
        try:
            os.kill(view.holder.pid, signal.SIGTERM)
        except PermissionError as error:
            raise CompbenchError(f"process {view.holder.pid} is another user's: {error}.") from error
