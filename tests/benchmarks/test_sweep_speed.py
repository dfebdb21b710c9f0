"""CPU seconds of cheap runs in a sweep: chained against each alone, and what is there against asking each run for its record.

Ratios within one run, all processes counted; run with -m slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from compbench.system import profiling

pytestmark = pytest.mark.slow

SEEDS = 4
CHEAP = ("sweep", "--method", "naive-ode-oracle", "--task", "gauss2d-fact-id", "--preset", "smoke", "--device", "cpu", "--quiet")
OURS = "from compbench.cli.main import main; main()"
ASKING_EACH = f"""
from compbench.cli import sweep
from compbench.system.errors import CompbenchError

def known(*given, **named):
    raise CompbenchError("each run is asked for its own record, as before")

sweep.known = known
{OURS}
"""


def cpu_seconds(home: Path, *words: str, program: str = OURS) -> float:
    """User and system time of a sweep of some seeds and of all that it started."""
    command = [sys.executable, "-c", program, *CHEAP, "--seed", f"0-{SEEDS - 1}", *words]
    before = os.times()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "COMPBENCH_HOME": str(home)})
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_chained_runs_cost_a_fraction_and_a_sweep_that_is_there_costs_no_run(benchmark, tmp_path: Path) -> None:
    chained = benchmark.pedantic(cpu_seconds, (tmp_path / "chained", "--chain"), rounds=1)
    alone = cpu_seconds(tmp_path / "alone")
    again, asked = (cpu_seconds(tmp_path / "alone", program=program) for program in (OURS, ASKING_EACH))
    found = {"chained, of alone": chained / alone, "there, of asking each": again / asked, "there, of running": again / alone}
    benchmark.extra_info |= {**found, "chained": chained, "alone": alone, "again": again, "asking each": asked}
    print({name: round(value, 2) for name, value in benchmark.extra_info.items()})
    assert found["chained, of alone"] < 0.6
    assert found["there, of asking each"] < 0.6


def test_the_peak_of_a_device_is_measured_once_a_process(benchmark) -> None:
    profiling._measured_peak.cache_clear()

    def seconds() -> float:
        begin = time.perf_counter()
        profiling.measured_peak(torch.device("cpu"), torch.float32)
        return time.perf_counter() - begin

    first, second = benchmark.pedantic(seconds, rounds=1), seconds()
    benchmark.extra_info |= {"first": first, "second": second}
    assert second < first / 100
