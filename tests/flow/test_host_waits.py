"""Every method on a GPU in name only: it keeps to the device, and in no loop does the host wait for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support import stand_in
from support.seldom import slow

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Method, Request
from compbench.flow.independence import draw_one
from compbench.flow.train import LOSS_WINDOW, train
from compbench.flow.transfer import numbers, send
from compbench.registry.registry import Registry
from compbench.store.loss_curves import LossCurves
from compbench.system.errors import Refused
from compbench.testing.tiny_problems import BUDGET, OBJECTS, PROBLEMS, ROWS

WAITS: dict[str, tuple[float, float]] = {}
"""Method -> waits of the host in one step of a fit and of sampling; methods that are not here wait in neither.  These numbers
only fall: who makes a loop wait finds the line in the failure, and who spares a wait takes it out here."""

TRAIN_STEPS, SAMPLE_STEPS = 2, 1
FITS: dict[tuple[object, ...], tuple[object, stand_in.Log]] = {}
"""Model and waits of each fit: methods that say that they share one are looked at once while they fit."""

REGISTRY = Registry()
METHODS = {entry.name: REGISTRY.load("methods", entry.name) for entry in REGISTRY.entries("methods")}
TINY = {tiny.name: tiny for tiny in (*PROBLEMS, OBJECTS)}
OF_KIND = {"vector": ("vector", "perturbation", "silos"), "image": ("bumps", "image"), "trajectory": ("trajectory",)}


def problems(name: str, method: Method) -> list[str]:
    """Names of the tiny problems that a method takes, the quickest first."""
    if method.oracle:
        return ["perturbation"]
    if "objects" in method.needs:
        return ["objects"]
    found = [problem for kind in method.kinds for problem in OF_KIND[kind]]
    return ["bumps"] if name == "stripes" else found


LIKE_ANOTHER = (
    *("dcfm-a", "fedavgm", "fedprox", "local", "mcmc-oracle", "soup"),
    *("cfg", "cfg-plus", "centralised", "coind-not", "fkc-oracle", "fourier-decoder", "interval-cfg", "mono", "naive-ode-oracle"),
    *("naive-sde", "naive-sde-oracle", "pem-oracle", "pixel-decoder", "rne-oracle", "slice-not", "superdiff-oracle"),
)
"""Methods whose loops another one has too; `.ci/slow` has them."""
CASES = [(name, problem) for name, method in METHODS.items() for problem in problems(name, method)]
LONG = {
    *("cross-attention", "dcfm-b", "dfd", "dit", "driftlite", "fedflow", "scaffold", "superdiff-or", "task-arithmetic"),
    "transformer-decoder",
}
"""Methods that take half a second or more; like others, they are for `.ci/slow`."""
SHORT = [(name, problem) for name, problem in CASES if problem == problems(name, METHODS[name])[0] and name not in LIKE_ANOTHER]


def logs_of(name: str, problem_name: str, times: int) -> dict[str, stand_in.Log]:
    """A fit and a request with so many times the steps, and what each made the host wait for."""
    method, logs = METHODS[name], {}
    own = {"num_levels": 1 + SAMPLE_STEPS * times} if name.startswith("mcmc") else {}  # where the budget has no say
    rounds = {"rounds": 2} if "rounds" in method.settings.model_fields else {}
    settings = method.settings(**own, **rounds)

    def context(seed: int) -> Context:
        torch.manual_seed(seed)
        return Context(stand_in.GPU, "fp32", torch.Generator().manual_seed(seed), NoCheckpoints())

    budget = BUDGET.model_copy(update={"train_steps": TRAIN_STEPS * times, "sample_steps": SAMPLE_STEPS * times})
    with stand_in.gpu() as log:
        problem = replace(TINY[problem_name].make(stand_in.GPU), budget=budget)
        asked = str(method.shared_fit(settings, problem)) if method.shared_fit else name
        alike = (method.fit, asked, problem_name, times)
        if alike not in FITS:
            FITS[alike] = method.fit(settings, problem if method.oracle else replace(problem, oracle=None), context(0)), log
    model, logs["fit"] = FITS[alike]
    with stand_in.gpu() as log:
        condition = torch.zeros(ROWS, len(problem.space), dtype=torch.long, device=stand_in.GPU)
        x0 = torch.randn(ROWS, *problem.event.shape, device=stand_in.GPU)
        known = (None, None)
        if problem.event.kind == "trajectory":
            mask = torch.zeros_like(x0, dtype=torch.bool)
            mask[..., 0] = True
            known = (torch.zeros_like(x0), mask)
        samples = method.sample(settings, model, Request(condition, x0, *known), context(1))
        assert samples.device == stand_in.GPU
        assert samples.shape == x0.shape
    logs["sample"] = log
    return logs


def waits_a_step(name: str, problem: str) -> tuple[float, float]:
    """What twice the steps add, over the steps that they add; the tests' own silos are not counted."""
    once, twice = logs_of(name, problem, 1), logs_of(name, problem, 2)
    found = []
    for part, steps in (("fit", TRAIN_STEPS), ("sample", SAMPLE_STEPS)):
        more = {at: count - once[part].waits[at] for at, count in twice[part].waits.items() if "tiny_problems" not in at[1]}
        found.append(sum(max(count, 0) for count in more.values()) / steps)
        if found[-1]:
            print(name, problem, part, {f"{what} at {line}": count for (what, line), count in more.items() if count > 0})
    return found[0], found[1]


