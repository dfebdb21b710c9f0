"""A bf16 training step on two threads beside two processes that never sleep, with torch's weight gradients and with ours.

Ratios of CPU time in one run, in which the ways take turns, on two cores and in the environment of a run's children; run with
-m slow.  Only an idle machine gives the idle figures: on a busy one torch's own are too high.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from unittest import mock

import pytest

from compbench.runner.processes import environment
from compbench.system import devices

pytestmark = pytest.mark.slow
CORES, ROUNDS, ROUNDS_BESIDE = 2, 15, 4


def test_two_threads_cost_what_they_cost_alone_beside_two_busy_processes(benchmark) -> None:
    import torch

    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES or not (devices.has_fast_bf16(torch.device("cpu")) and devices.has_x86_bf16()):
        pytest.skip("needs two cores with bf16 products of x86")
    found = benchmark.pedantic(figures, (cores,), rounds=1)
    benchmark.extra_info.update(found)
    for kind, ratios in found.items():
        assert ratios["ours: beside, of alone"] < 1.5, kind
        assert ratios["alone: ours, of torch's"] < 1.1, kind
        assert ratios["beside: torch's, of ours"] > 1, kind


def figures(cores: list[int]) -> dict[str, dict[str, float]]:
    """The ratios of `measured`, from a process of two threads."""
    env = {**environment(CORES), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__, *map(str, cores)], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measured() -> dict[str, float]:
    """The process's part."""
    import torch

    from compbench.flow.blocks import Modulation
    from compbench.flow.nets import UNet
    from compbench.metrics.judge import Judge, JudgeSettings
    from compbench.system.bf16 import arithmetic

    arithmetic(torch.device("cpu"), "bf16")
    images = torch.randn(32, 3, 64, 64).to(memory_format=torch.channels_last)
    judge = Judge((10, 10, 10, 8, 4, 15), JudgeSettings(), channels=3, side=64)
    net = UNet((3, 64, 64), width=32, patch=4)
    still = Modulation(torch.zeros(32, net.mid_channels), torch.zeros(32, net.mid_channels))
    kinds = {
        "a network of shapes3d": (net, lambda: [net.decode(net.encode(images, torch.zeros(32)), still)]),
        "a judge": (judge, lambda: judge.logits(images)),
    }
    return {name: _ratios(_step(*kind)) for name, kind in kinds.items()}


def _step(net, forward) -> Callable[[], None]:
    import torch

    net.to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), fused=True)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            made = forward()
        sum(part.float().square().mean() for part in made).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def _ratios(step: Callable[[], None]) -> dict[str, float]:
    """Of CPU seconds, and of seconds as `wall`: the smallest alone, which others can only raise, and medians beside others."""
    import torch

    from compbench.system import weight_gradients

    ways = {"torch's": (partial(mock.patch.object, weight_gradients, "is_shared", lambda *given: False), 2)}
    ways |= {"ours": (contextlib.nullcontext, 2), "one thread": (contextlib.nullcontext, 1)}
    cpu: dict[tuple[str, str], list[float]] = {}
    wall: dict[tuple[str, str], list[float]] = {}
    step()
    for place, busy, rounds in (("alone", 0, ROUNDS), ("beside", CORES, ROUNDS_BESIDE)):
        with _busy(busy):
            for name, (way, threads) in [*ways.items()] * rounds:
                torch.set_num_threads(threads)
                with way():
                    start = time.process_time(), time.perf_counter()
                    step()
                    cpu.setdefault((place, name), []).append(time.process_time() - start[0])
                    wall.setdefault((place, name), []).append(time.perf_counter() - start[1])
    alone, beside = (
        {name: typical(cpu[place, name]) for name in ways} for place, typical in (("alone", min), ("beside", median))
    )
    return {
        "ours: beside, of alone": beside["ours"] / alone["ours"],
        "torch's: beside, of alone": beside["torch's"] / alone["torch's"],
        "beside: torch's, of ours": beside["torch's"] / beside["ours"],
        "alone: ours, of torch's": alone["ours"] / alone["torch's"],
        "alone: ours, of one thread": alone["ours"] / alone["one thread"],
        "wall, alone: ours, of torch's": min(wall["alone", "ours"]) / min(wall["alone", "torch's"]),
        "wall, alone: ours, of one thread": min(wall["alone", "ours"]) / min(wall["alone", "one thread"]),
        "wall, beside: torch's, of ours": median(wall["beside", "torch's"]) / median(wall["beside", "ours"]),
    }


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that never sleep, on the cores of this one."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    os.sched_setaffinity(0, set(map(int, sys.argv[1:])))
    print(json.dumps(measured()))
