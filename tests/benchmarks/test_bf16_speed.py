"""bf16 against fp32: torch's own kernels where a CPU is fast by them, ours where it is not.  Ratios only; run with -m slow."""

import contextlib
import time
from statistics import median

import pytest
import torch
from torch import nn

from compbench import devices
from compbench.run.bf16 import WideProducts

pytestmark = pytest.mark.slow
WIDTH, ROUNDS = 64, 5


def seconds(net: nn.Module, x: torch.Tensor, *, bf16: bool, wide: bool) -> float:
    """Median CPU time of a forward and backward pass."""
    found = []
    with WideProducts() if wide else contextlib.nullcontext():
        for _ in range(1 + ROUNDS):
            start = time.process_time()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                made = net(x)
            made.float().square().sum().backward()
            found.append(time.process_time() - start)
    return median(found[1:])


CONVOLUTIONS = nn.Sequential(*(nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.SiLU()) for _ in range(3)))
MAPS = nn.Sequential(*(nn.Sequential(nn.Linear(8 * WIDTH, 8 * WIDTH), nn.SiLU()) for _ in range(3)))


CASES = {"images": (CONVOLUTIONS, (16, WIDTH, 16, 16)), "vectors": (MAPS, (512, 8 * WIDTH))}


@pytest.mark.parametrize("case", CASES)
def test_bf16_is_computed_the_faster_way(benchmark, case: str) -> None:
    net, shape = CASES[case]
    x = torch.randn(shape)
    plain, torchs = seconds(net, x, bf16=False, wide=False), seconds(net, x, bf16=True, wide=False)
    ours = benchmark.pedantic(seconds, (net, x), {"bf16": True, "wide": True}, rounds=1)
    benchmark.extra_info.update({"times fp32": ours / plain, "torch's times ours": torchs / ours})
    if devices.has_fast_bf16(torch.device("cpu")):
        assert torchs < plain
    else:
        assert ours < torchs
        assert plain < torchs  # so "auto" is right to take fp32
        assert ours / plain < 2
