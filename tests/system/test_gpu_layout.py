"""Images stay channels-last through our networks on a GPU; shown without one, by fake CUDA tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from support.seldom import seldom, slow
from support.stand_in import needs_newer_torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from compbench.api.interfaces import Event
from compbench.flow.attended_nets import AttendedUNet
from compbench.flow.blocks import ResidualBlock, num_groups
from compbench.flow.decoders import CNNDecoder
from compbench.flow.energy import Energy
from compbench.flow.nets import Modulation, UNet
from compbench.flow.token_nets import Neighbours, TokenNet
from compbench.system import gpu_layout
from compbench.system.gpu_layout import doubled, group_norm, layout_kept

_ATEN = torch.ops.aten
SCATTERS = {_ATEN.upsample_nearest2d_backward.default, _ATEN.index_put.default, _ATEN._unsafe_index_put.default}
"""Gradients of an upsampling; torch's compiler makes a scattered sum of the first, which is that of a gather."""
SIZES = (4, 10)
"""Number of values of each factor."""
GATHERS = {_ATEN._unsafe_index.Tensor, _ATEN.index.Tensor}


def test_the_norm_is_torchs_in_values_and_gradients() -> None:
    x = torch.randn(2, 12, 5, 4, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    weight, bias = torch.randn(2, 12, dtype=torch.float64, requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)  # the comparison is exact in float64
        found, true = group_norm(x, 3, weight, bias, 1e-5), F.group_norm(x, 3, weight, bias, 1e-5)
        torch.testing.assert_close(found, true, rtol=1e-12, atol=1e-12)
        cotangent = torch.randn_like(true)
        own, theirs = (torch.autograd.grad(y, x, cotangent)[0] for y in (found, true))
    torch.testing.assert_close(own, theirs, rtol=1e-10, atol=1e-10)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_a_narrow_norm_is_the_norm_rounded_once_with_statistics_in_fp32() -> None:
    x = (300 + torch.randn(2, 8, 5, 4)).bfloat16().to(memory_format=torch.channels_last)
    narrow, wide = (group_norm(x, 2, None, None, 1e-5, narrow=narrow) for narrow in (True, False))
    assert (narrow.dtype, wide.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(narrow, wide.bfloat16())
    torch.testing.assert_close(wide, F.group_norm(x.double(), 2).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("narrow", seldom([False, True], but=[True]))
@needs_newer_torch
def test_a_compiled_step_keeps_its_images_in_bf16_whatever_type_norms_give(narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between forward and backward.  A norm is fused with the rounding before a convolution: narrow norms save no memory."""
    monkeypatch.setattr(gpu_layout, "_is_image_on_a_gpu", lambda x: x.ndim == 4)
    block, kept = ResidualBlock(8, 8).to(memory_format=torch.channels_last), Counter[torch.dtype]()

    def count(module: Any, inputs: Any) -> Any:
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        for node in output.args[0]:
            value = getattr(node, "meta", {}).get("val")
            if isinstance(value, Tensor) and value.ndim == 4 and node.op != "placeholder":
                kept[value.dtype] += value.numel() * value.element_size()
        return make_boxed_func(module.forward)

    compilers = {"fw_compiler": count, "bw_compiler": lambda module, inputs: make_boxed_func(module.forward)}
    backend = aot_autograd(**compilers, decompositions=select_decomp_table(), partition_fn=min_cut_rematerialization_partition)

    def loss(x: Tensor, film: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return block(x, film).square().mean()

    x = torch.randn(4, 8, 8, 8, requires_grad=True).contiguous(memory_format=torch.channels_last)
    with layout_kept(narrow=narrow):
        torch.compile(loss, backend=backend, fullgraph=True)(x, torch.zeros(4, 16)).backward()
    assert kept.keys() == {torch.bfloat16}


def test_doubling_is_nearest_neighbour_upsampling_in_values_and_gradients() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    true = F.interpolate(x, size=(8, 10))
    assert torch.equal(doubled(x), true)
    assert doubled(x).is_contiguous(memory_format=torch.channels_last)
    cotangent = torch.randn_like(true)
    own, theirs = (torch.autograd.grad(y, x, cotangent)[0] for y in (doubled(x), F.interpolate(x, size=(8, 10))))
    torch.testing.assert_close(own, theirs)


def test_nothing_changes_on_a_cpu_and_all_is_put_back() -> None:
    before, x = (F.group_norm, F.interpolate, F.conv_transpose2d), torch.randn(2, 4, 3, 3)
    with layout_kept():
        assert torch.equal(F.group_norm(x, 2), before[0](x, 2))
        assert torch.equal(F.interpolate(x, size=(6, 6)), before[1](x, size=(6, 6)))
        assert torch.equal(F.interpolate(x, scale_factor=2), before[1](x, scale_factor=2))
    assert (F.group_norm, F.interpolate, F.conv_transpose2d) == before


def counted(forward: Callable[..., Tensor], *inputs: Tensor) -> Counter[str]:
    """How many convolutions a graph on a GPU has, how many with channels-first input, and scattered sums of its backward."""
    graph = make_fx(forward, decomposition_table=select_decomp_table(), _allow_non_fake_inputs=True)(*inputs).graph
    found: Counter[str] = Counter()
    for node in graph.nodes:
        if node.target is torch.ops.aten.convolution.default:
            x = node.args[0].meta["val"]
            found["convolutions"] += 1
            found["channels-first"] += x.is_contiguous() and not x.is_contiguous(memory_format=torch.channels_last)
        found["scattered sums"] += node.target in SCATTERS
        found["gathers"] += node.target in GATHERS
    return found


def channels_last(net: nn.Module) -> nn.Module:
    """The network with weights of its convolutions in channels-last; a fake network cannot be moved by `to`."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.weight = nn.Parameter(torch.empty(module.weight.shape).to(memory_format=torch.channels_last))
    return net


def network_and_inputs() -> tuple[UNet, list[Tensor]]:
    """The network of the `paper` preset, its weights channels-last, and images, times and modulation of two rows."""
    net = UNet((3, 64, 64), width=64)
    channels_last(net)
    x = torch.empty(2, 3, 64, 64).to(memory_format=torch.channels_last)
    return net, [x, torch.empty(2), torch.empty(2, 256), torch.empty(2, 256)]


def forward_counts() -> Counter[str]:
    with FakeTensorMode(), torch.device("cuda"):
        net, inputs = network_and_inputs()
        return counted(lambda x, t, *gains: net.decode(net.encode(x, t), Modulation(*gains)), *inputs)


def backward_counts() -> Counter[str]:
    """Of forward and backward, on the meta device: fake tensors of a GPU have no backward where there is no GPU."""
    with torch.device("meta"):
        net, inputs = network_and_inputs()

        def gradients(x: Tensor, t: Tensor, *gains: Tensor) -> Tensor:
            loss = net.decode(net.encode(x, t), Modulation(*gains)).square().mean()
            return torch.stack([one.sum() for one in torch.autograd.grad(loss, list(net.parameters()))]).sum()

        return counted(gradients, *inputs)


@pytest.mark.slow
@needs_newer_torch
def test_no_convolution_of_the_papers_network_gets_channels_first_images_on_a_gpu() -> None:
    with layout_kept():
        kept = forward_counts()
    plain = forward_counts()
    assert kept["convolutions"] == plain["convolutions"] == 23
    assert kept["channels-first"] == 0
    assert plain["channels-first"] in (15, 0)  # torch 2.15 keeps the layout by itself


OF_IMAGES = {
    "attended": lambda: AttendedUNet(
        UNet((3, 64, 64), width=32, patch=4), SIZES, hidden=64, depth=1, num_heads=2, prediction="velocity", sample_steps=10
    ),
    "neighbours": lambda: TokenNet(
        (3, 64, 64),
        SIZES,
        width=32,
        depth=2,
        patch=4,
        mixer=lambda _, width: Neighbours(width),
        prediction="velocity",
        sample_steps=10,
    ),
    "energy": lambda: Energy(Event(kind="image", shape=(3, 64, 64)), width=32),
}
"""The other networks that convolve images."""


@pytest.mark.parametrize(
    ("name", "convolutions", "channels_first"), [slow(("attended", 23, 0)), ("neighbours", 2, 0), ("energy", 3, 1)]
)
@needs_newer_torch
def test_no_other_convolution_gets_them_but_the_first_of_an_energy(name: str, convolutions: int, channels_first: int) -> None:
    """That one has the three colours and the time as input, which are put together anew."""
    with FakeTensorMode(), torch.device("cuda"), layout_kept():
        net = channels_last(OF_IMAGES[name]())
        x = torch.empty(2, 3, 64, 64).to(memory_format=torch.channels_last)
        condition = () if name == "energy" else (torch.zeros(2, len(SIZES), dtype=torch.long),)
        found = counted(net, x, torch.empty(2), *condition)
    assert (found["convolutions"], found["channels-first"], found["gathers"]) == (convolutions, channels_first, 0)


@pytest.mark.slow
def test_no_gradient_of_the_papers_network_is_a_scattered_sum_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = backward_counts()
    monkeypatch.setattr(gpu_layout, "_is_image_on_a_gpu", lambda x: x.ndim == 4)
    with layout_kept():
        kept = backward_counts()
    assert (kept["scattered sums"], kept["gathers"]) == (0, 0)
    assert (plain["scattered sums"], plain["gathers"]) == (2, 2)


def test_blocks_of_any_width_have_groups_that_the_norm_takes() -> None:
    for channels in (8, 24, 32, 40, 64):
        x = torch.randn(1, channels, 2, 2)
        module = nn.GroupNorm(num_groups(channels), channels)
        torch.testing.assert_close(gpu_layout.group_norm(x, module.num_groups, module.weight, module.bias, module.eps), module(x))


def transposed_layouts(net: nn.Module, code: Tensor) -> list[bool]:
    """Whether images and weights of a network's transposed convolutions are contiguous, one by one."""
    graph = make_fx(net, decomposition_table=select_decomp_table(), _allow_non_fake_inputs=True)(code).graph
    calls = [node for node in graph.nodes if node.target is _ATEN.convolution.default and node.args[6]]
    return [argument.meta["val"].is_contiguous() for node in calls for argument in node.args[:2]]


def test_transposed_convolutions_get_contiguous_images_and_weights_on_a_gpu() -> None:
    """Of these the compiler foresees the layout that a GPU gives; a fit of `cnn-decoder` ended where they were channels-last."""
    with FakeTensorMode(), torch.device("cuda"):
        try:
            decoder = CNNDecoder(12, (3, 28, 28), channels=16, num_hidden=2)
        except RuntimeError as error:
            pytest.skip(f"this torch (2.6 to 2.8 do) asks a driver even for a GPU that is not there: {str(error)[:40]}")
        for module in decoder.modules():
            if isinstance(module, nn.ConvTranspose2d):
                module.weight = nn.Parameter(torch.empty(module.weight.shape).to(memory_format=torch.channels_last))
        code = torch.empty(4, 12)
        plain = transposed_layouts(decoder, code)
        with layout_kept():
            kept = transposed_layouts(decoder, code)
    assert len(kept) == len(plain) == 8
    assert all(kept)
    assert not all(plain)


@pytest.mark.parametrize("backend", seldom(["aot_eager", "inductor"], but=["aot_eager"]))
def test_a_compiled_decoder_of_transposed_convolutions_has_the_plain_gradients(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_layout, "_is_image_on_a_gpu", lambda x: x.ndim == 4)
    decoder, code = (
        CNNDecoder(12, (3, 28, 28), channels=8, num_hidden=2).to(memory_format=torch.channels_last),
        torch.randn(4, 12),
    )
    plain = torch.autograd.grad(decoder(code).square().mean(), list(decoder.parameters()))
    with layout_kept():
        found = torch.compile(decoder, backend=backend, fullgraph=True, dynamic=False)(code)
        assert found.is_contiguous()
        gradients = torch.autograd.grad(found.square().mean(), list(decoder.parameters()))
    torch.testing.assert_close(gradients, plain, rtol=1e-4, atol=1e-6)
