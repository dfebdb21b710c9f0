"""Classifier-free guidance of the whole condition on exact velocities, and what its fit draws."""

import pytest
import torch
from compbench_methods import cfg
from problems import context, vector_problem
from torch import Tensor, nn

from compbench import Request
from compbench.api.factors import NULL
from compbench.flow.compose import Guidance

CORNERS = torch.tensor([[0, 1], [1, 1]] * 4)


class Points(nn.Module):
    """v = (m(c) - x) / (1 - t): NULL is the point 0, a whole condition its corner; no other condition is known."""

    sample_steps, guidance = 20, Guidance(3.0, (True, False))

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        told = condition != NULL
        assert bool((told.all(1) | ~told.any(1)).all())
        return (torch.where(told, 2.0 * condition - 1, 0.0) - x) / (1 - t[:, None])


@pytest.mark.parametrize(("settings", "weight"), [({}, 3.0), ({"weight": 1.0}, 1.0), ({"weight": 0.0}, 0.0)])
def test_the_whole_condition_is_guided_from_null_by_one_weight(settings: dict[str, float], weight: float) -> None:
    """The task's weight is the whole condition's, whatever factors the holdout is about."""
    ctx = context()
    x = cfg.sample(cfg.Settings(**settings), Points(), Request(CORNERS, torch.randn(8, 2)), ctx)
    assert torch.allclose(x, weight * (2.0 * CORNERS - 1), atol=1e-4)
    assert ctx.notes["guidance_weight"] == weight


def test_conditions_are_masked_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    plain = cfg.flow_matching_loss

    def watched(net, batch, generator):
        seen.append(batch.condition)
        return plain(net, batch, generator)

    monkeypatch.setattr(cfg, "flow_matching_loss", watched)
    cfg.fit(cfg.Settings(dropout=0.2), vector_problem(train_steps=40), context())
    told = torch.cat(seen) != NULL
    assert bool((told.all(1) | ~told.any(1)).all())
    assert (~told.any(1)).double().mean().item() == pytest.approx(0.2, abs=0.03)


def test_a_sample_takes_two_evaluations_a_step() -> None:
    problem = vector_problem()
    assert cfg.evaluations(cfg.Settings(), problem) == 2 * problem.budget.sample_steps


def test_fitted_samples_lie_in_the_corners_that_were_asked_for() -> None:
    torch.manual_seed(0)
    net = cfg.fit(cfg.Settings(), vector_problem(), context())
    condition = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(64, 1)
    x = cfg.sample(cfg.Settings(), net, Request(condition, torch.randn(256, 2)), context())
    assert ((x > 0).long() == condition).float().mean() > 0.98