@pytest.mark.parametrize(("name", "problem"), [slow(case) if case[0] in LONG else case for case in SHORT])
def test_no_step_of_a_method_waits_for_the_device(name: str, problem: str) -> None:
    assert waits_a_step(name, problem) == WAITS.get(name, (0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "problem"), [case for case in CASES if case not in SHORT])
def test_no_step_of_a_method_waits_on_any_problem(name: str, problem: str) -> None:
    try:
        found = waits_a_step(name, problem)
    except Refused as error:
        pytest.skip(f"the method refuses this problem: {error}")
    assert found == WAITS.get(name, (0, 0))


def test_curves_of_losses_are_read_where_the_loop_looks_at_them_and_nowhere_else() -> None:
    """One read a window, behind the look that has waited for the device; no wait in any step."""

    def waits(steps: int, curves: LossCurves | None) -> int:
        budget = BUDGET.model_copy(update={"train_steps": steps})
        with stand_in.gpu() as log:
            problem = TINY["vector"].make(stand_in.GPU)
            context = Context(stand_in.GPU, "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
            if curves is not None:
                context.watched = lambda part, window: curves.add(f"fit{part}", window)
            net = torch.nn.Linear(problem.event.shape[0], 1)
            train(net, lambda net, batch, generator: net(batch.x1).square().mean(), problem.federation.pooled(), budget, context)
        return log.waits.total()

    looks = {LOSS_WINDOW - 1: 1, LOSS_WINDOW: 1, LOSS_WINDOW + 9: 2}
    for steps, count in looks.items():
        curves = LossCurves()
        assert waits(steps, curves) - waits(steps, None) == count
        assert sum(len(curve.steps) for curve in curves.found()) == count


def test_the_table_names_methods_that_are() -> None:
    assert WAITS.keys() <= METHODS.keys()


@stand_in.needs_torch_with_cuda
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda x: x + torch.ones(3), "same device"),
        (lambda x: torch.cat([x, torch.arange(3.0)]), "same device"),
        (lambda x: x.numpy(), "numpy"),
        (lambda x: torch.randn(3, device=x.device, generator=torch.Generator()), "generator"),
        (lambda x: torch.randn(3, generator=torch.Generator(x.device)), "generator"),
        (lambda x: torch.nn.Linear(3, 3)(x), "same device"),
        (lambda x: torch.ones(3)[x.long()], "same device"),
        (lambda x: x.pin_memory(), "pin"),
    ],
)
def test_the_stand_in_refuses_what_cuda_refuses(fault, message: str) -> None:
    with stand_in.gpu():
        x = torch.zeros(3).to("cuda")
        with pytest.raises((RuntimeError, TypeError), match=message):
            fault(x)


@pytest.mark.parametrize(
    ("wait", "count"),
    [
        (lambda x: float(x.sum()), 1),
        (lambda x: bool((x > 0).any()), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x[[0, 1]], 1),
        (lambda x: torch.multinomial(x + 1, 1), 1),
        (lambda x: torch.tensor([1.0], device=x.device), 1),
        (lambda x: torch.zeros(3).to(x.device, non_blocking=True), 1),
        (lambda x: send(torch.zeros(3), x.device), 0),
        (lambda x: x.new_full((3,), 2.0) * 2 + torch.ones(()), 0),
        (lambda x: torch.multinomial(x + 1, 2, replacement=True), 0),
    ],
)
def test_the_stand_in_counts_what_the_host_waits_for(wait, count: int) -> None:
    with stand_in.gpu() as log:
        x = torch.zeros(3, device="cuda")
        wait(x)
    assert log.waits.total() == count


def test_constants_are_sent_once() -> None:
    with stand_in.gpu() as log:
        found = [numbers((3.0, 0.125, 7.0), stand_in.GPU, torch.float32) for _ in range(5)]
    assert log.waits.total() == 1
    assert all(one is found[0] for one in found)
    cpu = torch.device("cpu")
    assert torch.equal(numbers((1, 0), cpu, torch.float32), torch.tensor([1.0, 0.0]))
    assert torch.equal(numbers((1.0, 0.0), cpu, torch.long), torch.tensor([1, 0]))


def test_one_draw_by_weight_is_torch_s_own_draw() -> None:
    weights = torch.tensor([0.1, 3.0, 0.0, 2.0])
    for seed in range(50):
        wanted = torch.multinomial(weights, 1, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(draw_one(weights, torch.Generator().manual_seed(seed)), wanted)
