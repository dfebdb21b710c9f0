"""Gradients of convolutions that threads share: against torch's own kernel and fp32, bit for bit where that is promised."""

import os
import threading
from collections.abc import Iterator

import pytest
import torch
from support.seldom import seldom
from torch import Tensor
from torch.nn import functional as F

from compbench.system import devices, weight_gradients
from compbench.system.bf16 import arithmetic
from compbench.system.weight_gradients import BLOCK, Convolution, Cuts, convolution_backward, cuts, shared, torchs

STEP = 2.0**-7
"""Between two neighbouring numbers of 8 significant bits, as a part of them."""
BF16, LAST = torch.bfloat16, torch.channels_last
PLAIN = {"bias_sizes": None, "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1]}
PLAIN |= {"transposed": False, "output_padding": [0, 0], "groups": 1}
CASES = {
    "plain": {},
    "strided": {"stride": [2, 2]},
    "dilated": {"dilation": [2, 2], "padding": [2, 2]},
    "with a bias": {"bias_sizes": [64]},
    "in groups": {"groups": 4},
    "transposed": {"transposed": True, "stride": [2, 2], "output_padding": [1, 1]},
    "transposed in groups": {"transposed": True, "groups": 4, "bias_sizes": [64]},
}


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def any_size_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_gradients, "LEAST_PRODUCTS", 1)


