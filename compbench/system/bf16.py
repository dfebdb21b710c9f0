"""Compute in bf16 at about the speed of fp32 on CPUs without fast bf16 arithmetic.

    y = bf16(fp32(a) @ fp32(b)),    and the same of convolutions and attention

This is what processors with bf16 compute: factors of 8 significant bits, sums in fp32, one rounding of the result.  Samples
differ from theirs by the order of the sums, as those of any two processors do; attention also keeps its weights in fp32.
Torch's own kernels for other CPUs go through single numbers (`tests/benchmarks/test_bf16_speed.py`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from compbench.system import devices
from compbench.system.cpu_kernels import CAN_WRAP, Kernel, accept_stacked_norms, lay_out_narrow_norms, wrapped
from compbench.system.gpu_layout import layout_kept
from compbench.system.weight_gradients import share_weight_gradients

_ATEN = torch.ops.aten
PRODUCTS = frozenset(
    operator.default
    for operator in (
        _ATEN.mm,
        _ATEN.addmm,
        _ATEN.bmm,
        _ATEN.baddbmm,
        _ATEN.convolution,
        _ATEN.convolution_backward,
        _ATEN._scaled_dot_product_flash_attention_for_cpu_backward,
    )
)
"""All results of these operators have the precision of the first argument."""
ATTENTION = _ATEN._scaled_dot_product_flash_attention_for_cpu.default
"""Its second result, the logarithms of the weights' sums, is fp32 in any precision."""


def arithmetic(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """What a run in a precision is entered with: `wide_products` for bf16 on a CPU that is not fast at it, else nothing.

    On a GPU images keep their layout (`gpu_layout`).
    On a CPU the process's group norms take stacked images of any layout from then on, and in bf16 the faster layout.
    With several threads, these share bf16 gradients of convolutions without a wait.
    """
    if device.type != "cpu":
        return layout_kept()
    accept_stacked_norms()
    if precision != "bf16":
        return contextlib.nullcontext()
    lay_out_narrow_norms()
    if not devices.has_fast_bf16(device):
        return wide_products()
    if torch.get_num_threads() > 1 and devices.has_x86_bf16():
        share_weight_gradients()
    return contextlib.nullcontext()


def wide_products() -> contextlib.AbstractContextManager[object]:
    """While it is entered, products of bf16 tensors on a CPU are computed in fp32 and rounded once."""
    return WideKernels() if CAN_WRAP else WideDispatch()  # type: ignore[no-untyped-call]


class WideKernels(contextlib.AbstractContextManager[None]):
    """By wrapping torch's kernels: no other operator is slowed down (`tests/benchmarks/test_bf16_speed.py`)."""

    def __enter__(self) -> None:
        self._library = wrapped({operator: functools.partial(_of_kernel, operator) for operator in (*PRODUCTS, ATTENTION)})

    def __exit__(self, *error: object) -> None:
        del self._library  # and torch forgets what was wrapped


class WideDispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """By a look at every operator of this thread, for a torch that lets no kernel be wrapped."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if func in PRODUCTS or func is ATTENTION:
            return _widened(func, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _of_kernel(operator: OpOverload, kernel: Kernel, keys: object, *args: object, **kwargs: object) -> object:
    return _widened(operator, functools.partial(kernel, keys), args, kwargs)


def _widened(operator: OpOverload, call: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The operator's result by `call`, in fp32 and rounded where its first argument is bf16."""
    first = args[0]
    if not isinstance(first, Tensor) or first.dtype is not torch.bfloat16:
        return call(*args, **kwargs)
    found = call(*map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})
    if operator is ATTENTION and isinstance(found, tuple | list):
        return _rounded(found[0]), found[1]
    return tuple(map(_rounded, found)) if isinstance(found, tuple | list) else _rounded(found)


def _wide(value: object) -> object:
    return value.float() if isinstance(value, Tensor) and value.dtype is torch.bfloat16 else value


def _rounded(value: object) -> object:
    return value.bfloat16() if isinstance(value, Tensor) else value
