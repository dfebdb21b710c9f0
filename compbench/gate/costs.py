"""`compbench profile`: measure a method's cost on a task with the gate's probe in fresh processes, alone on the machine.

A first process only fills caches; then come the timed repetitions.  A lock for the whole machine prevents two measurements at the
same time.  The number of cores that other processes use meanwhile is measured and stored too, and boards mark such profiles.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import compbench
from compbench.api.schemas import RunRequest, RunSpec
from compbench.gate import sides
from compbench.gate.sides import CellOptions, Side
from compbench.gate.suite import Cell
from compbench.registry.checkout import origin_of
from compbench.registry.registry import Registry
from compbench.store.profiles import CostProfile, Measure, Requests
from compbench.system.devices import cpu_name, num_cores
from compbench.system.errors import CompbenchError
from compbench.system.files import lock

MACHINE = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
"""Folder that all users of a machine share, whatever their TMPDIR is."""
LOCK = "compbench-profile.lock"


@contextlib.contextmanager
def alone(folder: Path = MACHINE) -> Iterator[None]:
    """Hold the machine's lock for measurements; the kernel releases it when the process ends, however it ends.

    Raises:
        CompbenchError: another process of this machine is measuring.
    """
    path = folder / LOCK
    try:
        held = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except PermissionError:  # the file is another user's, in a folder where only the owner may use O_CREAT
        held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock(held, wait=False)
    except OSError as error:
        os.close(held)
        raise CompbenchError("another `compbench profile` is measuring on this machine; wait until it is done.") from error
    try:
        yield
    finally:
        os.close(held)


def measure(
    side: Side,
    cell: Cell,
    options: CellOptions,
    *,
    repetitions: int,
    known: Iterable[CostProfile] = (),
    listener: Callable[[str], None] = lambda line: None,
) -> CostProfile:
    """Measure one cell, or return a known measurement of the same code with the same settings on the same hardware.

    Args:
        side: interpreter and home.
        cell: method, task, preset, settings.
        options: device, data, precision, threads, and how long each process times training and then sampling.
        repetitions: number of processes that count, at least `store.profiles.FEWEST`.
        known: known profiles; one of them is returned if nothing that it depends on has changed.
        listener: receives a line before each part.

    Raises:
        Unable: a process failed; the message has the reason.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    listener(f"{cell.name}: warm-up")
    first = sides.described(side, cell, options)
    spec, commit = _spec(cell, first, side)
    facts = {
        "spec": spec,
        "request_rows": first["rows"],
        "cores": num_cores(),
        "threads": first["threads"],
        "cpu": cpu_name(),
        "torch": first["torch"],
        "compbench": compbench.__version__,
    }
    for profile in known:
        if profile.alone and all(getattr(profile, name) == value for name, value in facts.items()):
            listener(f"{cell.name}: measured already")
            return profile
    listener(f"{cell.name}: {repetitions} repetitions")
    found = sides.costs(side, cell, options, repetitions, on_gpu=spec.device_class != "cpu")
    seconds = {name: [each["seconds"].get(name) for each in found] for name in ("train", "single", "batch")}
    others = [each["other_cores"] for each in found]
    return CostProfile(
        **facts,
        train_step_seconds=None if None in seconds["train"] else Measure.of(seconds["train"]),
        request=Requests.of(seconds["batch"]),
        single=Requests.of(seconds["single"]),
        peak_memory_bytes=Measure.of(each["peak_memory_bytes"] for each in found),
        other_cores=None if None in others else Measure.of(others),
        commit=commit,
        started=started,
    )


def _spec(cell: Cell, first: sides.Answer, side: Side) -> tuple[RunSpec, str]:
    """The spec of the runs whose cost is measured, with seed 0 and without metrics; and the commit of our code."""
    request = RunRequest(task=cell.task, method=cell.method, plugins=tuple(map(str, side.plugins)), home=str(side.home))
    digest, code = origin_of(request, Registry(side.plugins), first["metrics"], first["spec"]["device_class"])
    spec = RunSpec(task=cell.task, method=cell.method, preset=cell.preset, code=digest, seed=0, **first["spec"])
    return spec, code.compbench.commit