def backward(case: dict, *, rows: int = 6, channels: int = 64, memory_format=LAST) -> tuple[Tensor, Tensor, Tensor, Convolution]:
    """(gradient towards the result, images, weights, convolution) of 64 input channels."""
    convolution = Convolution(**{**PLAIN, **case})
    generator = torch.Generator().manual_seed(0)
    shape = (64, channels // convolution.groups) if convolution.transposed else (channels, 64 // convolution.groups)
    x, weight = (
        torch.randn(size, generator=generator).to(BF16).to(memory_format=memory_format)
        for size in ((rows, 64, 8, 8), (*shape, 3, 3))
    )
    forward = F.conv_transpose2d if convolution.transposed else F.conv2d
    more = {"output_padding": convolution.output_padding} if convolution.transposed else {}
    y = forward(
        x, weight, None, convolution.stride, convolution.padding, **more, groups=convolution.groups, dilation=convolution.dilation
    )
    return torch.randn(y.shape, generator=generator).to(BF16).to(memory_format=memory_format), x, weight, convolution


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("memory_format", [LAST, torch.contiguous_format])
@pytest.mark.parametrize("rows", seldom([1, 5], but=[5]))
@pytest.mark.parametrize("case", CASES)
def test_shared_gradients_are_torchs(case: str, rows: int, memory_format: torch.memory_format) -> None:
    *tensors, convolution = backward(CASES[case], rows=rows, memory_format=memory_format)
    asked = [True, True, convolution.bias_sizes is not None]
    exact = torchs(*(tensor.double() for tensor in tensors), convolution, asked)
    plain = torchs(*tensors, convolution, asked)
    for ours, own, truth in zip(convolution_backward(*tensors, *convolution, asked), plain, exact, strict=True):
        if truth is None:
            assert ours is None
            continue
        assert (ours.shape, ours.dtype, ours.stride()) == (own.shape, own.dtype, own.stride())
        assert (ours.double() - truth).abs().max() <= 2 * STEP * truth.abs().max()


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("channels", [3, 16, 48, 64])
def test_two_threads_give_the_same_bits_again(channels: int) -> None:
    *tensors, convolution = backward({}, channels=channels)
    first = convolution_backward(*tensors, *convolution, [True, True, False])
    for _ in range(5):
        again = convolution_backward(*tensors, *convolution, [True, True, False])
        assert all(torch.equal(a, b) for a, b in zip(first[:2], again[:2], strict=True))


def test_one_thread_is_torchs_call_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    *tensors, convolution = backward({})
    plain = torch.ops.aten.convolution_backward(*tensors, *convolution, [True, True, False])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with monkeypatch.context() as watched:
        watched.setattr(weight_gradients, "torchs", lambda *given: seen.append(given))
        convolution_backward(*tensors, *convolution, [True, True, False])
    ((*given, same, asked),) = seen
    assert all(a is b for a, b in zip(given, tensors, strict=True))
    assert (same, asked) == (convolution, [True, True, False])
    found = convolution_backward(*tensors, *convolution, [True, True, False])
    assert all(torch.equal(a, b) for a, b in zip(found[:2], plain[:2], strict=True))


def test_a_process_of_one_thread_has_torchs_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("compbench.system.bf16.share_weight_gradients", lambda: asked.append(torch.get_num_threads()))
    monkeypatch.setattr(devices, "has_fast_bf16", lambda device: True)
    monkeypatch.setattr(devices, "has_x86_bf16", lambda: True)
    for threads, precision in ((1, "bf16"), (2, "fp32"), (2, "bf16")):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        arithmetic(torch.device("cpu"), precision)
    assert asked == [2]


@pytest.mark.usefixtures("two_threads")
def test_every_call_is_of_one_thread_whatever_is_set_meanwhile() -> None:
    workers = weight_gradients._workers(os.getpid(), 2)
    torch.set_num_threads(2)
    met = threading.Barrier(2)

    def threads() -> int:
        met.wait(10)
        return torch.get_num_threads()

    calls = [workers.submit(threads) for _ in range(2)]
    assert [call.result() for call in calls] == [1, 1]
    found: list[int] = []
    late = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    late.start()
    late.join()
    assert found == [2]


def test_channels_are_cut_in_whole_blocks_before_the_batch_is() -> None:
    def found(threads: int, channels: int, rows: int = 6, **case: object) -> Cuts:
        dy, x, _, convolution = backward(case, rows=rows, channels=channels)
        return cuts(dy, x, convolution, threads)

    assert found(2, 64) == Cuts(2 * BLOCK, 1)
    assert found(2, 48) == Cuts(2 * BLOCK, 1)  # and a block
    assert found(2, 3) == Cuts(3, 2)
    assert found(8, 32) == Cuts(BLOCK, 4)
    assert found(2, 64, groups=4) == Cuts(64, 2)
    assert found(4, 16, rows=2) == Cuts(16, 2)


@pytest.mark.parametrize("asked", [[True, True, True], [False, True, False], [True, False, True]])
@pytest.mark.parametrize("threads", [2, 3, 5, 8])
def test_any_number_of_threads_gives_torchs_gradients(threads: int, asked: list[bool]) -> None:
    *tensors, convolution = backward({"bias_sizes": [64]})
    exact = torchs(*(tensor.double() for tensor in tensors), convolution, asked)
    for ours, truth in zip(shared(*tensors, convolution, asked, threads), exact, strict=True):
        assert (ours is None) == (truth is None)
        assert truth is None or (ours.double() - truth).abs().max() <= 2 * STEP * truth.abs().max()


def test_a_small_call_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    alone = weight_gradients._alone
    monkeypatch.setattr(weight_gradients, "LEAST_PRODUCTS", 1 << 40)
    monkeypatch.setattr(weight_gradients, "_alone", lambda *given: seen.append(given) or alone(*given))
    *tensors, convolution = backward({})
    shared(*tensors, convolution, [True, True, False], 2)
    assert len(seen) == 1


@pytest.mark.usefixtures("two_threads")
class TestInstalled:
    """Under autograd, stacked networks and second derivatives, where torch calls it."""

    @pytest.fixture(autouse=True)
    def installed(self) -> Iterator[None]:
        library = weight_gradients.share_weight_gradients.__wrapped__()
        if library is None:
            pytest.skip("this torch has a kernel of its own for CPUs")
        yield
        del library

    @pytest.fixture
    def shared(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        calls: list[int] = []
        way = weight_gradients.shared

        def counted(dy: Tensor, *rest: object) -> object:
            calls.append(dy.shape[0])
            return way(dy, *rest)

        monkeypatch.setattr(weight_gradients, "shared", counted)
        return calls

    def test_autograd_takes_it(self, shared: list[int]) -> None:
        _, x, weight, _ = backward({})
        leaves = [x.requires_grad_(), weight.requires_grad_()]
        made = torch.autograd.grad(F.conv2d(*leaves, padding=1).float().square().sum(), leaves)
        exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
        truth = torch.autograd.grad(F.conv2d(*exact, padding=1).square().sum(), exact)
        assert shared == [6]
        for ours, own in zip(made, truth, strict=True):
            assert (ours.double() - own).abs().max() <= 4 * STEP * own.abs().max()
            assert not ours.requires_grad

    def test_fp32_does_not(self, shared: list[int]) -> None:
        _, x, weight, _ = backward({})
        torch.autograd.grad(F.conv2d(x.float(), leaf := weight.float().requires_grad_(), padding=1).sum(), [leaf])
        assert not shared

    def test_stacked_networks_take_it(self, shared: list[int]) -> None:
        _, x, weight, _ = backward({})
        weights = torch.stack([weight, 2 * weight, -weight])

        def loss(own: Tensor) -> Tensor:
            return F.conv2d(x, own, padding=1).float().square().mean()

        stacked = torch.func.vmap(torch.func.grad(loss))(weights)
        assert shared
        for ours, own in zip(stacked, weights, strict=True):
            plain = torch.func.grad(lambda one: F.conv2d(x.float(), one, padding=1).square().mean())(own.float())
            assert (ours.float() - plain).abs().max() <= 4 * STEP * plain.abs().max()

    def test_a_second_derivative_is_that_of_fp32(self) -> None:
        _, x, weight, _ = backward({}, rows=2)

        def penalty(dtype: torch.dtype) -> Tensor:
            images, leaf = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
            made = F.silu(F.conv2d(images, leaf, padding=1)).float().sum()
            first, second = torch.autograd.grad(made, [images, leaf], create_graph=True)
            return torch.autograd.grad(first.float().square().mean() + second.float().square().mean(), [leaf])[0].double()

        ours, plain = penalty(BF16), penalty(torch.float32)
        assert (ours - plain).norm() <= 0.05 * plain.norm()

    def test_errors_of_torchs_kernel_come_through(self) -> None:
        dy, x, weight, convolution = backward({})
        with pytest.raises(RuntimeError):
            torch.ops.aten.convolution_backward(dy, x[:, :32], weight, *convolution, [False, True, False])
