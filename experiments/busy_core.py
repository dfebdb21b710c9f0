"""What waiting threads cost where another process takes a core: spinning or sleeping, with one thread or two.

    python experiments/busy_core.py [REPEATS]

Training steps of a small convolutional network, in fresh processes with the environment of a run's children, on two cores
(CPUs 0 and 1) of which none or one is kept busy.  Every repeat times all cases one after the other, so that a machine that
slows down favours none; printed are medians, and the ratio to one thread in the same repeat.  About 25 s a repeat.

Measured (5 repeats, two cores with a load of 5 to 8 by others): two spinning threads made 0.10 of the steps of one thread
(0.07 to 0.38), two sleeping ones 0.62 (0.56 to 0.98) and, with one core taken for good, 4.1 (3.4 to 5.7) against 0.11 (0.07 to
0.18).  So sleeping threads need no advice to use one thread only, and children side by side share the cores by their number.
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
WORK = """
import time, torch
from torch import nn
maps = [nn.Conv2d(i, o, 3, padding=1) for i, o in ((3, 32), (32, 32), (32, 3))]
net = nn.Sequential(maps[0], nn.SiLU(), maps[1], nn.SiLU(), maps[2])
optimiser = torch.optim.Adam(net.parameters())
x = torch.randn(32, 3, 32, 32)
def step():
    optimiser.zero_grad()
    (net(x) - x).square().mean().backward()
    optimiser.step()
for _ in range(3):
    step()
start, done = time.perf_counter(), 0
while time.perf_counter() - start < 2.0:
    step()
    done += 1
print(done / (time.perf_counter() - start))
"""
CASES = [(threads, policy, busy) for busy in (False, True) for threads, policy in ((1, "PASSIVE"), (2, "ACTIVE"), (2, "PASSIVE"))]


@contextmanager
def taken(core: int | None) -> Iterator[None]:
    """A core that another process never leaves."""
    if core is None:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def steps_per_second(threads: int, policy: str, busy: bool) -> float:
    env = {**environment(threads), "OMP_WAIT_POLICY": policy}
    pin = "import os; os.sched_setaffinity(0, {0, 1})\n"
    with taken(1 if busy else None):
        done = subprocess.run([sys.executable, "-c", pin + WORK], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(repeats: int) -> None:
    if not os.sched_getaffinity(0) >= CORES:
        sys.exit("needs CPUs 0 and 1.")
    found = [[steps_per_second(*case) for case in CASES] for _ in range(repeats)]
    print("threads  policy   cores taken  steps/s  ratio to one thread (smallest, median, largest)")
    for index, (threads, policy, busy) in enumerate(CASES):
        one = CASES.index((1, "PASSIVE", busy))
        ratios = sorted(row[index] / row[one] for row in found)
        rate = statistics.median(row[index] for row in found)
        print(f"{threads:7}  {policy:8} {busy:10}  {rate:7.1f}  {ratios[0]:.2f} {statistics.median(ratios):.2f} {ratios[-1]:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
