"""Compute in bf16 at about the speed of fp32 on CPUs without fast bf16 arithmetic.

    y = bf16(fp32(a) @ fp32(b)),    and the same of convolutions and attention

Processors with bf16 compute the same: factors with 8 significant bits, sums in fp32, one rounding of the result.  Samples differ
from theirs by the order of the sums, as between any two processors; attention also keeps its weights in fp32.  Torch's own
kernels for other CPUs process numbers one by one (`tests/benchmarks/test_bf16_speed.py`).
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
"""The second result of this operator, the logarithms of the weights' sums, is fp32 in any precision."""


def arithmetic(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """The context for a run in a precision: `wide_products` for bf16 on a CPU without fast bf16, else no change.

    On a GPU images keep their layout (`gpu_layout`).  On a CPU, from then on, the process's group norms accept stacked images in
    any layout, and in bf16 use the faster layout.  Several threads share bf16 gradients of convolutions without waiting.
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
    """A context in which products of bf16 tensors on a CPU are computed in fp32 and rounded once."""
    return WideKernels() if CAN_WRAP else WideDispatch()  # type: ignore[no-untyped-call]


class WideKernels(contextlib.AbstractContextManager[None]):
    """`wide_products` by wrapping torch's kernels, which slows no other operator (`tests/benchmarks/test_bf16_speed.py`)."""

    def __enter__(self) -> None:
        self._library = wrapped({operator: functools.partial(_of_kernel, operator) for operator in (*PRODUCTS, ATTENTION)})

    def __exit__(self, *error: object) -> None:
        del self._library  # deleting it unregisters the kernels


class WideDispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`wide_products` by intercepting every operator of this thread, for a torch without access to its kernels."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if func in PRODUCTS or func is ATTENTION:
            return _widened(func, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _of_kernel(operator: OpOverload, kernel: Kernel, keys: object, *args: object, **kwargs: object) -> object:
    return _widened(operator, functools.partial(kernel, keys), args, kwargs)


def _widened(operator: OpOverload, call: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The operator's result by `call`, computed in fp32 and rounded if its first argument is bf16."""
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
