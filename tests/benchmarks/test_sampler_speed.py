"""A composition's forward: one stacked pass that shares the network's first half, against one pass a condition."""

import time
from collections.abc import Callable

import pytest
import torch
from reference.compose import compose_plainly
from torch import Tensor

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.compose import around_null, compose
from compbench.flow.nets import monolithic_net

pytestmark = pytest.mark.slow

SPACE = FactorSpace(Factor(name, size) for name, size in zip("abcdef", (10, 10, 10, 8, 4, 15), strict=True))


class Nothing:
    name, size = "nothing", 1


def median_seconds(call: Callable[[], Tensor], *, rounds: int = 5) -> float:
    call()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return sorted(times)[rounds // 2]


def test_slices_in_one_stacked_forward_beat_one_forward_each(benchmark) -> None:
    torch.manual_seed(0)
    budget = Budget(train_steps=1, batch_size=1, width=32, patch=4, learning_rate=1e-3, sample_steps=1)
    problem = Problem(SPACE, Event("image", (3, 64, 64)), Federation([Nothing()]), budget, Holdout.empty(SPACE))
    net = monolithic_net(problem).to(memory_format=torch.channels_last).eval()
    x = torch.randn(16, 3, 64, 64).contiguous(memory_format=torch.channels_last)
    t, slices = torch.rand(16), around_null(SPACE.uniform(16, torch.Generator().manual_seed(0)), (1.0,) * len(SPACE))
    with torch.no_grad():
        plain = median_seconds(lambda: compose_plainly(net, x, t, slices))
        fast = median_seconds(lambda: compose(net, x, t, slices))
        benchmark.pedantic(compose, (net, x, t, slices), rounds=5, warmup_rounds=1)
    benchmark.extra_info["ratio"] = plain / fast
    assert plain / fast > 1.15
