"""bf16 group norms of few channels a group: torch's channels-last kernel against ours, alone and in a network.

Ratios only; run with -m slow.
"""

import time
from collections.abc import Callable
from statistics import median

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from compbench.flow.blocks import Modulation
from compbench.flow.nets import UNet
from compbench.system import cpu_kernels

pytestmark = pytest.mark.slow
ROUNDS, GROUPS, BATCH = 15, 8, 32


def seconds(made: Callable[[], Tensor]) -> float:
    """Median CPU time of what makes a tensor, and of its gradients."""
    found = []
    for _ in range(2 + ROUNDS):
        start = time.process_time()
        made().float().square().sum().backward()
        found.append(time.process_time() - start)
    return median(found[2:])


def compared(benchmark, monkeypatch: pytest.MonkeyPatch, made: Callable[[], Tensor]) -> None:
    if cpu_kernels.lay_out_narrow_norms() is None:
        pytest.skip("this torch lets no kernel be wrapped")
    with monkeypatch.context() as torchs:
        torchs.setattr(cpu_kernels, "is_narrow", lambda x, groups: False)
        plain = seconds(made)
    ours = benchmark.pedantic(seconds, (made,), rounds=1)
    benchmark.extra_info["ours over torch's"] = ours / plain
    assert ours < plain


@pytest.mark.parametrize(("channels", "side"), [(32, 16), (64, 16), (32, 28), (64, 28), (64, 8)])
def test_a_narrow_group_is_normed_the_faster_way(benchmark, monkeypatch, channels: int, side: int) -> None:
    x = torch.randn(BATCH, channels, side, side).bfloat16().to(memory_format=torch.channels_last).requires_grad_()
    gamma = torch.ones(channels, requires_grad=True)
    compared(benchmark, monkeypatch, lambda: F.group_norm(x, GROUPS, gamma, gamma))


def test_a_network_of_shapes3d_at_standard_is_trained_faster(benchmark, monkeypatch) -> None:
    net = UNet((3, 64, 64), width=32, patch=4).to(memory_format=torch.channels_last)
    x, t = torch.randn(BATCH, 3, 64, 64).to(memory_format=torch.channels_last), torch.rand(BATCH)
    still = Modulation(torch.zeros(BATCH, net.mid_channels), torch.zeros(BATCH, net.mid_channels))

    def made() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return net.decode(net.encode(x, t), still)

    compared(benchmark, monkeypatch, made)
