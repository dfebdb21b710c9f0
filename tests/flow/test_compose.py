import pytest
import torch
from reference.compose import compose_plainly
from torch import Tensor

from compbench.api.factors import NULL, Weighted
from compbench.flow.compose import around_null, compose, guide, stacked
from compbench.flow.nets import UNet, VelocityNet, head


def linear_velocity(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
    """Known in closed form: x t + 10 c_0 + c_1, with NULL = -1 as it comes."""
    shift = 10 * condition[:, 0] + condition[:, 1]
    return x * t[:, None] + shift[:, None]


class SumHead(torch.nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = head(2, 8, channels)
        torch.nn.init.normal_(self.layers[-1].weight)

    def forward(self, condition: Tensor) -> Tensor:
        return self.layers(condition.float())


@pytest.fixture
def net() -> VelocityNet:
    torch.manual_seed(0)
    body = UNet((3, 8, 8), width=8)
    net = VelocityNet(body, SumHead(body.mid_channels), sample_steps=2)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return net.eval()


def test_guide_at_weight_zero_ignores_the_condition() -> None:
    v_null, v_cond = torch.randn(2, 4, 3)
    assert torch.equal(guide(v_null, v_cond, 0.0), v_null)


def test_guide_at_weight_one_is_the_conditional_velocity() -> None:
    v_null, v_cond = torch.randn(2, 4, 3)
    assert torch.equal(guide(v_null, v_cond, 1.0), v_cond)


def test_guide_extrapolates_beyond_one() -> None:
    assert torch.allclose(guide(torch.tensor([1.0]), torch.tensor([3.0]), 2.5), torch.tensor([6.0]))


def test_compose_is_the_weighted_sum() -> None:
    x, t = torch.ones(2, 3), torch.full((2,), 0.5)
    members = [Weighted(2.0, torch.tensor([[1, 0], [2, 0]])), Weighted(-1.0, torch.tensor([[0, 3], [0, 4]]))]
    # 2 (0.5 + 10) - (0.5 + 3) and 2 (0.5 + 20) - (0.5 + 4)
    expected = torch.tensor([17.5, 36.5])[:, None].expand(2, 3)
    torch.testing.assert_close(compose(linear_velocity, x, t, members), expected)


def test_compose_agrees_with_the_plain_loop_on_a_network(net) -> None:
    x, t, condition = torch.randn(4, 3, 8, 8), torch.rand(4), torch.randint(-1, 3, (4, 2))
    members = around_null(condition, (3.0, 1.0))
    with torch.no_grad():
        torch.testing.assert_close(compose(net, x, t, members), compose_plainly(net, x, t, members), rtol=1e-4, atol=1e-5)


def test_stacked_agrees_whether_or_not_the_velocity_shares_its_first_half(net) -> None:
    x, t, conditions = torch.randn(4, 3, 8, 8), torch.rand(4), torch.randint(-1, 3, (5, 4, 2))
    with torch.no_grad():
        shared = stacked(net, x, t, conditions)
        repeated = stacked(net.forward, x, t, conditions)  # a bound method has no `stacked` of its own
    torch.testing.assert_close(shared, repeated, rtol=1e-4, atol=1e-5)


def test_around_null_has_one_factor_active_in_each_slice() -> None:
    weights, conditions = zip(*around_null(torch.tensor([[4, 5, 6]]), (3.0, 1.0, 1.0)), strict=True)
    assert weights == (-4.0, 3.0, 1.0, 1.0)
    assert torch.cat(conditions).tolist() == [[NULL] * 3, [4, NULL, NULL], [NULL, 5, NULL], [NULL, NULL, 6]]


def test_around_null_is_guidance_when_there_is_one_factor() -> None:
    x, t, condition = torch.randn(3, 2), torch.rand(3), torch.tensor([[0, 2], [1, 2], [2, 2]])

    def of_the_first(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        return linear_velocity(x, t, torch.cat([condition[:, :1], torch.zeros_like(condition[:, :1])], dim=1))

    only = condition[:, :1]
    guided = guide(of_the_first(x, t, torch.full_like(only, NULL)), of_the_first(x, t, only), 2.0)
    torch.testing.assert_close(compose(of_the_first, x, t, around_null(only, (2.0,))), guided)


def test_around_null_adds_nothing_for_a_factor_left_open() -> None:
    x, t = torch.randn(2, 3), torch.rand(2)
    everything_open = torch.full((2, 2), NULL)
    velocity = compose(linear_velocity, x, t, around_null(everything_open, (3.0, 3.0)))
    torch.testing.assert_close(velocity, linear_velocity(x, t, everything_open))


def test_a_negative_weight_is_not_the_score_of_a_quotient() -> None:
    """A AND NOT B: p(x) (p(x|a)/p(x)) (p(x|b)/p(x))^-w of Gaussians is a Gaussian, whose score `compose` gives in closed form."""
    laws = {(NULL, NULL): (0.0, 4.0), (0, NULL): (1.0, 1.0), (NULL, 0): (3.0, 2.0)}  # mean and variance of each condition

    def score(x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        mean, variance = torch.tensor([laws[tuple(row)] for row in condition.tolist()]).T
        return (mean[:, None] - x) / variance[:, None]

    weight, x = 0.5, torch.linspace(-4, 4, 9)[:, None]
    composed = compose(score, x, torch.ones(9), around_null(torch.zeros(9, 2, dtype=torch.long), (1.0, -weight)))
    powers = {(NULL, NULL): weight, (0, NULL): 1.0, (NULL, 0): -weight}
    precision = sum(power / laws[cell][1] for cell, power in powers.items())
    mean = sum(power * laws[cell][0] / laws[cell][1] for cell, power in powers.items()) / precision
    assert mean < 1  # away from b, whose mean is 3: a alone has 1
    torch.testing.assert_close(composed, precision * (mean - x))


def test_not_is_undone_by_the_same_condition_with_the_same_weight() -> None:
    x, t, condition = torch.ones(2, 3), torch.full((2,), 0.5), torch.tensor([[1, 2], [3, 4]])
    members = [*around_null(condition, (1.5, 0.0)), Weighted(-2.0, condition), Weighted(2.0, condition)]
    torch.testing.assert_close(
        compose(linear_velocity, x, t, members), compose(linear_velocity, x, t, around_null(condition, (1.5, 0.0)))
    )
