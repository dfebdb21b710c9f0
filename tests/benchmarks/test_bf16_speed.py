"""bf16 against fp32: torch's own kernels where a CPU is fast by them, ours where it is not.  Ratios only; run with -m slow."""

import contextlib
import time
from statistics import median

import pytest
import torch
from torch import nn

from compbench.system import devices
from compbench.system.bf16 import WideDispatch, WideKernels, wide_products
from compbench.system.cpu_kernels import CAN_WRAP

pytestmark = pytest.mark.slow
WIDTH, ROUNDS = 64, 5


def seconds(net: nn.Module, x: torch.Tensor, *, bf16: bool, way=contextlib.nullcontext) -> float:
    """Median CPU time of a forward and backward pass."""
    found = []
    with way():
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
    plain, torchs = seconds(net, x, bf16=False), seconds(net, x, bf16=True)
    ours = benchmark.pedantic(seconds, (net, x), {"bf16": True, "way": wide_products}, rounds=1)
    benchmark.extra_info.update({"times fp32": ours / plain, "torch's times ours": torchs / ours})
    if devices.has_fast_bf16(torch.device("cpu")):
        assert torchs < plain
    else:
        assert ours < torchs
        assert plain < torchs  # so "auto" is right to take fp32
        assert ours / plain < 2


@pytest.mark.skipif(not CAN_WRAP, reason="this torch lets no kernel be wrapped")
def test_wrapped_kernels_leave_small_operators_alone(benchmark) -> None:
    """A look at every operator costs a small network more than its products do."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU()) for _ in range(8)))
    x = torch.randn(64, WIDTH)
    looked_at = seconds(net, x, bf16=True, way=WideDispatch)
    wrapped = benchmark.pedantic(seconds, (net, x), {"bf16": True, "way": WideKernels}, rounds=1)
    benchmark.extra_info.update({"times a look at every operator": wrapped / looked_at})
    assert wrapped < looked_at
