"""A GPU in name only: tensors that say they lie on cuda:0, are computed on the CPU, and refuse to be mixed with CPU tensors.

    with stand_in.gpu() as log:
        method.fit(settings, problem, Context(stand_in.GPU, ...))
    log.waits  # Counter of (what made the host wait, file:line)

Each operation is checked as CUDA would: arguments on one device (numbers and indices aside), random numbers from a generator
of that device, no `.numpy()`.  To C++ the tensors are CPU tensors, to Python they are not; torch's fake tensors do not do,
for they have no values, and a fit asks for some.  It says nothing of kernels, of memory, or of CUDA's own autocast lists.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
ROOT = Path(__file__).parents[2]
CPUGenerator = torch.Generator
aten = torch.ops.aten
needs_newer_torch = pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="torch 2.6 compiles not all networks of ours; runs go on without"
)
needs_torch_with_cuda = pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="this torch was built without CUDA")
"""For what C++ makes on a GPU in name only."""

INDEXING = {
    *(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default, aten.index_put_.default),
    *(aten._index_put_impl_.default, aten._unsafe_index_put.default),
}
GROUPING = ("clip_grad.py", "adam.py")
"""Files of torch that group tensors by device; the devices come from C++, which takes ours for a CPU's."""
COPIES = {aten._to_copy.default, aten.copy_.default, aten.lift_fresh.default, aten.lift_fresh_copy.default}
NEED_VALUES = {
    aten._local_scalar_dense.default: "item",
    aten.is_nonzero.default: "bool",
    aten.equal.default: "equal",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.bincount.default: "bincount",
    aten.unique_dim.default: "unique",
    aten._unique2.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
}
"""Operations whose result, or its shape, depends on numbers that only the device knows."""


@dataclass
class Log:
    """What made the host wait for the device, and where; operations on the device in all."""

    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    operations: int = 0

    def wait(self, what: str) -> None:
        self.waits[what, place()] += 1


_log = Log()
_inside = 0
"""Calls of torch with tensors of ours that are running: what C++ makes on the way lies on the GPU."""


