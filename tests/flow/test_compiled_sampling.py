"""Samples of compiled networks are those of plain ones, and a record says which they are; no GPU or C compiler is needed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.stand_in import needs_newer_torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Event, Method, Request
from compbench.api.schemas import RunRequest
from compbench.flow import compiled_sampling
from compbench.flow.compilation import HOW
from compbench.flow.compiled_sampling import COMPILE_FROM, CompiledSampling, networks
from compbench.registry.registry import Registry
from compbench.runner import contestant, referee
from compbench.runner.messages import WARM_UP
from compbench.runner.one_run import run
from compbench.runner.referee import CheckedSampler
from compbench.system import devices
from compbench.testing.tiny_problems import OBJECTS, PROBLEMS, ROWS

pytestmark = pytest.mark.usefixtures("forgotten")

CPU = torch.device("cpu")
REGISTRY = Registry()
METHODS = {entry.name: REGISTRY.load("methods", entry.name) for entry in REGISTRY.entries("methods")}
TINY = {tiny.name: tiny for tiny in (*PROBLEMS, OBJECTS)}
QUICK = {"factored": "silos", "fkc": "silos"}
"""A network alone and networks of scores, each as one sampler calls it; the slow list has the others, experts among them."""
OF_KIND = {"vector": "silos", "image": "image", "trajectory": "trajectory"}
OTHERS = {
    name: "objects" if "objects" in method.needs else OF_KIND[method.kinds[0]]
    for name, method in METHODS.items()
    if method.build is not None and not method.oracle and name not in QUICK
}
DECODERS = {"stripes", *(name for name in METHODS if name.endswith("-decoder"))}
"""They are called once a request, at a condition: nothing to compile."""
UNCOMPILED = DECODERS | {"pem"}
"""pem's energies are called for their gradients, and run as they are."""
GRAPHS = {"ddm": 2, "dfd": 2, "dcfm-a": 2, "mcmc": 3}
"""Experts and a router have two graphs; chains, their line integrals and their pilots have three; all others have one."""


def on_a_cpu() -> Mapping[str, Any]:
    return HOW["cpu"]


def untrained(name: str, kind: str, device: torch.device) -> tuple[object, Any]:
    """A model with random weights, and () -> its samples."""
    method: Method = METHODS[name]
    problem, settings = replace(TINY[kind].make(device), oracle=None), method.settings()
    assert method.build is not None
    torch.manual_seed(0)
    model = method.build(settings, problem).eval()
    for parameter in model.parameters():
        parameter.data = 0.1 * torch.randn_like(parameter)
    model.to(device)
    condition = torch.zeros(ROWS, len(problem.space), dtype=torch.long, device=device)
    request = Request(condition, torch.randn(ROWS, *problem.event.shape).to(device))

    def samples() -> Tensor:
        torch.manual_seed(0)
        ctx = Context(device, "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
        return method.sample(settings, model, request, ctx)

    return model, samples


def check(name: str, kind: str, device: torch.device = CPU) -> None:
    model, samples = untrained(name, kind, device)
    plain = samples()
    sampling = CompiledSampling(model, lambda: HOW[device.type], least=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=ResourceWarning)  # of files of other tests, once they are collected
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
        torch.testing.assert_close(sampling.warmed_up(samples, 1), plain, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(samples(), plain, rtol=1e-3, atol=1e-4)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == GRAPHS.get(name, 1)
    assert sampling.note == {"compiled": 1.0}
    sampling.undo()
    assert not any(name in vars(net) for net in networks(model) for name in compiled_sampling.FUNCTIONS)
    assert torch.equal(samples(), plain)


@pytest.mark.parametrize(("name", "kind"), QUICK.items())
@needs_newer_torch
def test_samples_of_compiled_networks_are_those_of_plain_ones(name: str, kind: str) -> None:
    check(name, kind)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("name", "kind"), QUICK.items())
def test_samples_of_cuda_graphs_are_those_of_plain_networks(name: str, kind: str) -> None:
    devices.set_up(torch.device("cuda", 0), "fp32")
    check(name, kind, torch.device("cuda", 0))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [case for case in OTHERS.items() if case[0] not in UNCOMPILED])
def test_samples_of_every_other_method_compile_too(name: str, kind: str) -> None:
    check(name, kind)


class Ramp(nn.Module):
    """v = t (x + c)."""

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        return t[:, None] * (x_t + condition)


class Asks(Ramp):
    """The same, and it looks at a number on its way, which no compiler can follow."""

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        return super().forward(x_t, t, condition) if float(t.sum()) < 1e9 else x_t


@torch.no_grad()
def euler(net: nn.Module, rows: int, *, steps: int = 4) -> Tensor:
    x = torch.ones(rows, 2)
    for step in range(steps):
        x = x + net(x, torch.full((rows,), step / steps), torch.zeros(rows, 1)) / steps
    return x


