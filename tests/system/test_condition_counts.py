"""Conditions are counted by what they tell, where a loss says that it regresses on them."""

import torch
from torch import Generator, Tensor

from compbench.api.context import Batch
from compbench.flow.expert_nets import experts_loss
from compbench.flow.independence import TeacherBatch, decentralised_loss, one_against_rest_loss, student_loss
from compbench.flow.masking import Dropout, Masking
from compbench.flow.train import flow_matching_loss
from compbench.system.condition_counts import counting, regressed

ROWS = torch.tensor([[0, 2, 1], [-1, 2, 1], [-1, -1, 3], [-1, -1, -1], [0, 0, 0]])


def test_rows_are_counted_by_how_many_factors_they_tell() -> None:
    regressed(ROWS)  # no one counts
    with counting() as counts:
        regressed(ROWS)
        regressed(ROWS[:1], torch.tensor([0]))
        regressed(ROWS[[0, 0, 0]], torch.tensor([1, 2, 4]))
    regressed(ROWS)
    assert counts.of(3) == (1 + 1, 1 + 2, 1, 2 + 1)
    assert counts.of(2) == ()


def net(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
    return x * condition.sum(1, keepdim=True)


def test_a_penaltys_conditions_are_not_regressed_on() -> None:
    batch, generator = Batch(torch.zeros(100, 2), torch.zeros(100, 3, dtype=torch.long)), Generator().manual_seed(0)
    whole, masks = Dropout(0.0), Masking(0.5, 0.5, 0.0)
    kind = torch.arange(100) % 5
    with counting() as counts:
        one_against_rest_loss(whole, 1.0)(net, batch, generator)  # asks for single factors, for NULL and for two of three, too
    assert counts.of(3) == (0, 0, 0, 100)
    with counting() as counts:
        flow_matching_loss(net, batch, generator)
        decentralised_loss(masks, 1.0)(net, batch, generator)
        student_loss(net, TeacherBatch(batch.x1, batch.x1[:, 0], batch.condition, batch.x1), 1.0, kind)
    null, single, pair, all_of_them = counts.of(3)
    assert (null, pair) == (20, 0)
    assert single + all_of_them == 280
    assert 30 < single - 60 < 70


def test_experts_regress_on_null_and_single_factors_or_on_the_rows_of_their_own_source() -> None:
    batch, generator = Batch(torch.zeros(30, 2), torch.arange(3).repeat(10)[:, None].expand(-1, 3)), Generator().manual_seed(0)

    def experts(points: list[Tensor], times: list[Tensor], conditions: list[Tensor]) -> list[Tensor]:
        return points

    for base, expected in (((), (30, 90, 0, 0)), ((0, 0, 0), (0, 0, 0, 30))):
        with counting() as counts:
            experts_loss(experts, batch, generator, base=base)
        assert counts.of(3) == expected


def test_a_compiled_loss_runs_on_uncounted() -> None:
    compiled = torch.compile(lambda condition: (regressed(condition), condition + 1)[1], backend="eager", fullgraph=True)
    with counting() as counts:
        assert torch.equal(compiled(ROWS), ROWS + 1)
    assert counts.of(3) == ()
