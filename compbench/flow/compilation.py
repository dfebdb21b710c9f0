"""Compiled networks for a fit; if compilation fails, the plain network runs and a note says so."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from compbench.api.context import Context

How = Mapping[str, Any]
"""Options of `torch.compile`."""
HOW: dict[str, dict[str, Any]] = {"cuda": {"mode": "reduce-overhead"}, "cpu": {"backend": "aot_eager"}}
"""How a network is compiled on each device.  A GPU uses CUDA graphs.  A CPU traces and differentiates as a GPU does and then runs
the plain operations: this costs time, but it shows without a GPU that a fit can be compiled."""


class Compiled:
    """A network whose forward, and `stacked` where it has one, are compiled at their first call.

    All other attributes are the network's own.  If a call cannot be compiled, or calls have more shapes than torch keeps (eight),
    the network runs uncompiled from then on, after one warning.

    Args:
        net: a network, whose weights are not copied, or one function of a network.
        how: options of `torch.compile`.

    Attributes:
        used: whether compiled code has run and uncompiled code has not.
    """

    def __init__(self, net: Callable[..., object], how: How) -> None:
        self._net, self._failed, self._ran = net, False, False
        self._forward = torch.compile(net, dynamic=False, fullgraph=True, **how)
        plain = getattr(net, "stacked", None)
        if plain is not None:
            self._stacked = torch.compile(plain, dynamic=False, fullgraph=True, **how)
            self.stacked = functools.partial(self._run, self._stacked, plain)

    def __call__(self, *arguments: object) -> Any:
        return self._run(self._forward, self._net, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    @property
    def used(self) -> bool:
        return self._ran and not self._failed

    def _run(self, compiled: Callable[..., object], plain: Callable[..., object], *arguments: object) -> object:
        from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException

        if not self._failed:
            try:
                found = compiled(*arguments)
            except (TorchDynamoException, FailOnRecompileLimitHit) as error:
                self._failed = True
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                warnings.warn(f"the network is trained without compilation: {reason}", stacklevel=3)
            else:
                self._ran = True
                return found
        return plain(*arguments)


def compiled(net: nn.Module, ctx: Context) -> nn.Module | Compiled:
    """The network compiled for a fit, if the context asks for it and a compiler works; otherwise the network itself."""
    if ctx.compile and (ctx.device.type == "cpu" or compiles(ctx.device.type)):
        return Compiled(net, HOW[ctx.device.type])
    return net


def note(ctx: Context, net: Callable[..., object]) -> None:
    """Write `compiled` to the context's notes: 1 if every fit so far ran compiled code, otherwise 0.

    On a CPU it is written only if compilation was requested.
    """
    if ctx.compile or ctx.device.type == "cuda":
        before = ctx.notes.get("compiled", 1.0)
        ctx.notes["compiled"] = min(before, float(isinstance(net, Compiled) and net.used))


def step_begins(net: Callable[..., object]) -> None:
    """Tell torch that outputs of CUDA graphs from the previous step are no longer needed."""
    if isinstance(net, Compiled):
        torch.compiler.cudagraph_mark_step_begin()


@functools.cache
def compiles(device: str) -> bool:
    """Whether torch's compiler works for a kind of device on this machine, by one trial.

    It needs a C++ compiler and Python's headers, and Triton for a GPU.
    """
    try:
        tried = torch.compile(lambda x: (x + torch.compiler.is_compiling()).square().sum())
        x = torch.zeros(2, device=device, requires_grad=True)
        tried(x).backward()
        return x.grad is not None and bool(torch.eq(x.grad, 2).all())
    except Exception:  # the compiler's own errors have no common base
        return False
