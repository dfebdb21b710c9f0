"""anchored, coind and superdiff: what they compose, what they refuse."""

import pytest
import torch
from compbench_methods import anchored, coind, superdiff
from problems import context, one_factor_problem, vector_problem
from support.seldom import seldom
from torch import Tensor, nn

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import Request
from compbench.data.gaussian_oracle import SourceOracle
from compbench.flow.compose import Guidance
from compbench.flow.masking import DropoutSettings, size_shares
from compbench.flow.score_models import OracleModel
from compbench.registry.registry import Registry
from compbench.system.errors import Refused
from compbench.tasks.gaussian import distributions

SPACE = FactorSpace([Factor("a", 3), Factor("b", 3)])


def held(*cells: tuple[int, int]) -> Holdout:
    return Holdout(SPACE, (0, 1), tuple(sorted(cells)))


def test_anchors_are_the_corners_of_seen_rectangles() -> None:
    holdout = held((0, 0), (1, 1))
    assert holdout.anchors((0, 0)) == [(1, 2), (2, 1), (2, 2)]


def test_a_cell_without_a_rectangle_is_refused() -> None:
    """Only the diagonal is seen: two values of a cell never meet the same others."""
    holdout = held(*((a, b) for a in range(3) for b in range(3) if a != b))
    with pytest.raises(Refused, match="\\(0, 1\\).*no rectangle"):
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
    method, problem = module.compbench_methods()[0], vector_problem(train_steps=120, holdout=corners(), composed=(0, 1))
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


COMPOSERS = [
    "naive-ode",
    "naive-sde",
    "fkc",
    "mcmc",
    "rne",
    "driftlite",
    "superdiff",
    "interval-cfg",
    "cfg-plus",
    "autoguidance",
    "slice-not",
]


@pytest.mark.parametrize("name", COMPOSERS)
def test_all_that_compose_around_null_have_one_default_of_masks(name: str) -> None:
    settings = Registry().load("methods", name).settings()
    assert settings.law == DropoutSettings().law
    assert size_shares(settings.law, 6)[0] > 0.07  # one example in fourteen is NULL; it was one in a million


def test_coind_of_one_factor_is_refused() -> None:
    with pytest.raises(Refused, match="two factors"):
        coind.fit(coind.Settings(), one_factor_problem(), context())


def test_superdiff_leaves_out_factors_at_the_base() -> None:
    cells = [(1, 1), (1, 0), (0, 0)]
    found = [superdiff.members_of(torch.tensor([cell]), (0, 0), (3.0, 2.0)) for cell in cells]
    assert [[(member.weight, tuple(member.condition[0].tolist())) for member in members] for members in found] == [
        [(1, (0, 0)), (3, (1, 0)), (2, (0, 1))],
        [(1, (0, 0)), (3, (1, 0))],
        [(1, (0, 0)), (1, (0, 0))],
    ]


class Wishes(nn.Module):
    """Velocity of N(m, I): m is 2 on the axis of each factor that the condition tells, for six factors of one value."""

    base, sample_steps = (), 20

    def __init__(self, weight: float, held: tuple[bool, ...]) -> None:
        super().__init__()
        self.guidance = Guidance(weight, held)

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        mean, t = 2.0 * (condition >= 0), t[:, None]
        denoised = mean + t * (x - t * mean) / ((1 - t).square() + t.square())
        return (denoised - x) / (1 - t)


def superposed(model: nn.Module, condition: Tensor, **settings: object) -> Tensor:
    request = Request(condition, torch.randn(len(condition), 6, generator=torch.Generator().manual_seed(0)))
    return superdiff.sample(superdiff.Settings(**settings), model, request, context())


@pytest.mark.parametrize(("settings", "mean"), [({}, 2.0), ({"weight": 3.0}, 6.0), ({"guidance": 1.0}, 2 / 6)])
def test_superdiff_of_six_factors_gives_each_its_weight(settings: dict[str, float], mean: float) -> None:
    x = superposed(Wishes(1.0, (True,) * 6), torch.zeros(1000, 6, dtype=torch.long), **settings)
    assert x.mean(0).tolist() == pytest.approx([mean] * 6, rel=0.05)


def test_superdiff_counts_the_factors_that_are_asked_for() -> None:
    """Two of six are told: each has its 2, as in the product, and the others are left at NULL's 0."""
    condition = torch.full((2000, 6), -1)
    condition[:, :2] = 0
    x = superposed(Wishes(1.0, (True,) * 6), condition)
    assert x.mean(0).tolist() == pytest.approx([2.0, 2.0, 0, 0, 0, 0], abs=0.1)


def test_superdiff_without_a_pull_to_equal_densities_is_the_product_of_the_other_rows() -> None:
    """At a ridge beyond all levers kappa is w_k / sum w: the mean is 2 w_k on every axis."""
    held = (True, True, False, False, False, False)
    x = superposed(Wishes(3.0, held), torch.zeros(1000, 6, dtype=torch.long), ridge=1e6)
    assert x.mean(0).tolist() == pytest.approx([6.0, 6.0, 2, 2, 2, 2], abs=0.2)


def test_superdiff_s_ridge_grows_with_the_square_of_the_size() -> None:
    model, condition = Wishes(1.0, (True,) * 6), torch.zeros(50, 6, dtype=torch.long)
    assert torch.equal(superposed(model, condition), superposed(model, condition, ridge=9.0))
    assert not torch.equal(superposed(model, condition), superposed(model, condition, ridge=8.0))


@pytest.mark.parametrize("steps", seldom([20, 100, 1000], but=[20, 100]))
@pytest.mark.parametrize("task", ["gauss2d-nonfact-id", "gauss2d-fact-ood"])
def test_superdiff_oracle_ends_at_equal_densities(task: str, steps: int) -> None:
    """Mean |log p1 - log p2| of exact densities: 0.05, 0.02 and 0.008 at most; 0.7 to 1.4 with a ridge that knew no step."""
    laws = distributions(task, Registry().load("tasks", task).settings)
    model = OracleModel(SourceOracle(laws, torch.device("cpu")), (0, 0), steps, Guidance(1.0, (True, True)))
    request = Request(torch.ones(500, 2, dtype=torch.long), torch.randn(500, 2, generator=torch.Generator().manual_seed(0)))
    x = superdiff.sample(superdiff.OracleSettings(), model, request, context()).double()
    gap = (laws[1, 0].log_density(x) - laws[0, 1].log_density(x)).abs().mean()
    assert gap < {20: 0.07, 100: 0.03, 1000: 0.015}[steps]
