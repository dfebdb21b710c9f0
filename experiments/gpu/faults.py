"""Reproduce the open faults on a GPU one at a time, and print what is needed to find the cause.

    python experiments/gpu/faults.py cnn-decoder|scaffold|fedprox|coind|stop [--device cuda] [--small]

    cnn-decoder   a compiled fit on bumps: do its gradients have the memory layout that the compiler expects?
    scaffold      coloured MNIST in ten silos: if a silo's data outlives its function, print what still refers to the data
    fedprox       the same with the proximal term: seconds of each silo's part of a round, and of the first step of the part
    coind         plans: milliseconds per step of the fit, and per request, without the simulator
    stop          stop a run in its first compilation, and another one between its steps: seconds until each has ended

Methods are fitted in this process (no sandbox, no record), except for `stop`.  If a fault occurs, the script ends with a
traceback or with exit status 1.  Counters of torch's compiler are printed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from throughput import REGISTRY, Row, context, problem_of

from compbench.api.federation import LentSilo
from compbench.api.interfaces import Request
from compbench.flow import train as training
from compbench.system import devices
from compbench.system.bf16 import arithmetic
from compbench.system.errors import Refused

STEPS = {
    "cnn-decoder": ("cnn-decoder", "bump-center", 1500, {}),
    "scaffold": ("scaffold", "cmnist-noniid", 200, {"rounds": 4}),
    "fedprox": ("fedprox", "cmnist-noniid", 200, {"rounds": 4}),
    "coind": ("coind", "planning-noniid", 1000, {}),
}
"""Method, task, steps per silo, and settings of each fault.  Networks are those of `standard`."""

SMALL_STEPS = 8
STOP_AFTER = {False: (25.0, 70.0), True: (10.0, 25.0)}
"""Seconds after which `stop` asks a run to stop: in the first compilation, and between steps; True is for small sizes."""
STOP_LIMIT = 10.0
"""Largest number of seconds that a run may take to save and end."""


def fit(name: str, device: torch.device, *, small: bool) -> None:
    """Fit a method for some steps, compiled on a GPU, and draw a few samples; print the duration of each part."""
    method_name, task, steps, settings = STEPS[name]
    row = Row(name, "train", method_name, task, rows=16)
    with tempfile.TemporaryDirectory() as folder, arithmetic(device, "bf16"):
        size = {"preset": "smoke", "steps": SMALL_STEPS} if small else {"preset": "standard", "steps": steps}
        problem = problem_of(row, device, Path(folder), **size)
        method, ctx = REGISTRY.load("methods", method_name), context(row, device)
        own, marks = method.settings(**settings), Marks(device)
        ctx.progress = marks.step
        with marks.of_loops(), who_keeps():
            model = method.fit(own, problem, ctx)
        print(json.dumps({"fault": name, "compiled": ctx.notes.get("compiled"), **marks.facts()}), flush=True)
        condition = torch.zeros(row.rows, len(problem.space), dtype=torch.long, device=device)
        request = Request(condition, torch.randn(row.rows, *problem.event.shape).to(device))
        begin = time.perf_counter()
        method.sample(own, model, request, context(row, device)).sum().item()
        print(json.dumps({"request_seconds": round(time.perf_counter() - begin, 2)}))
    if device.type == "cuda":
        from torch._dynamo.utils import counters

        print(json.dumps({part: dict(found) for part, found in counters.items()}, default=str))


class Marks:
    """Times of steps and of the starts of training loops; nothing waits for the device before the end of a loop."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._begin = device, time.perf_counter()
        self.steps, self.loops, self.first_steps = 0, list[float](), list[float]()
        self._open = False

    def step(self, done: int, total: int) -> None:
        self.steps = done
        if self._open:
            self._open = False
            self._wait()
            self.first_steps.append(round(time.perf_counter() - self._loop, 2))

    @contextlib.contextmanager
    def of_loops(self) -> Iterator[None]:
        """Mark the beginning and the end of each training loop."""
        plain = training.train

        def marked(*given: Any, **named: Any) -> Any:
            self._loop, self._open = time.perf_counter(), True
            try:
                return plain(*given, **named)
            finally:
                self._wait()
                self.loops.append(round(time.perf_counter() - self._loop, 2))

        modules = [module for module in list(sys.modules.values()) if getattr(module, "train", None) is plain]
        with contextlib.ExitStack() as stack:
            for module in modules:
                stack.enter_context(mock.patch.object(module, "train", marked))
            yield

    def facts(self) -> dict[str, Any]:
        self._wait()
        took = time.perf_counter() - self._begin
        return {"seconds": round(took, 1), "steps": self.steps, "loops": self.loops, "first_steps": self.first_steps}

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@contextlib.contextmanager
def who_keeps() -> Iterator[None]:
    """If a silo finds its data still referenced, print what refers to it: tensors and their referrers, frames with lines."""
    plain = LentSilo.close

    def close(silo: LentSilo, state: Any) -> None:
        lent = list(silo._lent)
        try:
            plain(silo, state)
        except Refused:
            for line in keepers(lent):
                print(line, flush=True)
            raise

    with mock.patch.object(LentSilo, "close", close):
        yield


