"""Networks compiled for sampling at the shapes of the largest request; calls of any other shape run uncompiled.

A warm-up request shows how often a sampler calls its networks, and at which shapes.  If the following requests make enough calls,
the networks are compiled at those shapes.  Methods need no change: a network's functions are replaced in place.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from typing import NoReturn, TypeVar

import torch
from torch import Tensor, nn

from compbench.flow import transfer
from compbench.flow.compilation import HOW, Compiled, How, compiles, step_begins
from compbench.flow.experts import Experts, at_shared_points

FUNCTIONS = ("forward", "stacked", "at_sources")
"""Names of the functions by which samplers call a network: for one condition, for several, and for a noise network's sources."""

COMPILE_FROM = 1_000
"""Number of calls at one shape from which compiling pays: each call saves about half of a UNet's 30 ms, and compiling takes half
a minute if the code is not in the cache."""

MOST_SHAPES = 4
"""Largest number of shapes to compile for one function, the most frequent first; torch keeps eight."""

T = TypeVar("T")

POINTS_AND_TIMES = ["x_t", "t"]
"""Names of the first arguments of the forward of a velocity network, a noise network and a router."""


class CompiledSampling:
    """The functions by which samplers call a model's networks, replaced by compiled ones if that pays.

    Args:
        model: the fitted model; its networks are the outermost modules that are called at points and times.
        how: () -> options of `torch.compile`; called when something is compiled.
        least: calls at one shape from which compiling pays.
    """

    def __init__(self, model: object, how: Callable[[], How], *, least: int = COMPILE_FROM) -> None:
        self._how, self._least = how, least
        self.functions = [_Function(net, name) for net in networks(model) for name in FUNCTIONS if hasattr(net, name)]

    @property
    def note(self) -> dict[str, float]:
        """`compiled`: 1 if everything chosen for compilation ran compiled, 0 if not; empty if nothing was chosen."""
        chosen = [function.compiled for function in self.functions if function.compiled is not None]
        return {"compiled": float(all(compiled.used for compiled in chosen))} if chosen else {}

    def warmed_up(self, answer: Callable[[], T], requests: int) -> T:
        """Answer a warm-up request, then compile the networks if this many requests like it make that worthwhile."""
        self._watch()
        plain = answer()
        if not self._choose(requests):
            return plain
        with self._compiling():
            return answer()

    def _watch(self) -> None:
        """Count the calls that the next request makes, by their shapes."""
        for function in self.functions:
            function.counts.clear()

    def _choose(self, requests: int) -> bool:
        """Choose what to compile for this many requests like the watched one; return whether there is anything to compile."""
        found = [function.frequent(requests, self._least) for function in self.functions]
        if not any(found):
            return False
        torch.compiler.reset()  # torch keeps eight shapes of a network, including the fit's
        # Constants lie on the device; in the graph they would be copied there at each call.
        torch._dynamo.assume_constant_result(transfer.numbers.__wrapped__)
        how = self._how()
        for function, shapes in zip(self.functions, found, strict=True):
            function.choose(shapes, how)
        return True

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        """Run the first compiled calls; if compilation fails, the functions run uncompiled, and a warning says so."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            if reason := str(warning.message).partition("without compilation: ")[2]:
                warnings.warn(f"samples are drawn without compilation: {reason}", stacklevel=3)

    def undo(self) -> None:
        """Restore the networks' own functions."""
        for function in self.functions:
            function.undo()
        self.functions = []


class _Function:
    """One function of a network: plain, or compiled at the chosen shapes if no gradient is taken."""

    def __init__(self, net: nn.Module, name: str) -> None:
        self._net, self._name = net, name
        self.plain = getattr(type(net), name).__get__(net)
        self.compiled: Compiled | None = None
        self.counts: Counter[Hashable] = Counter()
        self.chosen: frozenset[Hashable] = frozenset()
        setattr(net, name, self)

    def __call__(self, *arguments: object, **options: object) -> Tensor:
        if torch.compiler.is_compiling() or options or torch.is_grad_enabled() or _transformed():
            return self.plain(*arguments, **options)
        shapes = tuple(map(_shape, arguments))
        self.counts[shapes] += 1
        if self.compiled is None or shapes not in self.chosen:
            return self.plain(*arguments)
        step_begins(self.compiled)
        device = next(x.device for x in arguments if isinstance(x, Tensor))
        found = self.compiled(*(_number(x, device) for x in arguments))
        return found.clone()  # the next call of the CUDA graph overwrites it

    def frequent(self, requests: int, least: int) -> frozenset[Hashable]:
        """The shapes at which this many requests make at least `least` calls."""
        return frozenset(shape for shape, count in self.counts.most_common(MOST_SHAPES) if count * requests >= least)

    def choose(self, shapes: frozenset[Hashable], how: How) -> None:
        """Compile the function at these shapes, and at no others."""
        self.chosen = shapes
        if shapes:
            followed = at_shared_points(self._net) if isinstance(self._net, Experts) else self.plain
            self.compiled = Compiled(followed, dict(how))

    def undo(self) -> None:
        if self._net.__dict__.get(self._name) is self:
            delattr(self._net, self._name)


def compiled_sampling(model: object, device: torch.device) -> CompiledSampling | None:
    """The model's networks, ready to be compiled on a GPU; None on a CPU, where it does not pay.

    Without a compiler the networks run uncompiled, and the note says so.
    """
    return CompiledSampling(model, _on_a_gpu) if device.type == "cuda" else None


def _on_a_gpu() -> How:
    return HOW["cuda"] if compiles("cuda") else {"backend": no_working_compiler}


def networks(model: object) -> list[nn.Module]:
    """The outermost modules of a model (or of a tuple of them) that have `stacked`, or a forward of points and times."""
    if isinstance(model, tuple | list):
        parts = list(model)
    elif not isinstance(model, nn.Module):
        return []
    elif _is_network(type(model)):
        return [model]
    else:
        parts = list(model.children())
    return list(dict.fromkeys(net for part in parts for net in networks(part)))


def _is_network(kind: type[nn.Module]) -> bool:
    return hasattr(kind, "stacked") or list(inspect.signature(kind.forward).parameters)[1:3] == POINTS_AND_TIMES


def _shape(argument: object) -> Hashable:
    """The key of a compiled call: shape, strides and type of a tensor; one key for all numbers; otherwise the value."""
    if isinstance(argument, Tensor):
        return tuple(argument.shape), argument.stride(), argument.dtype
    return float if isinstance(argument, float) else repr(argument)


def _number(argument: object, device: torch.device) -> object:
    """A time as a tensor, filled on the device; as a Python number it would be compiled in as a constant."""
    return torch.full((), argument, device=device) if isinstance(argument, float) else argument


def _transformed() -> bool:
    """Whether torch.func differentiates or vectorises this call."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def no_working_compiler(graph: object, inputs: object) -> NoReturn:
    """A backend of `torch.compile` that always fails, for a machine without a working compiler."""
    raise RuntimeError("no compiler works here; `compbench doctor` says what is missing")
