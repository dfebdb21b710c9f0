"""CPU seconds of cheap runs: chained against each alone, in a full store against an empty one, and what is there against asking
each run for its record.

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
from store_growth import fill

from compbench.store.records import Store
from compbench.system import profiling

pytestmark = pytest.mark.slow

SEEDS = 4
MANY = 10_000
RECORDS = Path(__file__).parents[2] / "leaderboards" / "records"
CHEAP = ("--method", "naive-ode-oracle", "--task", "gauss2d-fact-id", "--preset", "smoke", "--device", "cpu", "--quiet")
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
    return seconds_of(home, program, "sweep", *CHEAP, "--seed", f"0-{SEEDS - 1}", *words)


def seconds_of(home: Path, program: str, *words: str) -> float:
    """User and system time of a command and of all that it started."""
    command = [sys.executable, "-c", program, *words]
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


def test_a_run_costs_in_a_full_store_what_it_costs_in_an_empty_one(benchmark, tmp_path: Path) -> None:
    fill(tmp_path / "full" / "records", Store(RECORDS).read()[0], MANY)

    def least(name: str) -> float:
        return min(seconds_of(tmp_path / name, OURS, "run", *CHEAP, "--seed", seed) for seed in ("900", "901"))

    empty, full = least("empty"), benchmark.pedantic(least, ("full",), rounds=1)
    benchmark.extra_info |= {"empty": empty, "full": full}
    print(f"\na run in an empty store: {empty:.1f} CPU s; among {MANY} records: {full / empty:.2f} of that")
    assert full < 1.3 * empty


def test_the_peak_of_a_device_is_measured_once_a_process(benchmark) -> None:
    profiling._measured_peak.cache_clear()

    def seconds() -> float:
        begin = time.perf_counter()
        profiling.measured_peak(torch.device("cpu"), torch.float32)
        return time.perf_counter() - begin

    first, second = benchmark.pedantic(seconds, rounds=1), seconds()
    benchmark.extra_info |= {"first": first, "second": second}
    assert second < first / 100