def keepers(lent: list[Any], depth: int = 4) -> list[str]:
    """Describe what refers to the tensors whose storages are among some weakly referenced storages.

    Args:
        lent: `StorageWeakRef`s.
        depth: how many levels of referrers to follow.
    """
    alive = {reference.cdata for reference in lent if not reference.expired()}
    tensors = [found for found in gc.get_objects() if isinstance(found, torch.Tensor) and _storage(found) in alive]
    lines, seen = [f"{len(alive)} storages are alive, and {len(tensors)} tensors of them are known to Python"], {id(tensors)}
    level: list[Any] = list(tensors)
    for step in range(depth):
        seen |= {id(one) for one in level} | {id(level)}
        known = [one for one in gc.get_referrers(*level) if id(one) not in seen] if level else []
        own = [one for one in known if not (hasattr(one, "f_code") and one.f_code.co_filename == __file__)]
        lines += ["  " * (step + 1) + _said(one) for one in own[:12]]
        level = own[:12]
    return lines


def _storage(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def _said(one: Any) -> str:
    if hasattr(one, "f_code"):
        return f"frame of {one.f_code.co_qualname} at {one.f_code.co_filename}:{one.f_lineno}"
    if hasattr(one, "tb_frame"):
        return f"traceback at {one.tb_frame.f_code.co_filename}:{one.tb_lineno}"
    text = f"shape {tuple(one.shape)}" if isinstance(one, torch.Tensor) else str(one)[:150]
    return f"{type(one).__module__}.{type(one).__name__}: {text}"


def stop(device: torch.device, *, small: bool) -> bool:
    """Whether runs end soon after they are asked to stop, in the first compilation and between steps."""
    words = ["run", "--method", "factored", "--task", "shapes3d-heavy", "--device", device.type, "--quiet", "--json", "--force"]
    words += ["--preset", "smoke", "--set", "budget.train_steps=100000"] if small else ["--preset", "paper"]
    ends = []
    for after in STOP_AFTER[small]:
        with tempfile.TemporaryDirectory() as home:
            command = [sys.executable, "-m", "compbench.cli.main", *words]
            run = subprocess.Popen(command, env={**os.environ, "COMPBENCH_HOME": home}, stdout=subprocess.PIPE, text=True)
            time.sleep(after)
            run.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            output, _ = run.communicate(timeout=120)
            ends.append(time.monotonic() - begin)
            saved = [path.stat().st_size for path in Path(home).glob("runs/*/checkpoint*")]
        status = json.loads(output)["status"] if output else "no record"
        print(
            json.dumps({"asked_after": after, "ended_after": round(ends[-1], 1), "status": status, "checkpoints": saved}),
            flush=True,
        )
    return max(ends) <= STOP_LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", choices=[*STEPS, "stop"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="tiny sizes, which only show that the script runs")
    asked = parser.parse_args()
    device = devices.resolve(asked.device)
    if asked.fault == "stop":
        sys.exit(0 if stop(device, small=asked.small) else 1)
    devices.set_up(device, "bf16")
    fit(asked.fault, device, small=asked.small)


if __name__ == "__main__":
    main()
