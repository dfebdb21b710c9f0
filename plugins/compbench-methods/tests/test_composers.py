"""anchored, coind and superdiff: what they compose, what they refuse."""

import pytest
import torch
from compbench_methods import anchored, coind, superdiff
from problems import context, one_factor_problem, vector_problem

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import Request
from compbench.system.errors import Refused

SPACE = FactorSpace([Factor("a", 3), Factor("b", 3)])


def held(*cells: tuple[int, int]) -> Holdout:
    return Holdout(SPACE, (0, 1), tuple(sorted(cells)))


def test_anchors_are_the_corners_of_seen_rectangles() -> None:
    holdout = held((0, 0), (1, 1))
    assert holdout.anchors((0, 0)) == [(1, 2), (2, 1), (2, 2)]


def test_a_cell_without_a_rectangle_is_refused() -> None:
    """Only the diagonal is seen: two values of a cell never meet the same others."""
    holdout = held(*((a, b) for a in range(3) for b in range(3) if a != b))
    with pytest.raises(Refused, match="no rectangle.*\\(0, 1\\)"):
        anchored.spread(holdout, 4)


def corners() -> Holdout:
    return Holdout.by_rule(vector_problem().space, ["left-right", "top-bottom"], lambda a, b: (a, b) == (1, 1))


def test_anchored_asks_for_seen_cells_alone_and_weights_that_sum_to_one() -> None:
    problem = vector_problem(holdout=corners(), composed=(0, 1))
    net = anchored.build(anchored.Settings(num_anchors=3), problem)
    members = anchored.composition(net, torch.tensor([[1, 1], [0, 1], [-1, 1]]))
    assert sum(member.weight for member in members) == pytest.approx(1)
    asked = [tuple(member.condition[0].tolist()) for member in members]
    assert set(asked) == {(0, 0), (0, 1), (1, 0)}
    assert all(member.condition[1:].tolist() == [[0, 1], [-1, 1]] for member in members)


def fitted(module, **settings):
    method, problem = module.compbench_methods()[0], vector_problem(train_steps=200, holdout=corners(), composed=(0, 1))
    torch.manual_seed(0)
    return method, method.fit(method.settings(**settings), problem, context())


def test_anchored_reaches_the_held_out_corner() -> None:
    """Corners of a square add up: x = (+-1, +-1), (1, 1) never seen."""
    method, model = fitted(anchored)
    x = method.sample(method.settings(), model, Request(torch.ones(200, 2, dtype=torch.long), torch.randn(200, 2)), context())
    assert (x - 1).abs().median() < 0.5


def test_the_penalty_makes_factors_independent() -> None:
    """|v(c_1) + v(c_2) - v(c_1, c_2) - v(NULL)| on seen conditions, with the penalty and without."""
    x, t = torch.randn(200, 2), torch.full((200,), 0.5)
    conditions = torch.tensor([[0, -1], [-1, 0], [0, 0], [-1, -1]])[:, None].expand(4, 200, 2)
    found = []
    for weight in (0.0, 10.0):
        model = fitted(coind, ci_weight=weight)[1]
        v = model.stacked(x, t, conditions)
        found.append(float((v[0] + v[1] - v[2] - v[3]).square().mean()))
    assert found[1] < found[0] / 3


def test_coind_of_one_factor_is_refused() -> None:
    with pytest.raises(Refused, match="two factors"):
        coind.fit(coind.Settings(), one_factor_problem(), context())


def test_superdiff_leaves_out_factors_at_the_base() -> None:
    cells = [[(1, 1)], [(1, 0)], [(0, 0)]]
    found = [superdiff.factors_alone(torch.tensor(cell), (0, 0)) for cell in cells]
    assert [[tuple(member.condition[0].tolist()) for member in members] for members in found] == [
        [(1, 0), (0, 1)],
        [(1, 0)],
        [(0, 0)],
    ]
    assert all(member.weight == 1 for members in found for member in members)
