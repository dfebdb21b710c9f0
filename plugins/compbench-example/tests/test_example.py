from types import SimpleNamespace

import torch
from compbench import NULL
from compbench.testing import check_method

from compbench_example.example import Settings, compbench_methods, sample


class Wind(SimpleNamespace):
    """A model with a velocity that is known: 1 under a condition, 0 under NULL."""

    sample_steps = 4

    def stacked(self, x, t, conditions):
        return torch.stack([torch.ones_like(x) * (c != NULL).all() for c in conditions])


# This test states the template's idea: change it together with `velocity`.
def test_sample_moves_by_w_where_the_conditional_velocity_is_one():
    from compbench import Context, NoCheckpoints, Request

    ctx = Context(torch.device("cpu"), "fp32", torch.Generator(), NoCheckpoints())
    request = Request(torch.zeros(3, 2, dtype=torch.long), torch.randn(3, 5))
    moved = sample(Settings(guidance_weight=2.5), Wind(), request, ctx) - request.x0
    assert torch.allclose(moved, torch.full((3, 5), 2.5)), "state your own idea here"


def test_the_hook_offers_the_method_under_its_entry_points_name():
    assert [method.name for method in compbench_methods()] == ["example"]


def test_the_method_keeps_the_contract():
    check_method("example", time_limit=600)
