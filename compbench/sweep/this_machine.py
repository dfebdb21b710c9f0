"""Run requests on this machine: each GPU is a slot, or each slot has a share of the CPU's cores (--slots)."""

from __future__ import annotations

from collections.abc import Sequence

from compbench.api.executor import Executor, ExecutorSettings, RunResult, SweepListener, SweepOptions
from compbench.api.hookspecs import hookimpl
from compbench.api.schemas import RunRequest
from compbench.sweep.pool import work_through


class LocalSettings(ExecutorSettings):
    """This executor has no settings besides --slots."""


def work(settings: LocalSettings, requests: Sequence[RunRequest], how: SweepOptions, listener: SweepListener) -> list[RunResult]:
    """Run the requests in this machine's pool of slots."""
    return work_through(requests, how, listener=listener)


@hookimpl
def compbench_executors() -> tuple[Executor, ...]:
    return (Executor("local", LocalSettings, work),)
