"""A pool of runs on one machine: one slot a GPU, or a share of the CPU's cores each."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.children import Crew
from compbench.devices import num_cores
from compbench.errors import CompbenchError
from compbench.home import Home
from compbench.runner import crew_of, run
from compbench.schemas import RunRequest


class Result(NamedTuple):
    """How one run of a sweep ended.  `status` is the record's, or "usage" where there is none."""

    method: str
    task: str
    seed: int
    status: str
    reason: str
    seconds: float
    reused: bool
    path: str
    primary: str


SweepListener = Callable[[int, RunRequest, str, int, int], None]
"""(slot, request, stage, done, total)."""


def work_through(
    requests: Sequence[RunRequest],
    *,
    slots: int,
    force: bool,
    resume: bool,
    chain: bool = False,
    listener: SweepListener = lambda slot, request, stage, done, total: None,
) -> list[Result]:
    """Run all requests, `slots` at a time; finished ones are returned at once.

    Ctrl-C stops the runs that are under way (each leaves a `killed` record and a checkpoint) and starts no other.

    Args:
        requests: what to run; the order is kept.
        slots: runs side by side; 0 is one a GPU, or one on a CPU.
        force, resume: as for a single run.
        chain: runs of one method follow each other in the same two processes, so that start-up is paid once; otherwise each
            run has processes of its own.  Scores are the same; records of chained runs say so beside their speeds.
        listener: hears of progress.

    Returns:
        one result for each request, in order.
    """
    devices = _devices(requests[0].device if requests else "cpu")
    count = slots or len(devices) or 1
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    order = sorted(range(len(requests)), key=lambda index: requests[index].method) if chain else range(len(requests))
    for index in order:
        waiting.put(index)
    results: dict[int, Result] = {}
    stopping = threading.Event()

    def work(slot: int) -> None:
        with crew_of(Home(Path(requests[0].home))) if chain else contextlib.nullcontext() as crew:
            work_with(slot, crew)

    def work_with(slot: int, crew: Crew | None) -> None:
        while not stopping.is_set():
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            request = _placed(requests[index], devices[slot % len(devices)] if devices else "", count)
            results[index] = _one(request, slot, force, resume, crew, listener, stopping)

    workers = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in range(count)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(timeout=0.5)
    except KeyboardInterrupt:
        stopping.set()
        for worker in workers:
            worker.join(timeout=60)
    return [results.get(index) or _never(requests[index]) for index in range(len(requests))]


def _one(
    request: RunRequest,
    slot: int,
    force: bool,
    resume: bool,
    crew: Crew | None,
    listener: SweepListener,
    stopping: threading.Event,
) -> Result:
    def hear(stage: str, done: int, total: int) -> None:
        listener(slot, request, stage, done, total)
        if stopping.is_set():
            raise KeyboardInterrupt

    try:
        outcome = run(request, force=force, resume=resume, crew=crew, listener=hear)
    except (CompbenchError, KeyboardInterrupt) as error:
        listener(slot, request, "done", 1, 1)
        return Result(request.method, request.task, request.seed, "usage", str(error) or "stopped", 0.0, False, "", "")
    listener(slot, request, "done", 1, 1)
    record = outcome.record
    primary = next((score for score in record.scores if score.primary), None)
    shown = f"{primary.name} {primary.value:.3f}" if primary and primary.value is not None else ""
    return Result(
        request.method,
        request.task,
        request.seed,
        record.status,
        record.reason,
        record.seconds,
        outcome.reused,
        str(outcome.path),
        shown,
    )


def _never(request: RunRequest) -> Result:
    return Result(request.method, request.task, request.seed, "killed", "stopped before it began", 0.0, False, "", "")


def _placed(request: RunRequest, device: str, slots: int) -> RunRequest:
    """The request on its slot's device, with its share of the cores."""
    own = {"slots": slots, "threads": max(1, num_cores() // slots)}
    return request.model_copy(update={**own, "device": device} if device else own)


def _devices(asked: str) -> list[str]:
    """The GPUs that slots are spread over, counted without importing torch; none for a CPU."""
    if asked == "cpu" or asked.startswith("cuda:"):
        return [] if asked == "cpu" else [asked]
    import os
    import shutil
    import subprocess

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = len([entry for entry in visible.split(",") if entry.strip() not in ("", "-1")])
    elif shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
        count = listed.stdout.count("GPU ")
    else:
        count = 0
    return [f"cuda:{index}" for index in range(count)]
