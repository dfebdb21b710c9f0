"""CPU time of the command line, against that of importing the libraries it stands on.

Run with: pytest -m slow tests/benchmarks
"""

import os
import subprocess
import sys

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
