import math

import pytest
import torch
from torch import Tensor

from compbench.api.interfaces import Budget, Event
from compbench.flow.nets import MLP, UNet, VelocityNet, backbone, head, head_hidden
from compbench.system.errors import CompbenchError
from compbench.system.profiling import num_parameters


class FirstValueHead(torch.nn.Module):
    """A head on the first factor's value as a number."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = head(1, 8, channels)

    def forward(self, condition: Tensor) -> Tensor:
        return self.layers(condition[:, :1].float())


BUDGET = Budget(train_steps=1, batch_size=1, width=8, learning_rate=1e-3, sample_steps=2)


def make(body: UNet | MLP, *, std: float = 0.0, prediction: str = "velocity") -> VelocityNet:
    net = VelocityNet(body, FirstValueHead(body.mid_channels), sample_steps=2, prediction=prediction)
    if std:
        for parameter in net.parameters():
            torch.nn.init.normal_(parameter, std=std)
    return net.eval()


def test_unet_of_the_paper_has_about_six_and_a_half_million_parameters() -> None:
    assert 6.3e6 < num_parameters(UNet((3, 64, 64), width=64)) < 6.8e6


def test_unet_of_the_paper_has_256_channels_at_16_by_16_in_the_middle() -> None:
    with torch.no_grad():
        trunk = UNet((3, 64, 64), width=64).encode(torch.zeros(1, 3, 64, 64), torch.zeros(1))
    assert trunk.middle.shape == (1, 256, 16, 16)


@pytest.mark.parametrize(
    ("shape", "patch"), [((3, 8, 8), 1), ((3, 28, 28), 1), ((3, 28, 28), 2), ((1, 28, 28), 4), ((3, 64, 64), 8)]
)
def test_unet_keeps_the_shape_of_images(shape, patch) -> None:
    net = make(UNet(shape, width=8, patch=patch))
    with torch.no_grad():
        assert net(torch.randn(2, *shape), torch.rand(2), torch.zeros(2, 2).long()).shape == (2, *shape)


def test_unet_refuses_a_patch_that_does_not_divide_the_image() -> None:
    with pytest.raises(CompbenchError, match="patch 8 does not divide images of 28 x 28"):
        UNet((3, 28, 28), width=8, patch=8)


@pytest.mark.parametrize("body", [UNet((3, 8, 8), width=8), MLP((2,), width=16), MLP((5, 3), width=16)])
def test_untrained_network_has_a_velocity_near_zero_whatever_the_condition(body) -> None:
    net, shape = make(body), getattr(body, "shape", (3, 8, 8))
    x, t = torch.randn(4, *shape), torch.rand(4)
    with torch.no_grad():
        low, high = net(x, t, torch.zeros(4, 2).long()), net(x, t, torch.ones(4, 2).long())
    assert low.shape == x.shape
    assert torch.equal(low, high)  # heads start at zero


@pytest.mark.parametrize("body", [UNet((3, 8, 8), width=8), MLP((2,), width=16)])
def test_network_obeys_time_and_condition(body) -> None:
    torch.manual_seed(0)
    net, shape = make(body, std=0.3), getattr(body, "shape", (3, 8, 8))
    x, t, c = torch.randn(1, *shape), torch.tensor([0.2]), torch.zeros(1, 2).long()
    with torch.no_grad():
        assert not torch.allclose(net(x, t, c), net(x, t + 0.5, c))
        assert not torch.allclose(net(x, t, c), net(x, t, c + 1))


def test_modulation_of_the_middle_is_h_plus_gamma_h_plus_beta() -> None:
    net = make(MLP((2,), width=16))
    seen = []
    net.backbone.after[0].register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    torch.nn.init.constant_(net.conditioning.layers[-1].bias[:16], 2.0)  # gamma
    torch.nn.init.constant_(net.conditioning.layers[-1].bias[16:], 5.0)  # beta
    x, t = torch.randn(3, 2), torch.rand(3)
    with torch.no_grad():
        net(x, t, torch.zeros(3, 1).long())
        torch.testing.assert_close(seen[0], 3 * net.backbone.encode(x, t).middle + 5)


def test_backbone_is_a_unet_for_images_and_an_mlp_for_vectors() -> None:
    assert isinstance(backbone(Event("image", (3, 8, 8)), BUDGET), UNet)
    assert isinstance(backbone(Event("vector", (2,)), BUDGET), MLP)


def test_denoiser_s_velocity_leads_to_its_prediction() -> None:
    net = make(MLP((2,), width=16), std=0.3)
    denoiser = VelocityNet(net.backbone, net.conditioning, sample_steps=2, prediction="denoised")
    x, t, c = torch.randn(4, 2), torch.tensor([0.0, 0.3, 0.6, 0.9]), torch.zeros(4, 1).long()
    with torch.no_grad():
        torch.testing.assert_close(x + (1 - t)[:, None] * denoiser(x, t, c), net(x, t, c))
        torch.testing.assert_close(denoiser.stacked(x, t, torch.stack([c, c]))[1], denoiser(x, t, c))


def test_denoiser_s_velocity_is_finite_at_the_end() -> None:
    net = make(MLP((2,), width=16), std=0.3, prediction="denoised")
    with torch.no_grad():
        assert net(torch.randn(4, 2), torch.ones(4), torch.zeros(4, 1).long()).isfinite().all()


@pytest.mark.parametrize(("heads", "hidden"), [(1, 1536), (6, 256), (7, 256), (5, 256), (2, 768)])
def test_head_hidden_is_the_protocol_s(heads, hidden) -> None:
    assert head_hidden(256, heads) == hidden


def test_network_compiles_without_graph_breaks() -> None:
    net = make(UNet((3, 8, 8), width=8), std=0.1)
    args = torch.randn(2, 3, 8, 8), torch.rand(2), torch.zeros(2, 2).long()
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), net(*args))


def test_channels_last_network_agrees_with_the_contiguous_one() -> None:
    net = make(UNet((3, 16, 16), width=8), std=0.1)
    x, t, c = torch.randn(2, 3, 16, 16), torch.rand(2), torch.zeros(2, 2).long()
    with torch.no_grad():
        plain = net(x, t, c)
        fast = net.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last), t, c)
    torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_gradients_in_bf16_do_not_depend_on_what_memory_held_before() -> None:
    net = make(UNet((1, 8, 8), width=16, patch=4), std=0.05).to(memory_format=torch.channels_last)
    x, t, condition = torch.randn(16, 1, 8, 8), torch.rand(16), torch.zeros(16, 1, dtype=torch.long)
    for _ in range(60):  # the middle is a single pixel; about one in eight went wrong before it was computed in fp32
        spoilt = [torch.full((1 << k,), math.nan) for k in range(2, 20) for _ in range(20 if k < 14 else 4)]
        del spoilt
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            velocity = net(x, t, condition)
        velocity.square().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in net.parameters())