def place() -> str:
    """The line of ours that asked, as file:line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"


@cache
def _is_ours(file: str) -> bool:
    return "/compbench" in file and "/site-packages/" not in file and Path(file).resolve() != Path(__file__).resolve()


class Generator(CPUGenerator):
    """A CPU generator that remembers which device it was made for."""

    _places: dict[int, torch.device] = {}

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = CPUGenerator.__new__(cls, "cpu")
        cls._places[made._cdata] = GPU if torch.device(device).type == "cuda" else CPU
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    @property
    def device(self) -> torch.device:
        return self.place_of(self)

    def manual_seed(self, seed: int) -> Generator:
        super().manual_seed(seed)
        return self

    @classmethod
    def place_of(cls, generator: CPUGenerator) -> torch.device:
        return cls._places.get(generator._cdata, CPU)


class OnGPU(Tensor):
    """A tensor of the stand-in: `inner` has the numbers."""

    inner: Tensor
    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnGPU:
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "layout": inner.layout}
        return Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=CPU, requires_grad=False, **layout)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnGPU({tuple(self.shape)}, {self.dtype})"

    def numpy(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError(f"can't convert cuda:0 device type tensor to numpy; use Tensor.cpu() first ({place()})")

    __array__ = numpy

    def tolist(self) -> Any:
        _log.wait("tolist")
        return self.inner.tolist()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def pin_memory(self, *arguments: Any) -> Tensor:
        raise RuntimeError(f"cannot pin a tensor of cuda:0; only dense CPU tensors can be pinned ({place()})")

    def cpu(self, *arguments: Any, **options: Any) -> Tensor:
        return self.to("cpu")

    def cuda(self, *arguments: Any, **options: Any) -> Tensor:
        return self

    def to(self, *arguments: Any, **options: Any) -> Tensor:
        device, rest = _destination(arguments, options)
        rest.pop("non_blocking", None)
        if device is not None and device.type == "cpu" and sys._getframe(1).f_code.co_filename.endswith(GROUPING):
            device = None  # its groups' devices come from C++
        if device is not None and device.type == "cpu":
            _log.wait("to cpu")
            there = _ToCPU.apply(self)
            return there.to(**rest) if rest else there
        with torch._C.DisableTorchFunctionSubclass():
            return Tensor.to(self, **rest) if rest else self

    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or GPU, requires_grad=requires_grad)

    def type_as(self, other: Tensor) -> Tensor:
        return self.to(other)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        global _inside
        kwargs = kwargs or {}
        if func is Tensor.to and not isinstance(args[0], OnGPU):  # a CPU tensor to where another one lies
            device, rest = _destination(args[1:], kwargs)
            return Tensor.to(args[0], device=device, **rest)
        _inside += 1
        try:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        finally:
            _inside -= 1

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _operate(func, args, kwargs or {})


class _ToCPU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: OnGPU) -> Tensor:
        return x.inner.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.to("cuda")


def _destination(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[torch.device | None, dict[str, Any]]:
    """Where `.to(...)` is asked to bring a tensor, or None; and the options of the call without that."""
    if arguments and isinstance(arguments[0], Tensor):
        return arguments[0].device, {**options, "dtype": arguments[0].dtype}
    rest, left = {name: value for name, value in options.items() if value is not None}, list(arguments)
    device = rest.pop("device", None)
    if left and (left[0] is None or isinstance(left[0], torch.device | str)):
        device = left.pop(0)
    if left and (left[0] is None or isinstance(left[0], torch.dtype)):
        rest |= {"dtype": left[0]} if left[0] else {}
        left.pop(0)
    rest |= dict(zip(("non_blocking", "copy"), left, strict=False))
    return (None if device is None else torch.device(device)), rest


def _operate(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation: checked, counted, and run on the CPU."""
    tensors = list(_tensors((*args, *kwargs.values())))
    mine = [tensor for tensor in tensors if isinstance(tensor, OnGPU)]
    _check_devices(func, args, mine, [tensor for tensor in tensors if not isinstance(tensor, OnGPU)])
    there = _lands_on_gpu(func, args, kwargs, tensors, mine)
    _check_generator(func, args, kwargs, there)
    if mine or there:
        _log.operations += 1
    _count_waits(func, args, kwargs, there, mine)
    plain = {name: CPU if name == "device" and value is not None else _inner(value) for name, value in kwargs.items()}
    plain.pop("pin_memory", None)
    out = func(*map(_inner, args), **plain)
    if func is aten.copy_.default:
        return args[0]
    if not there:
        return out
    if func is aten._to_copy.default and not mine and out.data_ptr() == args[0].data_ptr():
        out = out.clone()
    wrapped = _wrapped(out)
    return wrapped if func in COPIES or not mine else return_and_correct_aliasing(func, args, kwargs, wrapped)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _inner(value: Any) -> Any:
    if isinstance(value, OnGPU):
        return value.inner
    if type(value) is list or type(value) is tuple:  # `tree_map` takes many times as long
        return type(value)(map(_inner, value))
    return tree_map(_inner, value) if isinstance(value, tuple) else value


def _wrapped(out: Any) -> Any:
    if isinstance(out, Tensor):
        return out if isinstance(out, OnGPU) else OnGPU(out)
    if type(out) is list or type(out) is tuple:
        return type(out)(map(_wrapped, out))
    return tree_map(_wrapped, out) if isinstance(out, tuple) else out


@cache
def _is_fused_adam(func: Any) -> bool:
    return "_fused_adam" in str(func)


def _check_devices(func: Any, args: Any, mine: list[Tensor], others: list[Tensor]) -> None:
    """CUDA takes CPU tensors of one number, and as indices; nothing else."""
    if _is_fused_adam(func) and any(not isinstance(step, OnGPU) for step in args[5]):
        raise RuntimeError("a fused optimiser's steps must lie on the GPU")
    if not mine or not others or func in COPIES:
        return
    wrong = [tensor for tensor in others if tensor.dim() > 0]
    if func in INDEXING and isinstance(args[0], OnGPU):
        wrong = [tensor for tensor in wrong if not any(tensor is index for index in args[1])]
    if wrong:
        shapes = [tuple(tensor.shape) for tensor in wrong]
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"({func}, on the CPU {shapes}, {place()})"
        )


def _lands_on_gpu(func: Any, args: Any, kwargs: dict[str, Any], tensors: list[Tensor], mine: list[Tensor]) -> bool:
    asked = kwargs.get("device")
    asked = None if asked is None else torch.device(asked).type
    if func is aten.copy_.default:
        return isinstance(args[0], OnGPU)
    if func is aten._to_copy.default:
        return bool(mine) if asked is None else asked == "cuda" or bool(mine)
    if asked == "cpu" and not mine and not tensors and (_inside or torch._C._current_graph_task_id() != -1):
        return True  # what C++ or autograd make, by options that they took for a CPU's
    return bool(mine) or asked == "cuda"


