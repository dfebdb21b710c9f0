"""Group norms of narrow groups: against float64, in the layout that they came in, and torch's own for all else."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from compbench.system.bf16 import arithmetic
from compbench.system.cpu_kernels import CAN_WRAP, MAP, VECTOR, _backward, _forward, is_narrow, lay_out_narrow_norms

STEP = 2.0**-7
"""Between two neighbouring numbers of 8 significant bits, as a part of them."""
GROUPS = 8
LAST = torch.channels_last


def images(channels: int, side: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    drawn = torch.randn(3, channels, side, side, generator=torch.Generator().manual_seed(0))
    return (2 * drawn + 1).to(dtype).to(memory_format=LAST)


def normed(x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """y, and the gradients of a weighted sum of y towards x, gamma and beta; all in float64, or weights in fp32 as in a fit."""
    generator = torch.Generator().manual_seed(1)
    gamma, beta = (torch.randn(x.shape[1], generator=generator) for _ in range(2))
    asked = torch.randn(x.shape, generator=generator).bfloat16().to(dtype)
    leaves = [x.detach().to(dtype), *(weight.to(torch.promote_types(dtype, torch.float32)) for weight in (gamma, beta))]
    y = F.group_norm(leaves[0].requires_grad_(), GROUPS, *(weight.requires_grad_() for weight in leaves[1:]))
    return [y.detach(), *torch.autograd.grad(y, leaves, asked)]


@pytest.mark.parametrize(("channels", "side"), [(32, 16), (16, 28), (64, 7), (8, 5)])
def test_a_narrow_group_is_normed_as_float64_does(channels: int, side: int) -> None:
    arithmetic(torch.device("cpu"), "bf16")
    x = images(channels, side)
    assert is_narrow(x, GROUPS)
    for found, exact in zip(normed(x, torch.bfloat16), normed(x, torch.float64), strict=True):
        assert (found.double() - exact).abs().max() <= 2 * STEP * exact.abs().max()
        assert found.ndim < 4 or found.is_contiguous(memory_format=LAST)


def test_results_are_those_of_the_contiguous_kernel_bit_for_bit() -> None:
    if lay_out_narrow_norms() is None:
        pytest.skip("this torch lets no kernel be wrapped")
    x = images(32, 16)
    for found, plain in zip(normed(x, torch.bfloat16), normed(x.contiguous(), torch.bfloat16), strict=True):
        assert torch.equal(found, plain)


@pytest.mark.parametrize(
    "x",
    [
        images(32, 16, torch.float32),
        images(32, 16).contiguous(),
        images(GROUPS * VECTOR, 4),
        images(32, int(MAP**0.5)),
        images(32, 16).flatten(2),
        images(32, 16)[:, :, :, 0],
    ],
)
def test_all_else_goes_to_torchs_kernel_as_it_is(x: Tensor) -> None:
    seen = []

    def kernel(keys: object, *given: object) -> tuple[Tensor, ...]:
        seen.append(given)
        return x, x, x

    rest = (torch.ones(x.shape[1]), torch.zeros(x.shape[1]), len(x), x.shape[1], x[0, 0].numel(), GROUPS, 1e-5)
    _forward(kernel, None, x, *rest)
    _backward(kernel, None, x, x, x, x, *rest[:1], *rest[2:6], [True] * 3)
    assert seen[0][0] is x
    assert all(tensor is x for tensor in seen[1][:2])


@pytest.mark.skipif(not CAN_WRAP, reason="torch's own kernel, 2.6 to 2.8 at least, ends the process (SIGSEGV) without it")
def test_a_gradient_that_is_not_asked_for_is_none() -> None:
    x = images(32, 16)
    gamma = torch.ones(32, requires_grad=True)
    arithmetic(torch.device("cpu"), "bf16")
    (found,) = torch.autograd.grad(F.group_norm(x, GROUPS, gamma).float().square().sum(), [gamma])
    assert found.shape == (32,)
