"""bf16 group norms of few channels a group: torch's channels-last kernel against ours.  Ratios only; run with -m slow."""

import time
from statistics import median

import pytest
import torch

from compbench.run.narrow_norms import is_narrow, lay_out_narrow_norms, torchs_own

pytestmark = pytest.mark.slow
ROUNDS, GROUPS = 15, 8


def seconds(x: torch.Tensor, kernels: tuple) -> float:
    """Median CPU time of a norm and its gradients."""
    forward, backward, keys = kernels
    gamma, beta, rest = torch.ones(x.shape[1]), torch.zeros(x.shape[1]), (*x.shape[:2], x[0, 0].numel(), GROUPS)
    found = []
    for _ in range(2 + ROUNDS):
        start = time.process_time()
        y, mean, inverse = forward(*keys, x, gamma, beta, *rest, 1e-5)
        backward(*keys, y, x, mean, inverse, gamma, *rest, [True] * 3)
        found.append(time.process_time() - start)
    return median(found[2:])


@pytest.mark.parametrize(("channels", "side"), [(32, 16), (64, 16), (32, 28), (64, 28), (64, 8)])
def test_a_narrow_group_is_normed_the_faster_way(benchmark, channels: int, side: int) -> None:
    x = torch.randn(32, channels, side, side).bfloat16().to(memory_format=torch.channels_last)
    assert is_narrow(x, GROUPS)
    assert lay_out_narrow_norms() is not None
    torchs = (torchs_own("native_group_norm"), torchs_own("native_group_norm_backward"))
    plain = seconds(x, (*torchs, (torch._C._dispatch_keys(x),)))
    aten = torch.ops.aten
    ours = benchmark.pedantic(
        seconds, (x, (aten.native_group_norm.default, aten.native_group_norm_backward.default, ())), rounds=1
    )
    benchmark.extra_info["torch's times ours"] = plain / ours
    assert ours < plain
