"""Autoguidance on exact velocities: point masses at the corners, which the weak network has half as far out."""

from dataclasses import replace

import pytest
import torch
from compbench_methods import autoguidance
from problems import context, vector_problem
from torch import Tensor, nn

from compbench.api.interfaces import Request
from compbench.flow.compose import Guidance
from compbench.system.errors import Refused


class Points(nn.Module):
    """v = (m(c) - x) / (1 - t) of a point mass at m = reach (2 c - 1), 0 where open."""

    sample_steps, guidance = 20, Guidance(3.0, (True, False))

    def __init__(self, reach: float) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        target = torch.where(condition < 0, 0.0, self.reach * (2.0 * condition - 1))
        return (target - x) / (1 - t[:, None])


REQUEST = Request(torch.tensor([[0, 1], [1, 1]] * 4), torch.randn(8, 2, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(("weight", "reach"), [(0.0, 0.5), (1.0, 1.0), (2.0, 1.5)])
def test_samples_go_on_from_the_weak_network_beyond_the_good_one(weight, reach) -> None:
    nets = autoguidance.Pair(Points(1.0), Points(0.5))
    x = autoguidance.sample(autoguidance.Settings(weight=weight), nets, REQUEST, context())
    assert torch.allclose(x, reach * (2.0 * REQUEST.condition - 1), atol=1e-5)


class Whole(Points):
    """Knows whole conditions and nothing else."""

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        assert bool((condition >= 0).all())
        return super().forward(x, t, condition)


def test_both_networks_are_asked_for_the_whole_condition_alone() -> None:
    settings, problem = autoguidance.Settings(), vector_problem()
    autoguidance.sample(settings, autoguidance.Pair(Whole(1.0), Whole(0.5)), REQUEST, context())
    assert autoguidance.evaluations(settings, problem) == 2 * problem.budget.sample_steps


def test_composed_slices_have_the_weights_of_all_composed_rows() -> None:
    """Slices of weights 3 and 1 of points at +-1 and +-1/2, guided with w = 2: 3 (1.5), and 1.5."""
    settings, ctx = autoguidance.Settings(how="composed"), context()
    x = autoguidance.sample(settings, autoguidance.Pair(Points(1.0), Points(0.5)), REQUEST, ctx)
    assert torch.allclose(x, torch.tensor([4.5, 1.5]) * (2.0 * REQUEST.condition - 1), atol=1e-4)
    assert ctx.notes["guidance_weight"] == 3.0


def test_whole_conditions_need_no_null_where_compositions_stand_around_a_base() -> None:
    based = replace(vector_problem(train_steps=2), base=(0, 0))
    assert isinstance(autoguidance.fit(autoguidance.Settings(), based, context()), autoguidance.Pair)
    with pytest.raises(Refused, match="needs a model of NULL"):
        autoguidance.fit(autoguidance.Settings(how="composed"), based, context())


@pytest.mark.slow
def test_the_weak_network_has_its_share_of_the_steps_and_fits_worse() -> None:
    problem, reported = vector_problem(train_steps=250), []
    torch.manual_seed(0)
    nets = autoguidance.fit(
        autoguidance.Settings(), problem, context(progress=lambda done, total: reported.append((done, total)))
    )
    assert reported[-1] == (250, 250)
    asked = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).repeat(100, 1)
    request = Request(asked, torch.randn(400, 2, generator=torch.Generator().manual_seed(1)))
    off = {
        weight: (autoguidance.sample(autoguidance.Settings(weight=weight), nets, request, context()) - (2.0 * asked - 1)).norm(
            dim=1
        )
        for weight in (0.0, 1.0)
    }
    assert off[1.0].mean() < 0.7 * off[0.0].mean()
