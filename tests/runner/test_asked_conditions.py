"""What a sampler asks its networks for is counted, and the networks are left as they were."""

import pytest
import torch
from torch import Generator

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Request
from compbench.registry.registry import Registry
from compbench.runner.asked_conditions import networks, watched
from compbench.testing.tiny_problems import PROBLEMS

BY_NAME = {tiny.name: tiny for tiny in PROBLEMS}
VECTOR, IMAGE, SILOS, PERTURBATION = (BY_NAME[name] for name in ("vector", "image", "silos", "perturbation"))


def shares(name: str, tiny, **changes) -> list[float]:
    """Of what an untrained model of a method is asked for, those that tell 0 ... F factors."""
    method, problem = Registry().load("methods", name), tiny.make(torch.device("cpu"))
    settings = method.settings(**changes)
    model = method.build(settings, problem)
    ctx = Context(torch.device("cpu"), "fp32", Generator().manual_seed(0), NoCheckpoints())
    condition = torch.zeros(2, len(problem.space), dtype=torch.long)
    request, before = Request(condition, torch.randn(2, *problem.event.shape)), dict(vars(networks(model)[0]))
    with watched(model) as counts:
        method.sample(settings, model, request, ctx)
    assert vars(networks(model)[0]) == before
    found = counts.of(len(problem.space))
    return [count / sum(found) for count in found]


@pytest.mark.parametrize(
    ("name", "tiny", "kinds"),
    [
        ("mono", VECTOR, {-1}),
        ("cnn-decoder", IMAGE, {-1}),
        ("slice-cfg", VECTOR, {0, 1}),
        ("ddm", SILOS, {0, 1}),
        ("naive-ode", PERTURBATION, {-1}),
        ("pem", PERTURBATION, {-1}),
    ],
)
def test_kinds_are_those_of_the_methods_composition(name, tiny, kinds) -> None:
    found = shares(name, tiny)
    assert {k for k, share in enumerate(found) if share} == {k % len(found) for k in kinds}
    if kinds == {0, 1}:
        assert found[1] == pytest.approx(found[0] * (len(found) - 1))  # NULL once, and each factor alone
