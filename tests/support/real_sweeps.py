"""Sweeps in processes of their own, for tests that kill, stop and double them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from support.template import TEMPLATE

CHEAP = ("--method", "naive-ode-oracle", "--task", "gauss2d-fact-id", "--preset", "smoke", "--device", "cpu", "--chain")
"""Runs of a fraction of a second each, after the start of their processes."""

SLOW_FIT = (
    "ctx.checkpoints.save({}, {})\n"
    "    while not ctx.cancelled() and not os.path.exists(os.environ['COMPBENCH_HOME'] + '/quick'): time.sleep(0.05)"
)
"""A fit that leaves a checkpoint when it begins and lasts until it is stopped, or until there is a file `quick`."""


def begun(home: Path) -> int:
    """Runs whose slow fit began: their checkpoints are published."""
    return len(list(home.glob("runs/*/checkpoint.safetensors")))


def start(
    home: Path, *words: str, environment: Mapping[str, str] = MappingProxyType({}), before: Callable[[], None] | None = None
) -> subprocess.Popen:
    """`compbench sweep` in a process of its own; `before` is called in it first."""
    own = [sys.executable, "-m", "compbench.cli.main"] if TEMPLATE.fresh or environment else TEMPLATE.compbench()
    command = [*own, "sweep", "--quiet", *words]
    env = {**os.environ, **environment, "COMPBENCH_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, preexec_fn=before, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, *, seconds: float = 240.0) -> bool:
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(found)


def workers_of(home: Path) -> list[int]:
    """Processes that were started for runs under `home`, by environment or working folder; zombies have neither."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            started = f"COMPBENCH_HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if started or os.readlink(folder / "cwd") == str(home):
                found.append(int(folder.name))
        except OSError:
            continue
    return found
