"""CPU time of the command line, against that of importing the libraries it stands on.

Run with: pytest -m slow tests/benchmarks
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def cpu_seconds(*words: str) -> float:
    """User and system time of a child, the least of five."""
    best = float("inf")
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = os.times()
        best = min(best, after.children_user + after.children_system - before.children_user - before.children_system)
    return best


@pytest.mark.parametrize(("verb", "most"), [("--help", 2.0), ("list", 2.5)])
def test_a_light_verb_is_light(benchmark, verb: str, most: float) -> None:
    seconds = benchmark.pedantic(cpu_seconds, args=("-m", "compbench.cli.main", verb), rounds=1)
    libraries = cpu_seconds("-c", "import click, rich.console, rich.table")
    benchmark.extra_info |= {"cpu_seconds": seconds, "ratio_to_its_libraries": seconds / libraries}
    assert seconds < most * libraries


def cpu_seconds_to_first_line(*words: str) -> float:
    """User and system time of a command until its first line on standard error, the least of three; then it is stopped."""
    best = float("inf")
    for _ in range(3):
        with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert process.stderr.readline()
            taken = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
            process.terminate()
        best = min(best, sum(map(int, taken)) / os.sysconf("SC_CLK_TCK"))
    return best


def test_a_run_says_its_plan_soon(benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    run = ("-m", "compbench.cli.main", "run", "--method", "naive-ode-oracle", "--task", "gauss2d-fact-id", "--preset", "smoke")
    seconds = benchmark.pedantic(cpu_seconds_to_first_line, args=run, rounds=1)
    libraries = cpu_seconds("-c", "import click, rich.console, rich.table; from pydantic import BaseModel, TypeAdapter")
    benchmark.extra_info |= {"cpu_seconds": seconds, "ratio_to_its_libraries": seconds / libraries}
    assert seconds < 4 * libraries
