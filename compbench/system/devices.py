"""Devices: which device a run gets, its class on the boards, and the precision in which it is fast."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    import torch


def resolve(device: str) -> torch.device:
    """The device of a name: "auto" is the first GPU, else the CPU.

    Raises:
        CompbenchError: no such device here.
    """
    import torch

    if device == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise CompbenchError(f"no device is called '{device}'; use auto, cpu, cuda or cuda:N.") from error
    if found.type == "cuda":
        count = torch.cuda.device_count()
        if (found.index or 0) >= count:
            raise CompbenchError(f"--device {device}: this machine has {count} CUDA device(s); try --device cpu.")
        return torch.device("cuda", found.index or 0)
    if found.type != "cpu":
        raise CompbenchError(f"--device {device}: compbench runs on cpu and cuda.")
    return found


def on_gpu(device: torch.device) -> bool:
    """Whether a device is a GPU.

    The identity of a run on a CPU leaves out each statement `if on_gpu(device): ...` without an else, since such a run never
    executes its body (`compbench.registry.meaning`): a faster way for GPUs leaves records of CPUs as they are.
    """
    return device.type == "cuda"


def start_cuda(nodes: Path = Path("/dev")) -> bool:
    """Load CUDA's driver library into this process, if this machine has a GPU's device files; whether it is loaded.

    Called before a sandbox closes around the process: some drivers do not start inside one.  No memory of a device is taken.
    """
    if not any(any(nodes.glob(pattern)) for pattern in ("nvidiactl", "nvidia[0-9]*", "dxg", "nvhost-ctrl*")):
        return False
    import torch

    if torch.cuda.is_available():
        torch.cuda.init()
    return bool(torch.cuda.is_initialized())


def device_class(device: torch.device) -> str:
    """What boards group speeds by: "cpu", or the GPU's name."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


Precision = Literal["fp32", "bf16", "tf32"]
"""bf16 is autocast; tf32 is fp32 with products rounded to 10 bits, which GPUs have; fp32 rounds nothing."""


def precision(asked: Precision | Literal["auto"], device: torch.device) -> Precision:
    """The precision that "auto" means: bf16 autocast where the device computes it faster than fp32.

    Networks of vectors keep their first and last maps in fp32, so that positions are not rounded.

    Raises:
        CompbenchError: the device does not have it.
    """
    if asked == "tf32" and device.type != "cuda":
        raise CompbenchError("--precision tf32: a CPU has no tf32 products; use fp32 or bf16, or a GPU (--device cuda).")
    if asked != "auto":
        return asked
    return "bf16" if has_fast_bf16(device) else "fp32"


def set_up(device: torch.device, precision: str) -> None:
    """Let a GPU round products to TF32 only where that was asked for, and let it choose each convolution's fastest algorithm.

    Torch's own default rounds convolutions and not matrix products, which is neither precision.
    """
    import torch

    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the hardware multiplies bf16 faster than fp32.

    Intel's AVX-512 does not (a step takes 1.5 times as long: `tests/benchmarks/test_bf16_speed.py`); its processors are fast by
    AMX, which a virtual machine may hide.  AMD's AVX-512 does.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    flags, vendor = set(_cpu_flags()), _cpuinfo("vendor_id")
    return bool({"amx_bf16", "bf16"} & flags) or ("avx512_bf16" in flags and vendor != "GenuineIntel")


def has_x86_bf16() -> bool:
    """Whether the CPU has bf16 products for which oneDNN's convolutions have kernels of their own (AVX-512 or AMX)."""
    return bool({"amx_bf16", "avx512_bf16"} & set(_cpu_flags()))


def cpu_name() -> str:
    """The processor's name as the kernel gives it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_variables(threads: int) -> dict[str, str]:
    """Variables with which a child process gets that many CPU threads, which sleep while they wait for each other.

    Threads that spin while they wait (the default) take the core that the one they wait for needs, if others use it too
    (`experiments/busy_core.py` measures it).
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, str(threads)), WAITS: "PASSIVE"}


WAITS = "OMP_WAIT_POLICY"
"""This variable says how torch's threads wait for each other (PASSIVE threads sleep); it is read when torch is loaded."""


@contextlib.contextmanager
def own_threads(threads: int = 0) -> Iterator[None]:
    """For work of ours in a user's own process, a notebook's say: torch's threads do not spin, and are given back after it.

    How threads wait is settled when torch is loaded, which no context can change.  So torch uses one thread, unless a number is
    asked for or `OMP_WAIT_POLICY` is PASSIVE.

    Args:
        threads: that many; 0 where none is asked for.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or (before if os.environ.get(WAITS, "").upper() == "PASSIVE" else 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


SPARE_CORES = 0.3
"""If threads and other processes take this much more than all cores, speeds count as those of a busy machine."""

Ticks = dict[int, tuple[int, int]]
"""For each core, the number of ticks that it was busy and idle since the system's start."""


def core_ticks(table: Path = Path("/proc/stat")) -> Ticks:
    """Of each core that this process may use; empty where the system keeps no such table (it is Linux's)."""
    try:
        lines = [line.split() for line in table.read_text("utf-8").splitlines() if re.match(r"cpu\d", line)]
    except OSError:
        return {}
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    counts = {int(name.removeprefix("cpu")): [int(word) for word in words] for name, *words in lines}
    idle = {core: sum(ticks[3:5]) for core, ticks in counts.items() if core in own}  # idle, or waiting for a disk
    return {core: (sum(counts[core]) - waited, waited) for core, waited in idle.items()}


def cores_busy(before: Ticks, after: Ticks) -> float:
    """How many cores were busy between two looks, 0 to `num_cores()`."""
    passed = [(after[core][0] - busy, after[core][1] - idle) for core, (busy, idle) in before.items() if core in after]
    return sum(busy / (busy + idle) for busy, idle in passed if busy + idle > 0)


def cores_of_others(seconds: float = 0.5) -> float:
    """How many of this process's cores other processes keep busy, measured for so long while this one sleeps.

    Returns:
        0 to `num_cores()`; not a number where the system keeps no table of it.
    """
    before = core_ticks()
    time.sleep(seconds)
    return cores_busy(before, core_ticks()) if before else math.nan


def _cpu_flags() -> tuple[str, ...]:
    return tuple((_cpuinfo("flags") or _cpuinfo("Features")).split())


@cache
def _cpuinfo(key: str) -> str:
    """Read once: each request for samples in bf16 asks."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "")
    except OSError:
        return ""
