"""Every method's fit with its network compiled, by a backend that needs neither a GPU nor a C compiler."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import pytest
import torch
from support.stand_in import needs_newer_torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.interfaces import Method
from compbench.flow import compilation
from compbench.flow.blocks import ResidualBlock
from compbench.flow.train import train
from compbench.registry.registry import Registry
from compbench.testing.tiny_problems import BUDGET, OBJECTS, PROBLEMS

pytestmark = pytest.mark.usefixtures("forgotten")

CPU = torch.device("cpu")
REGISTRY = Registry()
METHODS = {entry.name: REGISTRY.load("methods", entry.name) for entry in REGISTRY.entries("methods")}
TINY = {tiny.name: tiny for tiny in (*PROBLEMS, OBJECTS)}
CASES = [
    *((name, "silos", {}) for name, method in METHODS.items() if "vector" in method.kinds),
    *((name, "objects" if "objects" in m.needs else "bumps", {}) for name, m in METHODS.items() if m.kinds == ("image",)),
    *(("low-rank", "bumps", {}), ("driftlite", "perturbation", {}), ("driftlite", "silos", {"experts": True})),
    *((name, "silos", {"local_ci": True}) for name in ("ddm", "fedflow", "dfd")),
]
FIRST = {(method.fit, method.build): name for name, method in reversed(METHODS.items())}
"""(fit, build) -> the first method that has both: the others would compile the same graph again."""
UNTRAINED = ("additive", "constant")
"""Methods of real samples: they have no network to compile."""
LEARNED = [case for case in CASES if case[0] in set(FIRST.values()) - set(UNTRAINED) and not METHODS[case[0]].oracle]
TWICE = ("pem",)
"""Methods whose loss has a gradient of the network: it is differentiated twice, which torch cannot compile."""
OFTEN = ("factored",)
"""A network of vectors, tried at every commit; the slow list has the others."""
QUICK = [case for case in LEARNED if case[0] in OFTEN and not case[2].get("local_ci")]
SLOW = [
    *(case for case in LEARNED if case not in QUICK and case[0] not in TWICE),
    *(
        (name, kind, {})
        for name, method in METHODS.items()
        if name in FIRST.values()
        for kind in ("image", "trajectory")
        if kind in method.kinds
        and not method.oracle
        and name not in ("stripes", "equivariant-decoder", *UNTRAINED, *TWICE)
        and "objects" not in method.needs
    ),
]

MOSTLY = 0.995
"""Share of the weights that end alike.  Not all: Adam divides a gradient by its own size, so a bias before a norm, whose
gradient is rounding alone, goes its own way."""


def context(*, compile: bool = True, device: torch.device = CPU) -> Context:
    torch.manual_seed(0)
    return Context(device, "fp32", torch.Generator().manual_seed(0), NoCheckpoints(), compile=compile)


def fitted(method: Method, kind: str, changes: dict[str, object], *, compile: bool) -> tuple[nn.Module, Context]:
    ctx = context(compile=compile)
    problem = replace(TINY[kind].make(CPU), oracle=None)
    return method.fit(method.settings(**changes), problem, ctx), ctx


def check(name: str, kind: str, changes: dict[str, object]) -> None:
    """One graph whatever the number of silos, nothing left out of it, and the weights of the plain fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=ResourceWarning)  # of files of other tests, once they are collected
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"torch\.")  # of torch, about itself
        warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
        found, ctx = fitted(METHODS[name], kind, changes, compile=True)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    assert ctx.notes["compiled"] == 1.0
    plain, ctx = fitted(METHODS[name], kind, changes, compile=False)
    assert ctx.notes.get("compiled") is None
    pairs = list(zip(found.state_dict().values(), plain.state_dict().values(), strict=True))
    close = torch.cat([torch.isclose(one, other, rtol=1e-2, atol=1e-3).flatten() for one, other in pairs])
    assert close.float().mean() > MOSTLY


@pytest.mark.parametrize(("name", "kind", "changes"), QUICK)
@needs_newer_torch
def test_a_method_s_fit_compiles_to_one_graph_and_learns_the_same(name: str, kind: str, changes: dict[str, object]) -> None:
    check(name, kind, changes)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "changes"), SLOW)
def test_a_method_s_fit_of_any_other_kind_compiles_too(name: str, kind: str, changes: dict[str, object]) -> None:
    check(name, kind, changes)


