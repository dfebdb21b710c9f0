"""Products of bf16 on CPUs without it: against float64, against torch's own kernels, and where a run enters them."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from compbench.api.schemas import RunRequest
from compbench.runner.one_run import run
from compbench.system import bf16, cpu_kernels, devices, profiling
from compbench.system.bf16 import PRODUCTS, WideDispatch, WideKernels, arithmetic, wide_products
from compbench.system.cpu_kernels import CAN_WRAP

CPU = torch.device("cpu")
WAYS = [
    pytest.param(WideKernels, marks=pytest.mark.skipif(not CAN_WRAP, reason="wraps no kernel")),
    WideDispatch,
]
HALF_STEP = 2.0**-8
"""A number rounded to 8 significant bits is off by this part of it at most."""

Products = Callable[..., Tensor]
CASES: dict[str, tuple[Products, tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((17, 33), (33, 9))),
    "addmm": (torch.addmm, ((9,), (17, 33), (33, 9))),
    "bmm": (torch.bmm, ((3, 17, 33), (3, 33, 9))),
    "baddbmm": (torch.baddbmm, ((3, 17, 9), (3, 17, 33), (3, 33, 9))),
    "linear": (F.linear, ((4, 5, 33), (9, 33), (9,))),
    "convolution of signals": (F.conv1d, ((2, 5, 16), (7, 5, 3), (7,))),
    "convolution of images": (F.conv2d, ((2, 5, 8, 8), (7, 5, 3, 3), (7,))),
    "transposed convolution": (F.conv_transpose2d, ((2, 5, 8, 8), (5, 7, 2, 2))),
    "convolution of a batch of networks": (torch.vmap(F.conv2d), ((3, 2, 5, 8, 8), (3, 7, 5, 3, 3))),
}


class Seen(TorchDispatchMode):
    """Counts the products that reach torch's kernels, by precision."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in PRODUCTS:
            self.products[args[0].dtype] += 1
        return func(*args, **(kwargs or {}))


def kernels_reached(monkeypatch: pytest.MonkeyPatch) -> Counter[torch.dtype]:
    """Counts calls of torch's own kernels behind ours, by precision."""
    reached: Counter[torch.dtype] = Counter()
    own = cpu_kernels.torchs_own

    def counted(operator):
        plain = own(operator)  # before it is wrapped

        def kernel(keys, *args, **kwargs):
            if operator in PRODUCTS:  # group norms have a wrapped kernel, too
                reached[args[0].dtype] += 1
            return plain(keys, *args, **kwargs)

        return kernel

    monkeypatch.setattr(cpu_kernels, "torchs_own", counted)
    return reached


def drawn(shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in shapes]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_product_is_the_exact_one_rounded_once(name: str, way) -> None:
    function, shapes = CASES[name]
    given = drawn(shapes)
    with way():
        found = function(*given)
    exact = function(*(tensor.detach().double() for tensor in given))
    assert found.dtype is torch.bfloat16
    assert torch.all((found.double() - exact).abs() <= HALF_STEP * exact.abs() * 1.001 + 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_products_and_gradients_are_those_of_torch_to_a_rounding(name: str, way) -> None:
    function, shapes = CASES[name]

    def gradients() -> list[Tensor]:
        given = drawn(shapes)
        made = function(*given)
        made.float().square().sum().backward()
        return [made, *(tensor.grad for tensor in given)]

    own = gradients()
    with way():
        wide = gradients()
    for ours, theirs in zip(wide, own, strict=True):
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=4 * HALF_STEP, atol=0.02 * theirs.abs().max().item())


@pytest.mark.parametrize("way", WAYS)
def test_attention_keeps_its_precision_and_its_gradient(way) -> None:
    given = drawn(((2, 3, 16, 8),) * 3)
    with way():
        made = F.scaled_dot_product_attention(*given)
        made.float().sum().backward()
    exact = F.scaled_dot_product_attention(*(tensor.detach().double() for tensor in given))
    assert made.dtype is given[0].grad.dtype is torch.bfloat16
    assert torch.all((made.double() - exact).abs() <= HALF_STEP * exact.abs() * 1.001 + 1e-5)


@pytest.mark.skipif(not CAN_WRAP, reason="wraps no kernel")
@pytest.mark.parametrize("name", CASES)
def test_both_ways_have_the_same_bits(name: str) -> None:
    function, shapes = CASES[name]
    found = []
    for way in (WideKernels, WideDispatch):
        given = drawn(shapes)
        with way():
            made = function(*given)
            made.float().square().sum().backward()
        found.append([made, *(tensor.grad for tensor in given)])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("way", WAYS)
def test_fp32_is_left_alone_and_nothing_stays_behind(way, monkeypatch: pytest.MonkeyPatch) -> None:
    widened = []
    monkeypatch.setattr(bf16, "_wide", lambda value: widened.append(value) or value)
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    plain = a @ b
    with way():
        assert torch.equal(a @ b, plain)
        with way():  # a run within another's process
            torch.mm(a, b)
        assert not widened
        torch.mm(*drawn(((4, 4), (4, 4))))
        assert len(widened) == 2
    torch.mm(*drawn(((4, 4), (4, 4))))
    assert len(widened) == 2


def test_only_bf16_on_a_cpu_without_it_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_fast_bf16", lambda device: False)
    assert isinstance(arithmetic(CPU, "bf16"), type(wide_products()))
    assert not isinstance(arithmetic(CPU, "fp32"), type(wide_products()))
    assert not isinstance(arithmetic(torch.device("cuda"), "bf16"), type(wide_products()))
    monkeypatch.setattr(devices, "has_fast_bf16", lambda device: True)
    assert not isinstance(arithmetic(CPU, "bf16"), type(wide_products()))


@pytest.mark.slow
def test_a_run_in_bf16_leaves_no_product_to_torch_on_a_cpu_without_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"task": "cmnist-diagonal", "method": "factored", "preset": "smoke", "device": "cpu", "threads": 1}
    few = {"budget.train_steps": 2, "budget.sample_steps": 2}  # of a judge it needs the products too, but no large one
    monkeypatch.setattr(devices, "has_fast_bf16", lambda device: False)
    monkeypatch.setattr(profiling, "measured_peak", lambda *_: 1e12)  # it is bf16's own, once a process
    reached = kernels_reached(monkeypatch)
    with Seen() as seen:  # below the run's own mode, above its kernels
        asked = RunRequest(**facts, home=str(home), precision="bf16", overrides=few)
        record = run(asked, in_process=True, force=True).record
    assert (record.status, record.spec.precision) == ("ok", "bf16")
    asked_for, computed = (seen.products, reached) if CAN_WRAP else (None, seen.products)
    assert computed[torch.float32]
    assert not computed[torch.bfloat16]
    assert asked_for is None or (asked_for[torch.bfloat16] and computed.total() >= asked_for.total())