def test_only_the_shape_of_the_warm_up_is_compiled_and_only_where_its_calls_pay() -> None:
    net = Ramp()
    sampling = CompiledSampling(net, on_a_cpu, least=40)
    sampling.warmed_up(partial(euler, net, 5), 9)  # 36 calls
    assert sampling.note == {}
    assert counters["stats"]["unique_graphs"] == 0
    sampling.warmed_up(partial(euler, net, 5), 10)
    assert counters["stats"]["unique_graphs"] == 1
    euler(net, 4)
    with torch.enable_grad():
        net(torch.ones(5, 2, requires_grad=True), torch.ones(5), torch.zeros(5, 1)).sum().backward()
    assert counters["stats"]["unique_graphs"] == 1
    assert sampling.note == {"compiled": 1.0}
    sampling.warmed_up(partial(euler, net, 8), 10)  # a larger request takes its place
    found = euler(net, 5)
    assert torch.equal(found, euler(Ramp(), 5))
    assert sampling.functions[0].chosen == {next(iter(sampling.functions[0].chosen))}


def test_a_network_that_cannot_be_compiled_is_sampled_as_it_is_and_the_note_says_so() -> None:
    net = Asks()
    sampling = CompiledSampling(net, on_a_cpu, least=1)
    with pytest.warns(UserWarning, match="samples are drawn without compilation"):
        found = sampling.warmed_up(partial(euler, net, 5), 1)
    assert torch.equal(found, euler(Asks(), 5))
    assert torch.equal(euler(net, 5), found)
    assert sampling.note == {"compiled": 0.0}


def test_without_a_compiler_samples_are_drawn_as_they_are_and_the_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_sampling, "compiles", lambda device: False)
    net = Ramp()
    sampling = compiled_sampling.compiled_sampling(net, torch.device("cuda"))
    assert sampling is not None
    with pytest.warns(UserWarning, match="no_working_compiler"):
        found = sampling.warmed_up(partial(euler, net, 5), COMPILE_FROM)
    assert torch.equal(found, euler(Ramp(), 5))
    assert sampling.note == {"compiled": 0.0}


def test_a_result_outlives_the_next_call() -> None:
    """CUDA graphs write each result over the one before."""
    net, kept = Ramp(), torch.zeros(5, 2)

    def overwrites(graph: Any, inputs: Any) -> Any:
        def call(*arguments: Any) -> tuple[Tensor]:
            return (kept.copy_(graph(*arguments)[0]),)

        return call

    sampling = CompiledSampling(net, lambda: {"backend": overwrites}, least=1)
    sampling.warmed_up(partial(euler, net, 5), 1)
    with torch.no_grad():
        first, second = (net(torch.full((5, 2), value), torch.ones(5), torch.zeros(5, 1)) for value in (2.0, 3.0))
    assert (first.unique().tolist(), second.unique().tolist()) == ([2.0], [3.0])
    assert sampling.note == {"compiled": 1.0}


def test_each_larger_request_warms_up_and_says_how_many_follow_and_only_on_a_gpu() -> None:
    asked: list[tuple[str, int, int]] = []

    def answer(request: Request, stream: str, follow: int = 0) -> Tensor:
        asked.append((stream, len(request.x0), follow))
        return request.x0 if request.known is None else request.known

    for warm_up in (True, False):
        asked.clear()
        sampler = CheckedSampler(
            answer,
            Event("vector", (2,)),
            RunRequest(task="t", method="m", home="/nowhere"),
            batch=4,
            progress=lambda *_: None,
            warm_up=warm_up,
        )
        known = torch.zeros(3, 2)
        sampler(torch.zeros(3, 1), stream="a")
        sampler(torch.zeros(11, 1), stream="b")
        sampler(torch.zeros(9, 1), stream="c")
        sampler(torch.zeros(3, 1), stream="d", known=known, known_mask=known == 0)
        warm_ups = [each[1:] for each in asked if each[0] == WARM_UP]
        assert warm_ups == ([(3, 1), (4, 2), (3, 1)] if warm_up else [])
        assert len(asked) - len(warm_ups) == 1 + 3 + 3 + 1
        assert (sampler.warm_up_seconds > 0) == warm_up


def test_a_run_with_compiled_samples_says_so_and_scores_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = RunRequest(method="naive-ode", task="gauss2d-fact-id", preset="smoke", home=str(home), device="cpu")
    plain = run(request, in_process=True).record
    assert plain.status == "ok", plain.reason
    assert "sample compiled" not in plain.notes
    assert counters["stats"]["unique_graphs"] == 0
    assert "warm_up" not in {stage.name for stage in plain.profile.stages}

    def on_cpu(model: object, device: torch.device) -> CompiledSampling:
        return CompiledSampling(model, on_a_cpu, least=2)

    monkeypatch.setattr(contestant, "compiled_sampling", on_cpu)
    monkeypatch.setattr(referee, "CheckedSampler", lambda *a, **k: CheckedSampler(*a, **{**k, "warm_up": True}))
    compiled = run(request, in_process=True, force=True).record
    assert compiled.status == "ok", compiled.reason
    assert compiled.notes["sample compiled"] == 1.0
    assert counters["stats"]["unique_graphs"] >= 1
    assert "warm_up" in {stage.name for stage in compiled.profile.stages}
    for one, other in zip(plain.scores, compiled.scores, strict=True):
        assert one.name == other.name
        assert other.value == pytest.approx(one.value, rel=1e-3, abs=1e-3)
