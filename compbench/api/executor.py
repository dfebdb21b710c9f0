"""What an executor is: a way to do the runs of a sweep, on this machine or on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from compbench.api.schemas import RunRequest
from compbench.system.errors import CompbenchError


class RunResult(NamedTuple):
    """How one run of a sweep ended.

    `status` is the record's status, "usage" if the request itself was wrong, or "left" if the run was not done yet.
    """

    method: str
    task: str
    seed: int
    status: str
    reason: str
    seconds: float
    reused: bool
    path: str
    primary: str


class SweepOptions(NamedTuple):
    """How to do the runs of a sweep.

    Attributes:
        slots: number of runs at the same time on one machine; 0 means one per GPU, or one on a CPU.
        force, resume: as for a single run.
        chain: do the runs of one method one after another in the same two processes, which then start only once; otherwise each
            run has its own processes.  Scores are the same; records of chained runs say so next to their speeds.
        max_failures: the sweep stops once this many runs have failed; 0 means no limit.
        retries: how often a run that failed for lack of memory or disk is tried again, from its checkpoint.
    """

    slots: int = 0
    force: bool = False
    resume: bool = False
    chain: bool = False
    max_failures: int = 0
    retries: int = 0


FAILURES = ("failed", "oom", "timeout", "usage")
"""Statuses of runs that count for `max_failures`."""


def too_many_failures(results: Iterable[RunResult], how: SweepOptions) -> str:
    """The reason why a sweep must stop after these results; "" if it may continue."""
    count = sum(result.status in FAILURES for result in results)
    return f"{count} runs failed (--max-failures {how.max_failures})" if 0 < how.max_failures <= count else ""


SweepListener = Callable[[int, RunRequest, str, int, int], None]
"""(slot, request, stage, done, total); the stage of a run that has ended is "done", or "done: STATUS" if it did not go well."""


class ExecutorSettings(BaseModel):
    """Base of every executor's settings: frozen, no unknown names; each field has a bound and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Executor:
    """A way to do the runs of a sweep.

    Attributes:
        name: the name in `--executor NAME`.
        settings: class of the settings of `--executor-set NAME=VALUE`.
        work: (settings, requests, how, listener) -> one result for each request, in order.  If the process gets SIGINT, SIGTERM
            or SIGHUP, `work` returns in bounded time, leaves no process running, and reports "left" for runs that were not done.
            Every executor does each run by `compbench.sweep.pool.work_through`, so leases and records are the same.
    """

    name: str
    settings: type[ExecutorSettings]
    work: Callable[[Any, Sequence[RunRequest], SweepOptions, SweepListener], list[RunResult]]


def not_installed(name: str, error: ModuleNotFoundError) -> CompbenchError:
    """The error for an executor whose extra is missing."""
    return CompbenchError(
        f"executor '{name}' needs package '{error.name}', which is not installed: pip install 'compbench[{name}]'"
    )
