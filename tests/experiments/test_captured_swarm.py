"""A swarm's step by a table on the device is the sampler's own step."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "gpu"))
from captured_swarm import SwarmStep, feynman_kac, swarms_captured
from support import stand_in

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Request
from compbench.flow import smc
from compbench.flow.path import VariancePreservingPath
from compbench.flow.smc import Composed
from compbench.registry.registry import Registry
from compbench.testing.tiny_problems import BUDGET, PROBLEMS

SETTINGS = smc.Settings(num_steps=12, edge=1e-3, clip=15.0, resample_below=0.5, excess=1.0)


def pulled(x: torch.Tensor, t: object) -> Composed:
    """The score of N(0, 1 / 3) over (2, 2) numbers, whose gap grows with time."""
    return Composed(-3 * x, -2 * x.flatten(2).square().sum(-1) * (t + 0.5))


@pytest.mark.parametrize("changes", [{}, {"resample_below": 1.0}, {"ess_floor": 0.5}, {"last_weight": False, "noise": False}])
def test_captured_steps_end_where_the_sampler_ends(changes: dict[str, object]) -> None:
    x, settings = torch.randn(5, 8, 2, 2, generator=torch.Generator().manual_seed(1)), SETTINGS._replace(**changes)
    found, plain = (
        way(pulled, VariancePreservingPath(), x, settings, torch.Generator().manual_seed(2))
        for way in (feynman_kac, smc.feynman_kac)
    )
    assert torch.equal(found[0].ancestors, plain[0].ancestors)
    torch.testing.assert_close(found[0].x, plain[0].x, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[0].log_weights, plain[0].log_weights, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], plain[1], rtol=1e-5, atol=1e-5)


def test_fkc_draws_the_same_samples_by_captured_steps() -> None:
    method = Registry().load("methods", "fkc")
    problem = next(tiny for tiny in PROBLEMS if tiny.name == "perturbation").make(torch.device("cpu"))
    problem = replace(problem, oracle=None, budget=BUDGET.model_copy(update={"sample_steps": 10}))
    torch.manual_seed(0)
    net = method.build(method.settings(), problem)
    condition = torch.ones(16, len(problem.space), dtype=torch.long)
    request = Request(condition, torch.randn(16, *problem.event.shape))

    def drawn() -> torch.Tensor:
        ctx = Context(torch.device("cpu"), "fp32", torch.Generator().manual_seed(3), NoCheckpoints())
        return method.sample(method.settings(), net, request, ctx)

    plain = drawn()
    with swarms_captured():
        torch.testing.assert_close(drawn(), plain, rtol=1e-4, atol=1e-5)


def test_a_captured_step_makes_the_host_wait_for_nothing() -> None:
    with stand_in.gpu() as log:
        generator = torch.Generator("cuda").manual_seed(0)
        x = torch.randn(5, 8, 2, 2, generator=generator, device="cuda")
        step = SwarmStep(pulled, VariancePreservingPath(), x, SETTINGS, generator)
        log.waits.clear()
        step.advance()
        assert log.operations > 20
        assert not log.waits
