"""Networks on patches against known answers: what they are before training, and what an output can and cannot depend on."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from compbench.api.factors import NULL
from compbench.flow.attention import SelfAttention
from compbench.flow.nets import UNet, VelocityNet
from compbench.flow.token_nets import AdaptiveBlock, AllPlaces, Neighbours, TokenNet, patch_of, velocity_of
from compbench.system.errors import CompbenchError

MIXERS = {
    "attention": lambda number, width: AllPlaces(SelfAttention(width, 4)),
    "neighbours": lambda number, width: Neighbours(width) if number < 1 else nn.Linear(width, width),
}


def net(mixer: str = "attention", *, prediction: str = "velocity", awake: bool = True) -> TokenNet:
    """A network of 2 x 24 x 24 pixels in patches of 4; `awake` gives the layers that begin at zero some weight."""
    torch.manual_seed(0)
    make = partial(TokenNet, (2, 24, 24), (2, 3), width=16, depth=3, patch=4, sample_steps=5)
    found = make(mixer=MIXERS[mixer], prediction=prediction)
    if awake:
        for parameter in found.parameters():
            nn.init.normal_(parameter, std=0.1)
    return found


def inputs(rows: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 2, 24, 24, generator=generator)
    return x, torch.linspace(0.2, 0.8, rows), torch.tensor([[0, 2], [1, NULL]])[:rows]


@pytest.mark.parametrize("mixer", MIXERS)
def test_an_untrained_block_is_the_identity_whatever_its_embedding(mixer: str) -> None:
    torch.manual_seed(0)
    h, block = torch.randn(3, 5, 5, 16), AdaptiveBlock(16, MIXERS[mixer](0, 16))
    assert torch.equal(block(h, 10 * torch.randn(3, 16)), h)


def test_an_untrained_network_denoises_to_zero() -> None:
    x, t, condition = inputs()
    assert torch.equal(net(awake=False)(x, t, condition), torch.zeros_like(x))
    expected = -x / (1 - t)[:, None, None, None]
    torch.testing.assert_close(net(awake=False, prediction="denoised")(x, t, condition), expected)


@pytest.mark.parametrize("prediction", ["velocity", "denoised"])
def test_an_output_means_the_velocity_that_the_protocols_networks_take_it_for(prediction: str) -> None:
    x, output = torch.randn(3, 1, 4, 4), torch.randn(3, 1, 4, 4)
    t = torch.tensor([0.0, 0.5, 1.0])
    unet = UNet((1, 4, 4), width=8)
    unet.decode = lambda trunk, modulation: output
    own = VelocityNet(unet, lambda condition: torch.zeros(3, 64), sample_steps=1, prediction=prediction)
    assert torch.equal(velocity_of(output, x, t, prediction), own(x, t, torch.zeros(3, 1).long()))


def dependence(network: TokenNet, row: int, column: int) -> Tensor:
    """Which pixels the output at one pixel depends on, bool (24, 24)."""
    x, t, condition = inputs(1)
    (gradient,) = torch.autograd.grad(network(x.requires_grad_(), t, condition)[0, 0, row, column], x)
    return (gradient != 0).any(1)[0]


@pytest.mark.parametrize(("row", "column"), [(13, 9), (0, 0), (23, 11)])
def test_a_local_network_depends_on_neighbouring_patches_and_on_nothing_beyond(row: int, column: int) -> None:
    found, within = dependence(net("neighbours"), row, column), torch.zeros(24, 24, dtype=torch.bool)
    top, left = (4 * (place // 4 - 1) for place in (row, column))
    within[max(top, 0) : top + 12, max(left, 0) : left + 12] = True
    assert torch.equal(found, within)


def test_a_denoised_output_of_a_local_network_is_as_local() -> None:
    assert dependence(net("neighbours", prediction="denoised"), 13, 9).sum() == 12 * 12


def test_attention_sees_the_whole_image() -> None:
    assert dependence(net("attention"), 13, 9).all()


def test_patches_are_told_apart_by_their_place() -> None:
    x, t, condition = torch.zeros(1, 2, 24, 24), torch.tensor([0.5]), torch.tensor([[0, 2]])
    patches = net("neighbours")(x, t, condition).unfold(2, 4, 4).unfold(3, 4, 4).flatten(2, 3)[0, 0]  # (36, 4, 4)
    assert len(patches.flatten(1).unique(dim=0)) == 36


def test_every_value_of_a_condition_moves_the_output_and_an_open_factor_is_no_value() -> None:
    x, t, _ = inputs(1)
    rows = torch.tensor([[0, 0], [1, 0], [0, 1], [0, 2], [NULL, 0], [0, NULL]])
    found = net()(x.expand(6, -1, -1, -1), t.expand(6), rows)
    assert len(found.flatten(1).unique(dim=0)) == 6


@pytest.mark.parametrize(
    ("shape", "tokens", "patch"), [((3, 64, 64), 8, 8), ((1, 28, 28), 8, 4), ((3, 64, 64), 64, 1), ((1, 8, 12), 3, 4)]
)
def test_a_patch_is_the_smallest_that_leaves_few_enough_tokens(shape: tuple[int, ...], tokens: int, patch: int) -> None:
    assert patch_of(shape, tokens) == patch


def test_sides_that_no_patch_divides_into_so_few_tokens_are_refused() -> None:
    with pytest.raises(CompbenchError, match="no patch divides images of 8 x 27 into at most 8 tokens a side; set tokens to 27"):
        patch_of((1, 8, 27), 8)