def _check_generator(func: Any, args: Any, kwargs: dict[str, Any], there: bool) -> None:
    generator = kwargs.get("generator") or next((value for value in args if isinstance(value, CPUGenerator)), None)
    if generator is not None and (Generator.place_of(generator) == GPU) != there:
        wanted, found = ("cuda", "cpu") if there else ("cpu", "cuda")
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}' ({func}, {place()})")


def _count_waits(func: Any, args: Any, kwargs: dict[str, Any], there: bool, mine: list[Tensor]) -> None:
    if func in NEED_VALUES and mine:
        _log.wait(NEED_VALUES[func])
    if func is aten.multinomial.default and mine and (args[1] == 1 or not args[2:3] or not args[2]):
        _log.wait("multinomial")  # its CUDA code looks whether the weights make sense
    if func in INDEXING and mine:
        indices = [index for index in args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            _log.wait("index by a mask")
        if any(not isinstance(index, OnGPU) for index in indices):
            _log.wait("index on the CPU")
    if func is aten._to_copy.default and there and not mine:
        source = args[0]
        if not (kwargs.get("non_blocking") and getattr(source, "is_pinned_stand_in", False)):
            _log.wait("to cuda")
    if func is aten.copy_.default and isinstance(args[0], OnGPU) != isinstance(args[1], OnGPU) and args[1].dim() > 0:
        _log.wait("copy_")


class _Everything(TorchDispatchMode):
    """Operations without a tensor of ours: those that make one, and those that must not."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _operate(func, args, kwargs or {})

    def __enter__(self) -> _Everything:
        torch._C._ensureCUDADeviceGuardSet()
        self._before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(self._before)
        super().__exit__(*error)


DEVICE_OF = Tensor.device.__get__


class _Devices(TorchFunctionMode):
    """`.device` of tensors that `vmap` has wrapped."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor
        if func == DEVICE_OF and wrapped(args[0]):
            x = args[0]
            while wrapped(x):
                x = torch._C._functorch.get_unwrapped(x)
            return x.device
        return func(*args, **(kwargs or {}))


def _pinned(tensor: Tensor, device: Any = None) -> Tensor:
    copy = tensor.clone()
    copy.is_pinned_stand_in = True
    return copy


CUDA: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: False,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "synchronize": lambda *_: _log.wait("synchronize"),
    "get_device_name": lambda *_: "stand-in",
    "get_device_capability": lambda *_: (9, 0),
    "is_bf16_supported": lambda *_, **__: True,
    "max_memory_allocated": lambda *_: 1,
    "memory_allocated": lambda *_: 0,
    "reset_peak_memory_stats": lambda *_: None,
    "empty_cache": lambda: None,
    "mem_get_info": lambda *_: (80 << 30, 80 << 30),
    "get_rng_state": lambda *_: torch.get_rng_state(),
    "set_rng_state": lambda *_: None,
    "manual_seed": lambda *_: None,
    "manual_seed_all": lambda *_: None,
    "_lazy_init": lambda *_: None,
}


@contextlib.contextmanager
def gpu() -> Iterator[Log]:
    """Make `cuda` mean the stand-in, in this process; the log is of this block alone."""
    global _log
    if not hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        pytest.skip("the stand-in needs a later torch than 2.6")
    _log = Log()
    autocast, enabled, dtype = torch.autocast.__init__, torch.is_autocast_enabled, torch.get_autocast_dtype

    def as_cpu(self: Any, device_type: str, *arguments: Any, **options: Any) -> None:
        autocast(self, "cpu" if device_type == "cuda" else device_type, *arguments, **options)

    def cpu_enabled(*_: Any) -> bool:
        return enabled("cpu")

    def cpu_dtype(*_: Any) -> torch.dtype:
        return dtype("cpu")

    with contextlib.ExitStack() as stack:
        for name, stand_in in CUDA.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        stack.enter_context(mock.patch.object(torch, "Generator", Generator))
        for name, module in list(sys.modules.items()):
            if name.startswith("compbench") and getattr(module, "Generator", None) is CPUGenerator:
                stack.enter_context(mock.patch.object(module, "Generator", Generator))
        stack.enter_context(mock.patch.object(Tensor, "pin_memory", _pinned))
        stack.enter_context(mock.patch.object(torch.autocast, "__init__", as_cpu))
        stack.enter_context(mock.patch.object(torch, "is_autocast_enabled", cpu_enabled))
        stack.enter_context(mock.patch.object(torch, "get_autocast_dtype", cpu_dtype))
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        stack.enter_context(_Everything())
        stack.enter_context(_Devices())
        yield _log
