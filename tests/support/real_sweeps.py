"""Sweeps in processes of their own, for tests that kill, stop and double them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import pytest
from support.template import TEMPLATE

from compbench.store.records import Store
from compbench.system.files import load_tensors

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
CHEAP = ("--method", "naive-ode-oracle", "--task", "gauss2d-fact-id", "--preset", "smoke", "--device", "cpu", "--chain")
"""Runs of a fraction of a second each, after the start of their processes."""

SLOW_FIT = (
    "ctx.checkpoints.save({}, {})\n"
    "    while not ctx.cancelled() and not os.path.exists(os.environ['COMPBENCH_HOME'] + '/quick'): time.sleep(0.05)"
)
"""A fit that leaves a checkpoint when it begins and lasts until it is stopped, or until there is a file `quick`."""

BEFORE, AFTER = 3, 4
"""Optimiser steps of `STEPPED_FIT` before it waits, and after."""
STEPPED_FIT = f"""kept = ctx.checkpoints.load()
    weight = torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.SGD([weight], 0.1)
    for step in range(kept[1]['done'] if kept else 0, {BEFORE + AFTER}):
        while step == {BEFORE} and not os.path.exists(os.environ['COMPBENCH_HOME'] + '/quick'):
            time.sleep(0.05)
        weight.grad = torch.ones(1)
        optimiser.step()
        ctx.progress(step + 1, {BEFORE + AFTER})
        ctx.checkpoints.save({{}}, {{'done': step + 1}})"""
"""A fit that saves a checkpoint after each optimiser step and, after some, waits for a file `quick`."""


def steps_done(home: Path) -> int:
    """Steps in the published checkpoint of the one run under `home`, whose fit is `STEPPED_FIT`; 0 without a checkpoint."""
    found = list(home.glob("runs/*/checkpoint.safetensors"))
    return int(load_tensors(found[0])[1]["done"]) if found else 0


def assert_resumes_after_its_worker_was_killed(home: Path, plugin: Path, environment: Mapping[str, str]) -> None:
    """A run on Ray whose worker is killed in mid-fit is done once, says so, and repeats no step.

    Args:
        home: the store.
        plugin: file of a method `naughty` whose fit is `STEPPED_FIT`.
        environment: variables that the sweep needs to find its Ray.
    """
    words = ("--plugin", str(plugin), "--method", "naughty", *CHEAP[2:-1], "--seed", "0", "--json")
    going = start(home, "--executor", "ray", *words, environment={**environment, "OMP_NUM_THREADS": "1"})
    assert wait_for(lambda: steps_done(home) == BEFORE), going.communicate(timeout=60)
    (lease,) = home.glob("leases/*.lease")
    holder = dict(line.split("=", 1) for line in lease.read_text().splitlines() if "=" in line)["pid"]
    os.kill(int(holder), signal.SIGKILL)
    (home / "quick").touch()
    output, error = going.communicate(timeout=300)
    (result,) = json.loads(output)
    assert (going.returncode, result["status"]) == (0, "ok"), error
    assert result["reason"] == "started again after its node or process was lost"
    (record,) = Store(home / "records").read()[0]
    assert record.resumed
    notes = record.notes
    assert (notes["counted earlier_steps"], notes["counted optimiser_steps"]) == (BEFORE, AFTER)


def begun(home: Path) -> int:
    """Runs whose slow fit began: their checkpoints are published."""
    return len(list(home.glob("runs/*/checkpoint.safetensors")))


def start(
    home: Path,
    *words: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    before: Callable[[], None] | None = None,
    quiet: bool = True,
) -> subprocess.Popen:
    """`compbench sweep` in a process of its own; `before` is called in it first."""
    own = [sys.executable, "-m", "compbench.cli.main"] if TEMPLATE.fresh or environment else TEMPLATE.compbench()
    command = [*own, "sweep", *(["--quiet"] if quiet else []), *words]
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
