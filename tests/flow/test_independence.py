"""Masks, compositions and penalties of DCFM against hand-made velocities."""

import pytest
import torch
from torch import Generator, Tensor, nn

from compbench.api.context import Batch
from compbench.api.factors import NULL
from compbench.flow.experts import Experts
from compbench.flow.independence import (
    Ramp,
    Routing,
    TeacherBatch,
    composed,
    decentralised_loss,
    one_against_rest_loss,
    peer_loss,
    student_loss,
)
from compbench.flow.masking import Dropout, Masking, draw_masks, sub_conditions
from compbench.flow.path import times_around


class Table(nn.Module):
    """v(x, t | c) = bias + sum of a number for each given value + cross where both are given; the same at every x."""

    def __init__(self, bias: float = 0.0, cross: float = 0.0, scale: float = 1.0) -> None:
        super().__init__()
        self.bias, self.cross = nn.Parameter(torch.tensor(bias)), nn.Parameter(torch.tensor(cross))
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        given = (condition != NULL).float()
        value = (
            self.bias + self.scale * (given * torch.tensor([1.0, 10.0]) * (1 + condition)).sum(-1) + self.cross * given.prod(-1)
        )
        return value[:, None].expand_as(x)

    def stacked(self, x: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        return torch.stack([self(x, t, condition) for condition in conditions])


def batch(count: int = 6) -> Batch:
    generator = Generator().manual_seed(0)
    return Batch(torch.randn(count, 2, generator=generator), torch.randint(0, 2, (count, 2), generator=generator))


def test_composition_of_an_additive_velocity_is_itself() -> None:
    velocities = Table(bias=0.5).stacked(
        torch.zeros(3, 2), torch.zeros(3), sub_conditions(torch.tensor([[0, 1], [1, 1], [1, 0]]))
    )
    assert torch.allclose(composed(velocities), velocities[0])
    assert torch.allclose(composed(velocities, 0.0), velocities[1])


def test_the_penalty_is_the_square_of_what_is_not_additive() -> None:
    whole = Masking(1.0, 0.0, 0.0)

    def value(net: Table, weight: float) -> float:
        return decentralised_loss(whole, weight)(net, batch(), Generator().manual_seed(1)).item()

    mixed = Table(cross=0.25)
    assert value(mixed, 4.0) - value(mixed, 0.0) == pytest.approx(4 * 0.25**2, rel=1e-3)
    assert value(Table(), 4.0) == pytest.approx(value(Table(), 0.0), rel=1e-6)


class Cells(nn.Module):
    """A free velocity of two entries for each condition of three binary factors, NULL included; the same at every x and t."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)  # (3, 3, 3, 2), NULL last

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        return self.table[condition.unbind(1)]


NULL_ALONE = Masking(0.0, 0.0, 1.0)


def penalty_of(table: Tensor, masking: Masking | Dropout = NULL_ALONE) -> tuple[Tensor, Cells]:
    """What lambda = 1 adds to the loss of three factors, and the network; its data term trains NULL alone by default."""
    net, generator = Cells(table.clone()), Generator().manual_seed(0)
    data = Batch(torch.randn(64, 2, generator=generator), torch.randint(0, 2, (64, 3), generator=generator))
    with_it, without = (one_against_rest_loss(masking, weight)(net, data, Generator().manual_seed(1)) for weight in (1.0, 0.0))
    return with_it - without, net


def test_one_against_the_rest_of_three_factors_pulls_at_the_whole_condition() -> None:
    generator = Generator().manual_seed(2)
    penalty, net = penalty_of(torch.randn(3, 3, 3, 2, generator=generator))
    penalty.backward()
    of_whole, of_pair = net.table.grad[:2, :2, :2].norm(), net.table.grad[:2, :2, 2].norm()
    assert of_whole > 0.01
    assert of_pair > 0.01


def test_one_against_the_rest_of_an_additive_field_is_zero() -> None:
    own = torch.randn(3, 3, 2, generator=Generator().manual_seed(3))  # factor, value (NULL last), entry
    own[:, 2] = 0
    additive = 0.5 + own[0][:, None, None] + own[1][None, :, None] + own[2][None, None, :]
    penalty, _ = penalty_of(additive)
    assert abs(penalty.item()) < 1e-6
    additive[0, 1, 0] += 1  # one whole condition off the sum: 1 of 8 conditions is off by 1 in both entries
    penalty, _ = penalty_of(additive)
    assert 0.03 < penalty.item() < 0.3


def test_one_against_the_rest_of_two_factors_is_the_square_of_what_is_not_additive() -> None:
    mixed, whole = Table(cross=0.25), Masking(1.0, 0.0, 0.0)
    one, none = (one_against_rest_loss(whole, weight)(mixed, batch(), Generator().manual_seed(1)).item() for weight in (4.0, 0.0))
    assert one - none == pytest.approx(4 * 0.25**2, rel=1e-3)


def times_of(loss) -> Tensor:
    """The times at which a loss evaluates its network, with the budget's location at -3."""
    found = []

    def net(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        found.append(t)
        return x

    with times_around(-3.0):
        loss(net, batch(2000), Generator().manual_seed(0))
    return torch.cat(found)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_one_against_the_rest_is_trained_at_times_around_the_budgets_location(weight) -> None:
    drawn = times_of(one_against_rest_loss(Dropout(0.2), weight))
    assert drawn.max() > drawn.min()
    assert drawn.mean() < 0.15  # logits N(-3, 1)


def test_times_of_the_decentralised_loss_are_uniform_wherever_the_budgets_location_is() -> None:
    drawn = times_of(decentralised_loss(Masking(0.5, 0.25, 0.25), 1.0))
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.05)


def test_routings_are_uniform_among_those_in_which_one_answers_oneself() -> None:
    generator = Generator().manual_seed(0)
    drawn = torch.stack([Routing.draw(0, 2, 2, generator).experts for _ in range(14_000)])
    codes = drawn @ torch.tensor([4, 2, 1])
    counts = torch.bincount(codes, minlength=8)
    assert counts[7] == 0
    assert ((counts[:7] - 2000).abs() < 5 * 2000**0.5).all()


def test_one_silo_alone_always_answers_itself() -> None:
    assert not Routing.draw(0, 1, 3, Generator().manual_seed(0)).experts.any()


def peers() -> Experts:
    nets = [Table(), Table(bias=1.0, scale=2.0)]
    return Experts(nets[0], [net.state_dict() for net in nets])


def test_the_peer_penalty_mixes_the_experts_that_the_routing_names() -> None:
    own, other, data = Table(cross=0.25), peers(), batch()
    whole, seed = Masking(1.0, 0.0, 0.0), 5
    plain = peer_loss(whole, 0.0, own=0, peers=other)(own, data, Generator().manual_seed(seed))
    full = peer_loss(whole, 1.0, own=0, peers=other)(own, data, Generator().manual_seed(seed))
    generator = Generator().manual_seed(seed)
    torch.randn(data.x1.shape, generator=generator), torch.rand(len(data.x1), generator=generator)
    draw_masks(len(data.x1), 2, whole, generator)
    routing = Routing.draw(0, 2, 2, generator).experts.tolist()
    nets = {0: own, 1: Table(bias=1.0, scale=2.0)}
    conditions = sub_conditions(data.condition)
    x, t = data.x1, torch.zeros(len(data.x1))
    answers = [nets[routing[k]](x, t, conditions[1 + k]) for k in range(3)]
    expected = (own(x, t, conditions[0]) - (answers[1] + answers[2] - answers[0])).square().mean()
    assert 1 in routing
    assert (full - plain).item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_ramp_grows_from_its_first_batch_and_goes_on_where_it_was() -> None:
    class Empty:
        name, size = "one", 1

        def batch(self, size: int, generator: Generator) -> None:
            return None

    def shares(ramp: Ramp, count: int) -> list[float]:
        found = []
        for _ in range(count):
            ramp.batch(1, Generator())
            found.append(ramp.share())
        return found

    straight = shares(Ramp(Empty(), 4), 6)
    assert straight == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    resumed = Ramp(Empty(), 4)
    resumed.seek(2)
    assert shares(resumed, 4) == straight[2:]
    assert shares(Ramp(Empty(), 0), 2) == [1.0, 1.0]


def test_a_ramp_scales_the_peer_penalty_and_not_the_regression() -> None:
    own, data, whole = Table(cross=0.25), batch(), Masking(1.0, 0.0, 0.0)

    def value(share: float) -> float:
        loss = peer_loss(whole, 2.0, own=0, peers=peers(), ramp=lambda: share)
        return loss(own, data, Generator().manual_seed(5)).item()

    assert value(0.5) == pytest.approx((value(0.0) + value(1.0)) / 2)
    assert value(0.0) == pytest.approx(peer_loss(whole, 0.0, own=0, peers=peers())(own, data, Generator().manual_seed(5)).item())


def test_peers_answers_carry_no_gradient_and_ones_own_does() -> None:
    own = Table(cross=0.25)
    peer_loss(Masking(1.0, 0.0, 0.0), 1.0, own=0, peers=peers())(own, batch(), Generator().manual_seed(5)).backward()
    assert own.cross.grad.abs() > 0


def test_a_stranger_to_a_value_is_not_asked_for_it() -> None:
    own, other = Table(), peers()
    knows = torch.zeros(2, 2, 2, dtype=torch.bool)
    knows[0] = True  # the other has seen nothing, and answers NULL at most
    for seed in range(20):
        loss = peer_loss(Masking(1.0, 0.0, 0.0), 1.0, own=0, peers=other, knows=knows)
        penalty = loss(own, batch(), Generator().manual_seed(seed)) - peer_loss(Masking(1.0, 0.0, 0.0), 0.0, own=0, peers=other)(
            own, batch(), Generator().manual_seed(seed)
        )
        # v(NULL) of the other is 1 and enters with 1 - 2: the penalty is 1 where it answers NULL, else 0.
        assert min(abs(penalty.item()), abs(penalty.item() - 1)) < 1e-4


def test_the_student_follows_its_teachers_and_is_made_independent() -> None:
    student, data = Table(cross=0.5), batch()
    t = torch.zeros(len(data.x1))
    kind = torch.zeros(len(t), dtype=torch.long)
    right = TeacherBatch(data.x1, t, data.condition, student(data.x1, t, data.condition).detach())
    assert student_loss(student, right, 0.0, kind).item() == 0
    assert student_loss(student, right, 2.0, kind).item() == pytest.approx(2 * 0.25, rel=1e-5)
