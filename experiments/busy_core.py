"""The cost of waiting threads that sleep or spin for some rounds, on an idle machine and next to two busy processes.

    python experiments/busy_core.py [REPEATS]

The work is training steps of `factored` on `shapes3d-heavy` at `quick`, on constant pictures, in fresh processes with the
environment of a run's children.  Two cores are used (CPUs 0 and 1).  Each repeat times all cases one after the other, so a
machine that slows down favours none.  The table has medians over the repeats of wall and CPU milliseconds per step.  A repeat
takes about four minutes.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from compbench.runner.processes import environment

CORES = {0, 1}
STEPS, WARM_UP = 30, 5
WORK = f"""
import os, time
os.sched_setaffinity(0, {CORES})
import torch
from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.federation import Federation
from compbench.api.interfaces import Problem
from compbench.flow.train import flow_matching_loss, train
from compbench.registry.registry import Registry
from compbench.system.bf16 import arithmetic
from compbench.system import devices

registry = Registry()
task, method = registry.load("tasks", "shapes3d-heavy"), registry.load("methods", "factored")
budget = task.budgets["quick"].model_copy(update={{"train_steps": {WARM_UP + STEPS}}})
generator, device = torch.Generator().manual_seed(0), torch.device("cpu")
rows = budget.batch_size
batch = Batch(torch.randn(rows, *task.event.shape, generator=generator), task.space.uniform(rows, generator))


class Constant:
    name, size = "constant", 1000

    def batch(self, size, generator):
        return batch


problem = Problem(task.space, task.event, Federation([Constant()]), budget, task.holdout)
wall, cpu = [], []


def progress(done, total):
    wall.append(time.perf_counter())
    cpu.append(time.process_time())


precision = devices.precision("auto", device)
ctx = Context(device, precision, generator, NoCheckpoints(), progress=progress)
with arithmetic(device, precision):
    train(method.build(method.settings(), problem), flow_matching_loss, Constant(), budget, ctx)
print((wall[-1] - wall[{WARM_UP - 1}]) / {STEPS}, (cpu[-1] - cpu[{WARM_UP - 1}]) / {STEPS})
"""
WAITS = {
    "1 thread": (1, {}),
    "2 threads, sleep at once": (2, {}),
    "2 threads, spin 1,000 times": (2, {"GOMP_SPINCOUNT": "1000"}),
    "2 threads, spin 10,000 times": (2, {"GOMP_SPINCOUNT": "10000"}),
    "2 threads, spin 100,000 times": (2, {"GOMP_SPINCOUNT": "100000"}),
}


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Run `count` processes that are always busy on the same cores while the block runs."""
    busy = f"import os; os.sched_setaffinity(0, {CORES})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def milliseconds(threads: int, variables: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU milliseconds per step."""
    env = {**environment(threads), **variables}
    done = subprocess.run([sys.executable, "-c", WORK], env=env, capture_output=True, text=True, check=True)
    wall, cpu = map(float, done.stdout.split())
    return 1000 * wall, 1000 * cpu


def main(repeats: int) -> None:
    if not os.sched_getaffinity(0) >= CORES:
        sys.exit("needs CPUs 0 and 1.")
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for count in (0, 2):
            with neighbours(count):
                for name, how in WAITS.items():
                    found.setdefault((name, count), []).append(milliseconds(*how))
    print(f"{'':30} {'idle: wall ms':>14} {'CPU ms':>8} {'next to two: wall ms':>22} {'CPU ms':>8}")
    for name in WAITS:
        medians = [statistics.median(column) for count in (0, 2) for column in zip(*found[name, count], strict=True)]
        print("{:30} {:14.0f} {:8.0f} {:22.0f} {:8.0f}".format(name, *medians))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