@pytest.mark.parametrize("name", TWICE)
def test_a_loss_that_is_differentiated_twice_is_fitted_as_it_is_where_others_compile(name: str) -> None:
    found, ctx = fitted(METHODS[name], "silos", {}, compile=True)
    plain, _ = fitted(METHODS[name], "silos", {}, compile=False)
    assert ctx.notes.get("compiled") is None
    assert all(torch.equal(one, other) for one, other in zip(found.parameters(), plain.parameters(), strict=True))


class Lines:
    """y = 2 x."""

    name, size = "lines", 10

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        x = torch.randn(size, 3, generator=generator)
        return Batch(2 * x, x)


class Asks(nn.Linear):
    """A layer that looks at a number on its way, which no compiler can follow."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if float(x.sum()) < 1e9 else x


def difference(net: nn.Module, batch: Batch, generator: torch.Generator) -> Tensor:
    return (net(batch.condition) - batch.x1).square().mean()


def weights(net: nn.Module, ctx: Context, batch_size: int = 4) -> Tensor:
    budget = BUDGET.model_copy(update={"batch_size": batch_size, "train_steps": 3})
    return train(net, difference, Lines(), budget, ctx).weight.detach()


def layer(kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    torch.manual_seed(0)
    return kind(3, 3)


def test_a_network_that_cannot_be_compiled_is_trained_as_it_is_and_the_note_says_so() -> None:
    ctx = context()
    with pytest.warns(UserWarning, match="without compilation"):
        found = weights(layer(Asks), ctx)
    assert ctx.notes == {"compiled": 0.0}
    assert torch.equal(found, weights(layer(Asks), context(compile=False)))


def test_a_machine_without_a_compiler_trains_as_it_is_and_the_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "compiles", lambda device: False)
    net, ctx = layer(), context(device=torch.device("cuda"))
    assert compilation.compiled(net, ctx) is net
    compilation.note(ctx, net)
    assert ctx.notes == {"compiled": 0.0}


def test_the_ninth_shape_of_a_process_is_trained_as_it_is_and_the_note_says_so() -> None:
    notes = []
    for size in range(2, 11):
        ctx = context()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = weights(layer(), ctx, size)
        notes.append(ctx.notes["compiled"])
        torch.testing.assert_close(found, weights(layer(), context(compile=False), size))
    assert notes == [1.0] * 8 + [0.0]
    torch.compiler.reset()  # as a contestant does between the runs of a chain
    ctx = context()
    weights(layer(), ctx, 10)
    assert ctx.notes["compiled"] == 1.0


def test_one_fit_that_was_not_compiled_shows_among_many() -> None:
    ctx = context()
    weights(layer(), ctx)
    with pytest.warns(UserWarning, match="without compilation"):
        weights(layer(Asks), ctx)
    weights(layer(), ctx)
    assert ctx.notes == {"compiled": 0.0}


def test_a_compiled_network_is_asked_for_everything_else_as_ever() -> None:
    net = TINY["silos"].make(CPU)
    made = METHODS["mono"].build(METHODS["mono"].settings(), net)
    wrapped = compilation.compiled(made, context())
    assert wrapped.sample_steps == made.sample_steps
    x, t, c = torch.randn(4, 2), torch.rand(4), torch.zeros(2, 4, 2, dtype=torch.long)
    with torch.no_grad():
        torch.testing.assert_close(wrapped.stacked(x, t, c), made.stacked(x, t, c))
        torch.testing.assert_close(wrapped(x, t, c[0]), made(x, t, c[0]))
    assert not hasattr(compilation.compiled(layer(), context()), "stacked")
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.slow
def test_a_compiled_block_takes_norm_modulation_and_activation_in_one_pass(compiler: None) -> None:
    """What stands for fused kernels of our own: the compiler's, whose names are those of the operations that each fuses."""
    from torch._inductor.utils import run_and_get_code

    torch.manual_seed(0)
    block = ResidualBlock(16, 16).eval().to(memory_format=torch.channels_last)
    nn.init.normal_(block.conv2.weight)
    h, film = torch.randn(2, 16, 8, 8).contiguous(memory_format=torch.channels_last), torch.randn(2, 32)
    with torch.no_grad():
        found, (code,) = run_and_get_code(torch.compile(block, fullgraph=True, dynamic=False), h, film)
        torch.testing.assert_close(found, block(h, film), rtol=1e-4, atol=1e-4)
    kernels = re.findall(r"^(cpp_fused\w*) = ", code, re.MULTILINE)
    assert len(kernels) == 3, kernels  # before each convolution, and the sum
    assert all("native_group_norm" in kernel and "silu" in kernel for kernel in kernels[:2]), kernels
    assert "addcmul" in kernels[1]
