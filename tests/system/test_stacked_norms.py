"""Stacked networks in channels-last are normed as one after the other, with torch's own norm or with ours around it."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from compbench.system.bf16 import arithmetic
from compbench.system.cpu_kernels import contiguous_where_stacked, takes_stacked

CPU = torch.device("cpu")
Norm = Callable[..., Tensor]


@pytest.fixture(params=["a run's", "copied first"])
def norm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Norm]:
    """What `F.group_norm` is in a run with any torch, and what it is with one that refuses stacked images."""
    arithmetic(CPU, "fp32")
    if request.param == "copied first":
        monkeypatch.setattr(F, "group_norm", contiguous_where_stacked(F.group_norm))
    return F.group_norm


def test_a_run_s_norm_takes_stacked_images(norm: Norm) -> None:
    assert takes_stacked(norm)


def test_a_norm_that_refuses_them_is_found_out() -> None:
    def refusing(images: Tensor, groups: int) -> Tensor:
        raise RuntimeError("NYI: querying is_contiguous inside of vmap")

    assert not takes_stacked(refusing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stacked_networks_give_what_each_gives_alone(norm: Norm, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 4, 3, padding=1))
    net.to(memory_format=torch.channels_last).requires_grad_(False)
    states = {name: torch.stack([weight, 1.5 * weight + 0.1]) for name, weight in net.state_dict().items()}
    x = torch.randn(3, 4, 8, 8)

    def one(state: dict[str, Tensor], x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
            return functional_call(net, state, (x,)).float()

    found, toward = torch.func.vjp(lambda x: torch.vmap(one, in_dims=(0, None))(states, x), x)
    alone = [torch.func.vjp(lambda x, k=k: one({name: stack[k] for name, stack in states.items()}, x), x) for k in range(2)]
    (gradient,) = toward(torch.ones_like(found))
    gradients = [back(torch.ones_like(y))[0] for y, back in alone]
    part = 1e-5 if dtype is torch.float32 else 2.0**-6  # of the largest number; bf16 has 8 significant bits
    for both, single in ((found, torch.stack([y for y, _ in alone])), (gradient, gradients[0] + gradients[1])):
        torch.testing.assert_close(both, single, rtol=0, atol=part * float(single.abs().max()))
