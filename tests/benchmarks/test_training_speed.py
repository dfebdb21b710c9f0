"""The training step against its plain reference: fp32, eager, contiguous, unfused.  Ratios only; run with -m slow."""

import time

import pytest
import torch

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.nets import monolithic_net
from compbench.flow.train import flow_matching_loss, train
from compbench.system import devices
from compbench.system.profiling import num_parameters

pytestmark = pytest.mark.slow

SPACE = FactorSpace(Factor(name, size) for name, size in zip("abcdef", (10, 10, 10, 8, 4, 15), strict=True))
WARM_UP, TIMED = 3, 8


class Constant:
    """One batch again and again: the data's cost is measured elsewhere."""

    name, size = "constant", 1000

    def __init__(self, device: torch.device, rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        x1, condition = torch.randn(rows, 3, 64, 64, generator=generator), SPACE.uniform(rows, generator)
        self.data = Batch(x1.to(device), condition.to(device))

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        return self.data


def seconds_a_step(device: torch.device, budget: Budget, *, precision: str, fast: bool) -> float:
    """Median over the timed steps: CPU time, so that a neighbour does not count; on a GPU, which is waited for, wall time."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    silo = Constant(device, budget.batch_size)
    problem = Problem(SPACE, Event("image", (3, 64, 64)), Federation([silo]), budget, Holdout.empty(SPACE))
    stamps = []

    def progress(done: int, total: int) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        stamps.append(clock())

    generator = torch.Generator().manual_seed(0)
    compiles = fast and device.type == "cuda"
    ctx = Context(device, precision, generator, NoCheckpoints(), progress=progress, compile=compiles)
    train(monolithic_net(problem), flow_matching_loss, silo, budget, ctx, fast=fast)
    steps = sorted(b - a for a, b in zip(stamps[WARM_UP:], stamps[WARM_UP + 1 :], strict=False))
    return steps[len(steps) // 2]


def small(**changes) -> Budget:
    facts = {"train_steps": WARM_UP + TIMED, "batch_size": 32, "width": 32, "patch": 2}
    return Budget(**(facts | changes), learning_rate=1e-3, sample_steps=1)


def test_training_step_in_bf16_and_channels_last_beats_plain_fp32(benchmark) -> None:
    device = torch.device("cpu")
    if not devices.has_fast_bf16(device):
        pytest.skip("this CPU has no fast bf16")
    plain = seconds_a_step(device, small(), precision="fp32", fast=False)
    fast = benchmark.pedantic(seconds_a_step, (device, small()), {"precision": "bf16", "fast": True}, rounds=1)
    benchmark.extra_info["ratio"] = plain / fast
    assert plain / fast > 1.5


@pytest.mark.gpu
def test_paper_training_step_on_a_gpu_is_three_times_plain_fp32(benchmark) -> None:
    device = torch.device("cuda")
    budget = small(batch_size=256, width=64, patch=1, train_steps=WARM_UP + 30)
    plain = seconds_a_step(device, budget, precision="fp32", fast=False)
    fast = benchmark.pedantic(seconds_a_step, (device, budget), {"precision": "bf16", "fast": True}, rounds=1)
    benchmark.extra_info["ratio"] = plain / fast
    assert plain / fast > 3


def test_benchmarked_paper_network_has_the_paper_s_size() -> None:
    device = torch.device("cpu")
    budget = small(width=64, patch=1, batch_size=1)
    problem = Problem(SPACE, Event("image", (3, 64, 64)), Federation([Constant(device, 1)]), budget, Holdout.empty(SPACE))
    assert 7.4e6 < num_parameters(monolithic_net(problem)) < 7.7e6
