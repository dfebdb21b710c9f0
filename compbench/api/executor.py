"""What an executor is: a way to get a sweep's runs done, on this machine or others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from compbench.api.schemas import RunRequest
from compbench.system.errors import CompbenchError


class RunResult(NamedTuple):
    """How one run of a sweep ended.

    `status` is the record's; "usage" where the request itself was wrong, "left" where the run is still to be done.
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
    """How runs are to be done.

    Attributes:
        slots: runs side by side on one machine; 0 is one a GPU, or one on a CPU.
        force, resume: as for a single run.
        chain: runs of one method follow each other in the same two processes, so that start-up is paid once; otherwise each
            run has processes of its own.  Scores are the same; records of chained runs say so beside their speeds.
        max_failures: the sweep stops once this many runs have failed; 0 means no limit.
        retries: how often a run is tried again, from its checkpoint, that ended for want of memory or of a disk.
    """

    slots: int = 0
    force: bool = False
    resume: bool = False
    chain: bool = False
    max_failures: int = 0
    retries: int = 0


FAILURES = ("failed", "oom", "timeout", "usage")
"""States of runs that count for `max_failures`."""


def too_many_failures(results: Iterable[RunResult], how: SweepOptions) -> str:
    """Why a sweep has to stop after these results; "" if it may go on."""
    count = sum(result.status in FAILURES for result in results)
    return f"{count} runs failed (--max-failures {how.max_failures})" if 0 < how.max_failures <= count else ""


SweepListener = Callable[[int, RunRequest, str, int, int], None]
"""(slot, request, stage, done, total); the stage of a run that has ended is "done", or "done: STATUS" if it did not go well."""


class ExecutorSettings(BaseModel):
    """Base of every executor's settings: frozen, no unknown names; each field has a bound and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Executor:
    """A way to get runs done.

    Attributes:
        name: as in `--executor NAME`.
        settings: what `--executor-set NAME=VALUE` may set.
        work: (settings, requests, how, listener) -> one result for each request, in order.  It ends in bounded time when
            the process gets SIGINT, SIGTERM or SIGHUP, leaves nothing running then, and says "left" of what is still to be done.
            Each run is done by `compbench.sweep.pool.work_through`, wherever that is called, so leases and records are the same.
    """

    name: str
    settings: type[ExecutorSettings]
    work: Callable[[Any, Sequence[RunRequest], SweepOptions, SweepListener], list[RunResult]]


def not_installed(name: str, error: ModuleNotFoundError) -> CompbenchError:
    """The error for an executor whose extra is missing."""
    return CompbenchError(
        f"executor '{name}' needs package '{error.name}', which is not installed: pip install 'compbench[{name}]'"
    )
