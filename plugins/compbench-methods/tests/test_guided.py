"""Guidance in an interval and CFG++ on exact velocities: point masses at the corners of a square, NULL their mean."""

import pytest
import torch
from compbench_methods import guided
from problems import context
from torch import Tensor, nn

from compbench.api.interfaces import Request
from compbench.flow.compose import Guidance


class Points(nn.Module):
    """v = (m(c) - x) / (1 - t) of a point mass at m: 2 c - 1, 0 where open."""

    sample_steps, guidance = 20, Guidance(3.0, (True, True))

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        target = torch.where(condition < 0, 0.0, 2.0 * condition - 1)
        return (target - x) / (1 - t[:, None])


REQUEST = Request(torch.tensor([[0, 1], [1, 1]] * 4), torch.randn(8, 2, generator=torch.Generator().manual_seed(0)))
CORNERS = 2.0 * REQUEST.condition - 1


def interval(**settings) -> Tensor:
    return guided.in_interval(guided.IntervalSettings(**settings), Points(), REQUEST, context())


def test_an_interval_that_ends_early_leaves_the_plain_composition() -> None:
    assert torch.allclose(interval(begin=0.0, end=0.5), CORNERS, atol=1e-5)


def test_an_interval_up_to_the_data_guides_all_the_way() -> None:
    assert torch.allclose(interval(begin=0.0, end=1.0), 3 * CORNERS, atol=1e-5)


def test_the_tasks_weight_counts_on_the_composed_factors_alone() -> None:
    net, ctx = Points(), context()
    net.guidance = Guidance(2.0, (False, True))
    x = guided.in_interval(guided.IntervalSettings(end=1.0), net, REQUEST, ctx)
    assert torch.allclose(x, torch.tensor([1.0, 2.0]) * CORNERS, atol=1e-5)
    assert ctx.notes["guidance_weight"] == 2.0


@pytest.mark.parametrize(("strength", "steps", "weight"), [(0.6, 20, 2.3), (0.6, 40, 4.3), (0.6, 100, 10.3)])
def test_the_strength_of_a_weight_has_that_weight_on_average(strength: float, steps: int, weight: float) -> None:
    """The mean of lambda t' (1 - t) / h, summed step by step."""
    mean = sum(strength * (k + 1) / steps * (1 - k / steps) * steps for k in range(steps)) / steps
    assert mean == pytest.approx(weight, abs=0.05)
    assert guided.strength_of(mean, steps) == pytest.approx(strength)


def test_a_strength_is_at_most_one() -> None:
    assert guided.strength_of(20.0, 10) == 1.0


def test_cfg_plus_guides_the_composed_factors_by_the_tasks_weight_and_the_others_by_one() -> None:
    net = Points()
    net.guidance = Guidance(2.0, (False, True))
    x = guided.renoised(guided.PlusSettings(), net, REQUEST, context())
    strengths = torch.tensor([guided.strength_of(weight, net.sample_steps) for weight in (1.0, 2.0)])
    assert strengths.tolist() == pytest.approx([120 / 462, 240 / 462])
    assert torch.allclose(x, strengths * CORNERS, atol=1e-5)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_the_last_step_of_cfg_plus_is_the_guided_estimate(strength: float) -> None:
    x = guided.renoised(guided.PlusSettings(strength=strength), Points(), REQUEST, context())
    assert torch.allclose(x, strength * CORNERS, atol=1e-5)


def test_an_interval_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="begin must not be after end, got 0.8 and 0.2"):
        guided.IntervalSettings(begin=0.8, end=0.2)
