"""What `experiments/gpu/throughput.py` measures: every row at tiny sizes anywhere, and its goals on a GPU of their kind."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "gpu"))
import throughput
from ways import Way

from compbench.api.context import Context

GOALS = [row for row in throughput.ROWS if row.goal_ms is not None]


@pytest.mark.parametrize(
    "name", ["noise network", "swarms of vectors", "20 networks", "10 silos of vectors at once", "distances of 5,000 images"]
)
def test_a_row_of_each_kind_runs_at_tiny_sizes(name: str, tmp_path: Path) -> None:
    row = next(row for row in throughput.ROWS if row.name == name)._replace(rows=4, precision="fp32")
    found = throughput.measured(row, torch.device("cpu"), tmp_path, Way.HARNESS, tiny=True, seconds=0.1)
    assert found["ms_a_step"] > 0
    assert found["samples_per_second"] > 0


def test_a_network_that_ran_uncompiled_is_told_from_one_that_ran_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, cpu = next(row for row in throughput.ROWS if row.name == "noise network"), torch.device("cpu")
    ctx = throughput.context(row._replace(precision="fp32"), cpu)
    ctx.compile = True
    monkeypatch.setattr(throughput, "context", lambda row, device: ctx)
    problem = throughput.problem_of(row._replace(precision="fp32"), cpu, tmp_path, preset="smoke")

    def work(words: str) -> Callable[[Context], None]:
        def steps(ctx: Context) -> None:
            warnings.warn(words, stacklevel=1)
            for step in range(100):
                ctx.progress(step + 1, 100)

        return steps

    found = [
        throughput.watched(row, problem, cpu, 60, work(f"trained {how}"))["compiled"] for how in ("without compilation", "well")
    ]
    assert found == [0.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("row", throughput.ROWS, ids=lambda row: row.name)
def test_every_row_runs_at_tiny_sizes(row: throughput.Row, tmp_path: Path) -> None:
    found = throughput.measured(row._replace(rows=8), torch.device("cpu"), tmp_path, Way.HARNESS, tiny=True, seconds=0.1)
    assert found["ms_a_step"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("row", GOALS, ids=lambda row: row.name)
def test_a_step_of_paper_reaches_its_goal_on_an_h100(row: throughput.Row, tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    name = torch.cuda.get_device_name(device)
    if not any(kind in name for kind in ("H100", "H200")):
        pytest.skip(f"goals are for an H100, this is {name}")
    assert row.goal_ms is not None
    assert throughput.measured(row, device, tmp_path, Way.HARNESS, tiny=False, seconds=5)["ms_a_step"] <= row.goal_ms
