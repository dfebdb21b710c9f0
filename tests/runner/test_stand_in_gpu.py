"""Whole runs on a GPU in name only: task, contestant, referee, judge, metrics and profile keep to the device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import stand_in

from compbench.api.schemas import Record, RunRequest
from compbench.runner.one_run import run
from compbench.system import profiling

QUICK = [("stripes", "bump-scaling")]
SLOW = [
    *(("fkc", "gauss2d-nonfact-ood"), ("fkc-oracle", "gmm-ood"), ("dcfm-a", "blobs-noniid"), ("mono", "rotation")),
    *(("factored", "shapes3d-light"), ("factored", "shapes3d-extend"), ("slice-cfg", "mpi3d-light"), ("ddm", "cmnist-noniid")),
    *(("low-rank", "bump-center"), ("mono", "bump-corner"), ("mono", "planning-noniid"), ("naive-ode", "gmm-id")),
]


@pytest.fixture(autouse=True)
def as_before():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    yield
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def check(method: str, task: str, home: Path, monkeypatch: pytest.MonkeyPatch, **more: object) -> Record:
    monkeypatch.setattr(profiling, "measured_peak", lambda *_: 1e12)  # on a CPU the product takes minutes
    facts = {"method": method, "task": task, "preset": "smoke", "home": str(home), "device": "cuda", "precision": "fp32"}
    with stand_in.gpu():
        record = run(RunRequest(**{**facts, **more}), in_process=True).record
    assert record.status == "ok", record.reason
    assert record.spec.device_class == "stand-in"
    return record


@pytest.mark.parametrize(("method", "task"), QUICK)
def test_a_run_keeps_to_the_device(method: str, task: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(method, task, home, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "task"), SLOW)
def test_a_longer_run_keeps_to_the_device(method: str, task: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if task.startswith("planning"):
        pytest.importorskip("ogbench")
    check(method, task, home, monkeypatch)


@pytest.mark.parametrize(("asked", "rounded"), [("fp32", False), ("tf32", True)])
def test_products_are_rounded_only_where_that_was_asked_for(
    asked: str, rounded: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not rounded
    record = check("stripes", "bump-scaling", home, monkeypatch, precision=asked, seed=2)
    assert record.spec.precision == asked
    assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == rounded
