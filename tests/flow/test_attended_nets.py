"""Networks whose middle attends to the condition: what they are before training, and that factors have no order."""

import pytest
import torch
from torch import Tensor, nn

from compbench.api.factors import NULL, Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.attended_nets import AttendedNet, AttendedUNet, AttendingLayer, attended_net
from compbench.flow.blocks import Modulation
from compbench.flow.nets import monolithic_net

SIZES = (2, 3, 4)
EVENTS = (Event("image", (2, 16, 16)), Event("vector", (3,)), Event("trajectory", (3, 8)))


class Nothing:
    name, size = "nothing", 1


def problem(event: Event, prediction: str = "velocity") -> Problem:
    space = FactorSpace([Factor(name, size) for name, size in zip("abc", SIZES, strict=True)])
    budget = Budget(train_steps=1, batch_size=1, width=8, learning_rate=1e-3, sample_steps=1, prediction=prediction)
    return Problem(space, event, Federation([Nothing()]), budget, Holdout.empty(space))


def net(event: Event, *, awake: bool = True) -> AttendedNet | AttendedUNet:
    torch.manual_seed(0)
    found = attended_net(problem(event), depth=2, num_heads=2)
    if awake:
        for parameter in found.parameters():
            nn.init.normal_(parameter, std=0.1)
    return found


def inputs(event: Event, rows: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(1, *event.shape, generator=generator).expand(rows, *event.shape), torch.full((rows,), 0.5)


def test_an_untrained_network_of_images_gives_what_its_unet_gives() -> None:
    own = net(EVENTS[0])
    for layer in (part for part in own.modules() if isinstance(part, AttendingLayer)):
        for last in (layer.attention.leave, layer.mlp[2]):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)
    x, t = inputs(EVENTS[0])
    nothing = torch.zeros(len(x), own.backbone.mid_channels)
    plain = own.backbone.decode(own.backbone.encode(x, t), Modulation(nothing, nothing))
    torch.testing.assert_close(own(x, t, torch.tensor([[0, 1, 2]] * 4)), plain)


def test_every_stage_of_an_image_s_network_hears_the_condition() -> None:
    own, (x, t) = net(EVENTS[0]), inputs(EVENTS[0])
    own(x, t, torch.tensor([[0, 1, 2]] * 4)).square().sum().backward()
    layers = [part for part in own.modules() if isinstance(part, AttendingLayer)]
    assert len(layers) == 2 * 7
    assert {layer.attention.queries.in_features for layer in layers} == {8, 16, 32}
    assert all(layer.attention.keys_values.weight.grad.norm() > 0 for layer in layers)


@pytest.mark.parametrize("event", EVENTS[1:], ids=lambda event: event.kind)
def test_an_untrained_layer_leaves_the_middle_alone(event: Event) -> None:
    own = net(event, awake=False)
    x, t = inputs(event)
    middle = own.backbone.encode(x, t).middle
    assert torch.equal(own.attended(middle, torch.tensor([[0, 1, 2]] * 4)), middle)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_permuting_factors_with_their_embeddings_changes_nothing(event: Event) -> None:
    own, (x, t) = net(event), inputs(event)
    condition, order = torch.tensor([[0, 1, 2], [1, NULL, 3], [NULL, 2, 0], [1, 0, NULL]]), [2, 0, 1]
    before = own(x, t, condition)
    tables = own.tokens.table.weight.split([size + 1 for size in SIZES])
    with torch.no_grad():
        own.tokens.table.weight.copy_(torch.cat([tables[k] for k in order]))
    sizes = torch.tensor([SIZES[k] for k in order])
    own.tokens.size.copy_(sizes)
    own.tokens.first.copy_((sizes + 1).cumsum(0) - sizes - 1)
    torch.testing.assert_close(own(x, t, condition[:, order]), before)
    assert not torch.allclose(own(x, t, condition[:, order].flip(0)), before, atol=1e-3)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_every_value_and_every_null_moves_the_output(event: Event) -> None:
    rows = torch.tensor([[0, 1, 2], [1, 1, 2], [0, 2, 2], [0, 1, 3], [NULL, 1, 2], [0, 1, NULL]])
    found = net(event)(*inputs(event, len(rows)), rows)
    assert len(found.flatten(1).unique(dim=0)) == len(rows)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_the_backbone_is_that_of_the_protocol(event: Event) -> None:
    shapes = {name: tuple(own.shape) for name, own in net(event).backbone.state_dict().items()}
    assert shapes == {name: tuple(own.shape) for name, own in monolithic_net(problem(event)).backbone.state_dict().items()}
