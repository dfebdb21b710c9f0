"""bf16 on a CPU without it, against fp32 and against torch's own kernels for it.  Ratios only; run with -m slow."""

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
def test_rounded_products_cost_little_more_than_fp32_and_far_less_than_torchs_own(benchmark, case: str) -> None:
    if devices.has_native_bf16(torch.device("cpu")):
        pytest.skip("this CPU has bf16 arithmetic")
    net, shape = CASES[case]
    x = torch.randn(shape)
    plain, torchs = seconds(net, x, bf16=False, wide=False), seconds(net, x, bf16=True, wide=False)
    ours = benchmark.pedantic(seconds, (net, x), {"bf16": True, "wide": True}, rounds=1)
    benchmark.extra_info.update({"times fp32": ours / plain, "torch's times ours": torchs / ours})
    assert ours / plain < 2
    assert torchs / ours > 3
