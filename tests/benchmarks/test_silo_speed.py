"""Ten stacked experts against a loop over them, and training inside a federation against training outside.

Ratios of CPU time on one thread in one process; `extra_info` has them.  Run with -m slow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from reference.experts import loop
from support import stand_in

from compbench.api.context import Context, NoCheckpoints
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, MethodSettings, Problem
from compbench.data.silo_shards import TensorSilo
from compbench.flow.experts import Experts
from compbench.flow.independence import decentralised_loss
from compbench.flow.masking import Masking
from compbench.flow.nets import monolithic_net
from compbench.flow.silos import recipe
from compbench.flow.train import train
from compbench.registry.registry import Registry
from compbench.testing.tiny_problems import BUDGET, PROBLEMS

pytestmark = pytest.mark.slow

SPACE = FactorSpace([Factor("left-right", 2), Factor("top-bottom", 2)])
REGISTRY = Registry()
NUM_EXPERTS, NUM_CONDITIONS = 10, 3
MASKING = Masking(0.7, 0.2, 0.1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def budget(kind: str, steps: int = 1) -> Budget:
    size = {"width": 64} if kind == "vector" else {"width": 16, "patch": 4}
    return Budget(train_steps=steps, batch_size=128, learning_rate=1e-3, sample_steps=2, **size)


def seconds(call: Callable[[], object], *, times: int) -> float:
    """CPU seconds of one call: the fastest of five rounds, which a noisy machine disturbs least."""
    rounds = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(times):
            call()
        rounds.append((time.process_time() - start) / times)
    return min(rounds)


@pytest.mark.parametrize(
    ("kind", "shape", "rows"),
    [("vector", (2,), 1), ("vector", (2,), 16), ("vector", (2,), 128), ("image", (3, 28, 28), 1)],
)
def test_ten_stacked_experts_against_a_loop(kind: str, shape: tuple[int, ...], rows: int, benchmark) -> None:
    problem = Problem(SPACE, Event(kind, shape), None, budget(kind), Holdout.empty(SPACE))
    nets = [monolithic_net(problem, head_width=1.0) for _ in range(NUM_EXPERTS)]
    for net in nets:
        for parameter in net.parameters():  # the last layers start at 0, and equal outputs would show nothing
            torch.nn.init.normal_(parameter, std=0.1)
    experts = Experts(nets[0], [net.state_dict() for net in nets])
    x, t = torch.randn(rows, *shape), torch.rand(rows)
    conditions = torch.randint(-1, 2, (NUM_EXPERTS, NUM_CONDITIONS, rows, 2))
    with torch.no_grad():
        assert torch.allclose(experts(x, t, conditions), loop(nets, x, t, conditions), atol=1e-5)
        looped = seconds(lambda: loop(nets, x, t, conditions), times=10)
        stacked = seconds(lambda: experts(x, t, conditions), times=10)
        benchmark.pedantic(lambda: experts(x, t, conditions), rounds=3)
    benchmark.extra_info["loop over stacked"] = round(looped / stacked, 2)
    print(f"{kind}, {rows} rows: {looped / stacked:.2f}x")


def test_a_federation_adds_little_to_training(benchmark) -> None:
    steps = 400
    own = budget("vector", steps)
    condition = SPACE.uniform(5000, torch.Generator().manual_seed(0))
    silo = TensorSilo("one", 2.0 * condition - 1 + 0.1 * torch.randn(5000, 2), condition)
    problem = Problem(SPACE, Event("vector", (2,)), Federation([silo]), own, Holdout.empty(SPACE))
    loss = decentralised_loss(MASKING, 0.0)
    net = monolithic_net(problem, head_width=1.0)
    make = recipe(lambda _, known: monolithic_net(known), MethodSettings(), problem)

    def context() -> Context:
        return Context(torch.device("cpu"), "fp32", torch.Generator().manual_seed(0), NoCheckpoints())

    def alone() -> None:
        train(net, loss, silo, own, context())

    def federated() -> None:
        work = lambda lent, received, ctx: train(make(), loss, lent, own, ctx).state_dict()  # noqa: E731
        problem.federation.run(work, context(), like=net.state_dict(), stage="fit")

    ratios = []
    for _ in range(7):  # pairs, so that drift of the machine meets both alike
        before = time.process_time()
        alone()
        between = time.process_time()
        federated()
        ratios.append((time.process_time() - between) / (between - before))
    overhead = sorted(ratios)[len(ratios) // 2] - 1
    benchmark.pedantic(federated, rounds=1)
    benchmark.extra_info["overhead"] = round(overhead, 4)
    print(f"federation adds {overhead:.2%}")


def operations_a_step(name: str) -> tuple[float, int]:
    """Operations that a step of a silo launches on a GPU, compiled nowhere, and the parameters of its network."""
    method, found, silos = REGISTRY.load("methods", name), [], 1
    for steps in (4, 8):
        with stand_in.gpu() as log:
            tiny = next(one for one in PROBLEMS if one.name == "silos").make(stand_in.GPU)
            problem = replace(tiny, oracle=None, budget=BUDGET.model_copy(update={"train_steps": steps}))
            before, silos = log.operations, len(problem.federation)
            context = Context(stand_in.GPU, "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
            net = method.fit(method.settings(rounds=1), problem, context)
            found.append(log.operations - before)
    return (found[1] - found[0]) / 4 / silos, len(list(net.parameters()))


def test_the_proximal_term_launches_nine_operations_a_parameter(benchmark) -> None:
    """No compiler fuses them: they are what `fedprox` costs more than `fedflow` on a GPU (docs/gpu.md)."""
    plain, parameters = benchmark.pedantic(operations_a_step, ("fedflow",), rounds=1)
    proximal, _ = operations_a_step("fedprox")
    benchmark.extra_info |= {"fedflow": plain, "fedprox": proximal, "parameters": parameters}
    print(benchmark.extra_info)
    assert 8 < (proximal - plain) / parameters < 11
