"""What an executor is: a way to get a sweep's runs done, on this machine or others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from compbench.errors import CompbenchError
from compbench.schemas import RunRequest
from compbench.sweep.pool import Manner, Result, SweepListener


class ExecutorSettings(BaseModel):
    """Base of every executor's settings: frozen, no unknown names; each field has a bound and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class Executor:
    """A way to get runs done.

    Attributes:
        name: as in `--executor NAME`.
        settings: what `--executor-set NAME=VALUE` may set.
        work: (settings, requests, manner, listener) -> one result for each request, in order.  It ends in bounded time when
            the process gets SIGINT or SIGTERM, leaves nothing running then, and says "left" of what is still to be done.
            Each run is done by `sweeps.pool.work_through`, wherever that is called, so claims and records are the same.
    """

    name: str
    settings: type[ExecutorSettings]
    work: Callable[[Any, Sequence[RunRequest], Manner, SweepListener], list[Result]]


def not_installed(name: str, error: ModuleNotFoundError) -> CompbenchError:
    """The error for an executor whose extra is missing."""
    return CompbenchError(
        f"executor '{name}' needs package '{error.name}', which is not installed: pip install 'compbench[{name}]'"
    )
