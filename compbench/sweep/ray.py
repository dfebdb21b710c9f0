"""Run requests as tasks of a Ray cluster, or of a Ray started for the sweep on this machine (extra `ray`)."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pydantic import Field

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
from compbench.runner.signals import Stopping, stopped_by_signals
from compbench.sweep.pool import STOPPED, ended, left, work_through
from compbench.system import devices
from compbench.system.errors import CompbenchError
from compbench.system.files import Json
from compbench.system.home import scratch_folder

CANCEL_SECONDS = 90.0
"""Longest wait for tasks that were asked to stop: longer than the grace period of a child."""
LOG = logging.getLogger("compbench.sweep")


class RaySettings(ExecutorSettings):
    """The cluster, and the resources of each run."""

    address: str = Field(
        "", max_length=200, description="address of the cluster: 'auto' or HOST:PORT; '' starts one on this machine"
    )
    cpus: int = Field(1, ge=1, le=1024, description="cores per run")
    gpus: float = Field(0.0, ge=0, le=64, description="GPUs per run")
    retries: int = Field(2, ge=0, le=100, description="number of retries after a run's node or process was lost")


def work(settings: RaySettings, requests: Sequence[RunRequest], how: SweepOptions, listener: SweepListener) -> list[RunResult]:
    """Start one task per run, or, if chained, as many tasks as the cluster runs at once, each with its share of the runs.

    Raises:
        CompbenchError: Ray is not installed, or the cluster does not exist.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a Ray that we start sends no usage statistics
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if settings.address not in ("", "auto", "local") and token.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # a cluster started by hand requires a token if the file exists
    ray, stopping = _ray(), Stopping()
    try:
        ray.init(**_place(settings.address), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        hint = f" (if the cluster asks for a token, it must be the one in {token})" if settings.address else ""
        raise CompbenchError(f"no Ray cluster at '{settings.address}': {' '.join(str(error).split())[:200]}{hint}") from error
    try:
        with (
            stopped_by_signals(stopping),
            contextlib.redirect_stdout(sys.stderr),  # Ray's own output does not belong to the result
            scratch_folder(Path(requests[0].home)) as begun,
        ):
            return _Tasks(ray, settings, requests, how, listener, begun).see_through(stopping)
    finally:
        ray.shutdown()


def _place(address: str) -> dict[str, object]:
    """The cluster at an address, or a Ray on this machine with the cores that this process may use, where those are not all."""
    if address not in ("", "local"):
        return {"address": address}
    cores = devices.num_cores()
    return {"address": "local"} if cores == os.cpu_count() else {"address": "local", "num_cpus": cores}


class _Tasks:
    """The tasks of a sweep and their results."""

    def __init__(
        self,
        ray: ModuleType,
        settings: RaySettings,
        requests: Sequence[RunRequest],
        how: SweepOptions,
        listener: SweepListener,
        begun: Path,
    ) -> None:
        self._ray, self._requests, self._how, self._listener = ray, requests, how, listener
        self._results: dict[int, RunResult] = {}
        at_once, a_node = _capacity(ray, settings)
        if not at_once:
            asked = f"{settings.cpus} cores and {settings.gpus:g} GPUs"
            raise CompbenchError(f"no node of the Ray cluster has {asked}, which one run needs; see --executor-set.")
        self._at_once = at_once
        own = {"threads": settings.cpus, "slots": min(a_node, len(requests))}
        LOG.info("Ray has %d slots for %d runs, up to %d on one node", at_once, len(requests), own["slots"])
        placed = [request.model_copy(update=own).model_dump(mode="json") for request in requests]
        everything = list(range(len(requests)))
        shares = [everything[start::at_once] for start in range(at_once)] if how.chain else [[index] for index in everything]
        task = ray.remote(num_cpus=settings.cpus, num_gpus=settings.gpus, max_retries=settings.retries)(work_on)
        self._shares = {
            task.remote([placed[index] for index in share], tuple(how), str(begun / str(number))): share
            for number, share in enumerate(shares)
            if share
        }

    def see_through(self, stopping: Stopping) -> list[RunResult]:
        """Wait for all tasks; once `stopping` is set, cancel them and wait until they have ended."""
        waiting, end = list(self._shares), float("inf")
        while waiting and time.monotonic() < end:
            done, waiting = self._ray.wait(waiting, timeout=0.5)
            for reference in done:
                self._take(reference)
            if why := too_many_failures(self._results.values(), self._how):
                stopping.stop(why)
            if stopping.is_set() and end == float("inf"):
                end = time.monotonic() + CANCEL_SECONDS
                for reference in waiting:
                    self._ray.cancel(reference, force=False)
        why = STOPPED if stopping.by_signal else stopping.why
        return [self._results.get(index) or left(request, why) for index, request in enumerate(self._requests)]

    def _take(self, reference: object) -> None:
        share = self._shares[reference]
        slot = list(self._shares).index(reference) % self._at_once
        try:
            found = [RunResult(*row) for row in self._ray.get(reference)]
        except self._ray.exceptions.TaskCancelledError:
            return
        except self._ray.exceptions.RayError as error:
            reason = f"its Ray task was lost: {' '.join(str(error).split())[:300]}"
            found = [left(self._requests[index], reason) for index in share]
        for index, result in zip(share, found, strict=True):
            self._results[index] = result
            if result.status not in ("killed", "left"):
                self._listener(slot, self._requests[index], ended(result), 1, 1)


def work_on(requests: list[dict[str, Json]], how: tuple[int, bool, bool, bool, int, int], begun: str) -> list[tuple[object, ...]]:
    """The work of one slot on some node, as a Ray task with plain types; `how` has the fields of `SweepOptions`.

    Ray starts the task again if its node or process is lost; the task then continues from the checkpoints.  The first start
    leaves the file `begun`, by which later starts know that the task began before.
    """
    asked = [RunRequest.model_validate(request) for request in requests]
    options, again = SweepOptions(*how)._replace(slots=1), Path(begun).exists()
    if again:
        results = work_through(asked, options._replace(resume=True))
        return [tuple(one._replace(reason=one.reason or "started again after its node or process was lost")) for one in results]
    with contextlib.suppress(OSError):
        Path(begun).touch()
    return [tuple(result) for result in work_through(asked, options)]


def _capacity(ray: ModuleType, settings: RaySettings) -> tuple[int, int]:
    """Number of runs that the cluster, and its largest node, can do at the same time."""
    nodes = []
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            by_gpu = resources.get("GPU", 0.0) // settings.gpus if settings.gpus else float("inf")
            nodes.append(int(min(resources.get("CPU", 0.0) // settings.cpus, by_gpu)))
    return sum(nodes), max(nodes, default=0)


def _ray() -> ModuleType:
    try:
        return import_module("ray")
    except ModuleNotFoundError as error:
        raise not_installed("ray", error) from error


@hookimpl
def compbench_executors() -> tuple[Executor, ...]:
    return (Executor("ray", RaySettings, work),)
