"""What each sampler of compositions costs beside `naive-sde`, on one network and one request: nothing beyond its evaluations.

CPU time on one thread; `extra_info` has the ratio of times and that of the declared evaluations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Generator, nn

from compbench.api.context import Context, NoCheckpoints
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Method, Problem, Request
from compbench.flow.compose import Guidance
from compbench.registry.registry import Registry

pytestmark = pytest.mark.slow

SPACE = FactorSpace([Factor("shape", 4), Factor("hue", 10)])
HOLDOUT = Holdout.by_rule(SPACE, ["shape", "hue"], lambda a, b: (a + b) % 4 == 0)
ROWS, STEPS, PARTICLES = 8, 6, 4
SAMPLERS: dict[str, dict[str, Any]] = {
    "naive-ode": {},
    "cfg": {},
    "slice-cfg": {},
    "slice-not": {},
    "interval-cfg": {},
    "cfg-plus": {},
    "autoguidance": {},
    "anchored": {},
    "superdiff": {},
    "fkc": {"num_particles": PARTICLES},
    "rne": {"num_particles": PARTICLES},
    "driftlite": {"num_particles": PARTICLES},
    **{f"mcmc {kernel}": {"num_levels": STEPS, "num_inner": 2, "kernel": kernel} for kernel in ("mala", "ula", "hmc", "uhmc")},
}
"""What is timed: a method, and after a blank the kernel that its settings ask for."""

PLAIN = "naive-sde"
UNCOUNTED = {"mcmc": 4.0}
"""How far above its evaluations a sampler may cost: with mcmc's pilots, of which there are here as many as requests, its network
sees up to 2.65 times the rows that it declares."""


class Nothing:
    name, size = "nothing", 1


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def problem() -> Problem:
    budget = Budget(train_steps=1, batch_size=1, width=32, patch=4, learning_rate=1e-3, sample_steps=STEPS)
    return Problem(SPACE, Event("image", (3, 64, 64)), Federation([Nothing()]), budget, HOLDOUT, composed=(0, 1))


def request_of_seen_and_heldout() -> Request:
    condition = SPACE.uniform(ROWS, Generator().manual_seed(0))
    return Request(condition, torch.randn(ROWS, 3, 64, 64, generator=Generator().manual_seed(1)))


def context() -> Context:
    return Context(torch.device("cpu"), "fp32", Generator().manual_seed(2), NoCheckpoints())


def cost(name: str, settings: dict[str, Any], problem: Problem) -> tuple[Callable[[], object], int]:
    """A call that draws the request's samples, and the evaluations that the method declares for each."""
    method: Method = Registry().load("methods", name)
    chosen = method.settings(**settings)
    torch.manual_seed(0)
    model = method.build(chosen, problem).eval()
    for module in model.modules():
        if isinstance(module, nn.Module) and getattr(module, "guidance", "none") is None:
            module.guidance = Guidance.of(problem)
    return lambda: method.sample(chosen, model, request_of_seen_and_heldout(), context()), method.evaluations(chosen, problem)


def cpu_seconds(call: Callable[[], object], *, rounds: int = 3) -> float:
    call()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return sorted(times)[rounds // 2]


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_costs_what_its_evaluations_cost(name: str, problem: Problem, benchmark) -> None:
    method = name.split()[0]
    plain, one = cost(PLAIN, {}, problem)
    call, own = cost(method, SAMPLERS[name], problem)
    seconds = cpu_seconds(call)
    ratio, declared = seconds / cpu_seconds(plain), own / one
    benchmark.pedantic(call, rounds=1)
    benchmark.extra_info |= {"ratio_to_naive_sde": ratio, "evaluations_ratio": declared}
    assert 0.4 * declared < ratio < UNCOUNTED.get(method, 1.7) * declared


def test_every_sampler_over_a_shared_fit_is_timed() -> None:
    registry = Registry()
    methods = [registry.load("methods", name) for name in registry.names("methods")]
    sharing = {method.name for method in methods if method.shared_fit is not None}
    assert sharing <= {PLAIN, *(name.split()[0] for name in SAMPLERS)}
