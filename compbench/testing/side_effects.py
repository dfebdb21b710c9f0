"""Detect forbidden side effects of a method: on global state, timed imports, memory, and child processes."""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import os
import random
import signal
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

LAZY = {"torch", "numpy", "compbench", "importlib", "<frozen importlib"} | set(sys.stdlib_module_names)
"""Packages whose late imports are allowed: the harness and the packages that it is built on."""

State = dict[str, Any]
"""Values of a process's state, by their names in messages."""


def global_state() -> State:
    """State of the whole process that a method must not change, by its name in messages."""
    return {
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": _default_device(),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.initial_seed() (torch.manual_seed was called)": torch.initial_seed(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.enabled": torch.backends.cudnn.enabled,
        "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "torch.set_flush_denormal": bool((torch.tensor([1e-39]) * 1.0 == 0).item()),
        "Python's random numbers (a seed, or draws)": hash(random.getstate()),
        "numpy's global random numbers (a seed, or draws)": _numpy_state(),
        "os.environ": _environment(),
        "the working directory": os.getcwd(),
        "the handler of SIGTERM": signal.getsignal(signal.SIGTERM),
        "the handler of SIGINT": signal.getsignal(signal.SIGINT),
        "the process's children": _children(),
    }


def changes(before: State, after: State) -> list[str]:
    """The differences as text, with short values shown."""
    found = []
    for name, value in before.items():
        if after[name] != value:
            if isinstance(value, dict):
                names = sorted(key for key, _ in value.items() ^ after[name].items())
                found.append(f"{name} of {', '.join(dict.fromkeys(names))}")
                continue
            short = isinstance(value, bool | int | float | str | torch.dtype) and "(" not in name.replace("()", "")
            found.append(f"{name} went from {value} to {after[name]}" if short else name)
    return found


def restore(before: State) -> None:
    """Restore global state for later checks."""
    torch.set_default_dtype(before["torch.get_default_dtype()"])
    torch.set_default_device(None)
    torch.set_grad_enabled(before["torch.is_grad_enabled()"])
    torch.use_deterministic_algorithms(before["torch.are_deterministic_algorithms_enabled()"])
    torch.set_float32_matmul_precision(before["torch.get_float32_matmul_precision()"])
    torch.set_flush_denormal(before["torch.set_flush_denormal"])
    if torch.get_num_threads() != before["torch.get_num_threads()"]:
        torch.set_num_threads(before["torch.get_num_threads()"])
    for name in ("benchmark", "deterministic", "enabled", "allow_tf32"):
        setattr(torch.backends.cudnn, name, before[f"torch.backends.cudnn.{name}"])
    if _environment() != before["os.environ"]:
        for name in _environment():
            del os.environ[name]
        os.environ.update(before["os.environ"])
    with contextlib.suppress(OSError):
        os.chdir(before["the working directory"])
    with contextlib.suppress(ValueError, TypeError):  # another thread, or a handler that Python did not set
        signal.signal(signal.SIGTERM, before["the handler of SIGTERM"])
        signal.signal(signal.SIGINT, before["the handler of SIGINT"])


class Imports(importlib.abc.MetaPathFinder):
    """An import hook that records every import of a new module, with the importing module, and finds nothing itself."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, str]] = []
        self._lazy = set(LAZY)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and (
            "importlib" in frame.f_code.co_filename or frame.f_globals.get("__name__", "").startswith("importlib")
        ):
            frame = frame.f_back
        who = str(frame.f_globals.get("__name__", ""))
        # Before torch 2.7 Triton loads its backends under their folders' names, as "amd".
        if who.split(".")[0] in self._lazy or "/triton/backends/" in frame.f_code.co_filename:
            self._lazy.add(name.split(".")[0])  # a lazy import, and everything that it imports in turn, belongs to LAZY
        else:
            self._asked.append((name, who))

    @property
    def late(self) -> list[tuple[str, str]]:
        """(module, importing module) of imports that neither the harness nor its own packages made."""
        return [(name, who) for name, who in self._asked if name in sys.modules]

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)


@contextlib.contextmanager
def frozen_heap() -> Iterator[None]:
    """Freeze existing objects so that the collector scans new ones only."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def tensor_bytes(device: torch.device) -> int:
    """Bytes of live tensors: on a GPU by the allocator, on a CPU by the tensors known to Python, counting each storage once."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return int(torch.cuda.memory_allocated(device))
    storages = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and one.layout is torch.strided:
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def python_bytes(least: int) -> tuple[int, int]:
    """Bytes that Python and numpy hold since tracing began: in blocks of at least `least` bytes, and in all."""
    large = sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size >= least)
    return large, tracemalloc.get_traced_memory()[0]


def _default_device() -> str:
    try:
        return str(torch.get_default_device())
    except AttributeError:  # torch 2.6 after `torch.set_default_device(None)`, which restores the default
        return "cpu"


def _numpy_state() -> int:
    """A hash of numpy's global generator: its state words and its position."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return 0
    _, words, place, *_ = numpy.random.get_state()
    return hash((words.tobytes(), place))


def _environment() -> dict[str, str]:
    """The environment, without variables that torch's compiler sets when it is imported."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCHINDUCTOR_", "TRITON_"))}


def _children() -> tuple[str, ...]:
    """Process ids of this process's children (Linux)."""
    found: list[str] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += file.read_text().split()
    return tuple(sorted(found))
