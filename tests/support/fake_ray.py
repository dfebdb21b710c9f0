"""A Ray of one machine, for tests: each task is a process, and a task whose process was killed starts again.

`install(folder, cores)` puts it there as the module `ray`, for processes that have the folder on their path.  It has the calls of
Ray that `compbench.sweep.ray` makes.  As with a real Ray, tasks wait for free cores, a task's process is killed alone and its
children are not, and a lost task is repeated at most `max_retries` times with the same arguments.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CORES = "FAKE_RAY_CORES"


class RayError(Exception):
    """Base of Ray's errors."""


class TaskCancelledError(RayError):
    """The task was cancelled."""


class WorkerCrashedError(RayError):
    """The task's process died, and no retry is left."""


exceptions = SimpleNamespace(RayError=RayError, TaskCancelledError=TaskCancelledError)
TASKS: list[Task] = []


def install(folder: Path, cores: int) -> dict[str, str]:
    """Write the module; returns what must be in the environment to import it."""
    folder.mkdir()
    (folder / "ray.py").symlink_to(__file__)
    return {"PYTHONPATH": str(folder), CORES: str(cores)}


def init(**options: object) -> None: ...


def nodes() -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": {"CPU": float(os.environ[CORES])}}]


def remote(*, num_cpus: int, num_gpus: float, max_retries: int) -> Callable[[Callable[..., object]], SimpleNamespace]:
    def of(function: Callable[..., object]) -> SimpleNamespace:
        return SimpleNamespace(remote=lambda *given: Task(function, given, num_cpus, max_retries))

    return of


class Task:
    """A call in a process; Ray's reference to its result."""

    def __init__(self, function: Callable[..., object], given: tuple[object, ...], cores: int, retries: int) -> None:
        self.cores, self._retries, self._cancelled = cores, retries, False
        self._folder = Path(tempfile.mkdtemp(prefix="fake-ray-"))
        (self._folder / "call").write_bytes(pickle.dumps((function.__module__, function.__qualname__, given)))
        self._process: subprocess.Popen[bytes] | None = None
        TASKS.append(self)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def has_ended(self) -> bool:
        """Whether the task has ended; starts it if cores are free, and again if its process died."""
        if self.is_running():
            return False
        if self._process is None and self._cancelled:
            return True
        if self._process is not None and (self._cancelled or self._process.returncode == 0 or not self._retries):
            return True
        if sum(task.cores for task in TASKS if task.is_running()) + self.cores <= int(os.environ[CORES]):
            self._retries -= self._process is not None
            own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            self._process = subprocess.Popen([sys.executable, __file__, str(self._folder)], stdout=sys.stderr, env=own)
        return False

    def result(self) -> Any:
        if self._cancelled:
            raise TaskCancelledError
        assert self._process is not None
        if self._process.returncode:
            raise WorkerCrashedError(f"the worker died with status {self._process.returncode}")
        return pickle.loads((self._folder / "result").read_bytes())

    def cancel(self) -> None:
        self._cancelled = True
        if self.is_running():
            assert self._process is not None
            self._process.send_signal(signal.SIGINT)


def wait(tasks: Sequence[Task], *, timeout: float) -> tuple[list[Task], list[Task]]:
    """The first task that has ended, if one ends in time, and the others."""
    end = time.monotonic() + timeout
    while not (ended := [task for task in tasks if task.has_ended()][:1]) and time.monotonic() < end:
        time.sleep(0.02)
    return ended, [task for task in tasks if task not in ended]


def get(task: Task) -> Any:
    return task.result()


def cancel(task: Task, *, force: bool) -> None:
    task.cancel()


def shutdown() -> None: ...


if __name__ == "__main__":
    import template  # the folder of this file is on the path

    if place := os.environ.get(template.PLACE):
        template.install(partial(template.Forked, place))
    here = Path(sys.argv[1])
    module, name, arguments = pickle.loads((here / "call").read_bytes())
    (here / "result").write_bytes(pickle.dumps(getattr(import_module(module), name)(*arguments)))
