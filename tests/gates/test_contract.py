from dataclasses import replace

import pytest
import torch
from compbench_methods.mono import compbench_methods

from compbench.gates.contract import check

(HONEST,) = compbench_methods()


def _sample_without_noise(settings, net, request, ctx):
    return HONEST.sample(settings, net, request._replace(x0=torch.zeros_like(request.x0)), ctx)


def _sample_without_b(settings, net, request, ctx):
    condition = request.condition.clone()
    condition[:, 1] = 0
    return HONEST.sample(settings, net, request._replace(condition=condition), ctx)


def _sample_without_null(settings, net, request, ctx):
    return HONEST.sample(settings, net, request._replace(condition=request.condition.clamp(min=0)), ctx)


def _sample_double(*args):
    return HONEST.sample(*args).double()


def _fit_deaf(settings, problem, ctx):
    return HONEST.fit(settings, problem, replace(ctx, cancelled=lambda: False))


def _failed(method):
    return [row["check"] for row in check(method) if row["status"] != "ok"]


def test_the_honest_method_passes() -> None:
    assert _failed(HONEST) == []


@pytest.mark.parametrize(
    ("bug", "caught"),
    [
        ({"sample": _sample_without_noise}, "x0"),
        ({"sample": _sample_without_b}, "condition b"),
        ({"sample": _sample_without_null}, "null"),
        ({"sample": _sample_double}, "dtype"),
        ({"fit": _fit_deaf}, "cancellation"),
    ],
)
def test_a_planted_bug_is_caught_by_its_check(bug, caught) -> None:
    assert caught in _failed(replace(HONEST, **bug))
