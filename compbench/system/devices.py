"""Devices: the device of a run, its class on boards, and the precision in which it is fast."""

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
    """The device that a name stands for; "auto" is the first GPU, or the CPU if there is none.

    Raises:
        CompbenchError: this machine has no such device.
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
    executes its body (`compbench.registry.meaning`).  So faster code for GPUs does not change the identity of CPU records.
    """
    return device.type == "cuda"


def start_cuda(nodes: Path = Path("/dev")) -> bool:
    """Load CUDA's driver library into this process, if this machine has a GPU's device files; return whether it is loaded.

    Call it before a sandbox closes around the process, because some drivers do not start inside one.  It allocates no GPU memory.
    """
    if not any(any(nodes.glob(pattern)) for pattern in ("nvidiactl", "nvidia[0-9]*", "dxg", "nvhost-ctrl*")):
        return False
    import torch

    if torch.cuda.is_available():
        torch.cuda.init()
    return bool(torch.cuda.is_initialized())


def device_class(device: torch.device) -> str:
    """The name by which boards group speeds: "cpu", or the GPU's name."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


Precision = Literal["fp32", "bf16", "tf32"]
"""bf16 is autocast; tf32 is fp32 with factors rounded to 10 bits, only on GPUs; fp32 rounds nothing."""


def precision(requested: Precision | Literal["auto"], device: torch.device) -> Precision:
    """Resolve a precision; "auto" means bf16 autocast if the device computes it faster than fp32.

    Networks of vectors keep their first and last maps in fp32, so that positions are not rounded.

    Raises:
        CompbenchError: the device does not have the precision.
    """
    if requested == "tf32" and device.type != "cuda":
        raise CompbenchError("--precision tf32: a CPU has no tf32 products; use fp32 or bf16, or a GPU (--device cuda).")
    if requested != "auto":
        return requested
    return "bf16" if has_fast_bf16(device) else "fp32"


def set_up(device: torch.device, precision: str) -> None:
    """Let a GPU round products to TF32 only if that was requested, and let it choose each convolution's fastest algorithm.

    Torch's own default rounds convolutions but not matrix products, which corresponds to neither precision.
    """
    import torch

    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.benchmark = True


@contextlib.contextmanager
def unrounded_products() -> Iterator[None]:
    """A context in which GPUs do not round products to TF32, whatever `set_up` allowed; it does not end an autocast."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the hardware multiplies bf16 faster than fp32.

    Intel's AVX-512 does not (a step takes 1.5 times as long: `tests/benchmarks/test_bf16_speed.py`); Intel processors are fast
    with AMX, which a virtual machine may hide.  AMD's AVX-512 is fast.
    """
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    flags, vendor = set(_cpu_flags()), _cpuinfo("vendor_id")
    return bool({"amx_bf16", "bf16"} & flags) or ("avx512_bf16" in flags and vendor != "GenuineIntel")


def has_x86_bf16() -> bool:
    """Whether the CPU has bf16 products for which oneDNN has special convolution kernels (AVX-512 or AMX)."""
    return bool({"amx_bf16", "avx512_bf16"} & set(_cpu_flags()))


def cpu_name() -> str:
    """The processor's name according to the kernel."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_variables(threads: int, *, calm: bool = False) -> dict[str, str]:
    """Variables that give a child process this many CPU threads, which sleep while they wait for each other.

    By default threads spin while they wait.  If other processes use the cores too, a spinning thread may occupy the core that
    another thread needs, for which it waits (`experiments/busy_core.py` measures the cost).

    Args:
        threads: number of threads.
        calm: whether the machine has enough free cores (`is_calm`); then the threads spin for a moment before they sleep.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    spins = {SPINS: SHORT_SPIN} if calm and threads > 1 and SPINS not in os.environ else {}
    return {**dict.fromkeys(names, str(threads)), WAITS: "PASSIVE", **spins}


WAITS = "OMP_WAIT_POLICY"
"""The variable that says how torch's threads wait for each other (PASSIVE: they sleep); it is read when torch is loaded."""


SPINS, SHORT_SPIN = "GOMP_SPINCOUNT", "10000"
"""How often a thread of GNU's OpenMP, which torch uses on Linux, looks for work before it sleeps: for some microseconds.

A training step of `quick` has hundreds of parallel loops, and waking a thread takes as long as many of these loops.  On two idle
cores a step takes 75 ms with this spin, 109 without it, and 101 on one thread.  Next to two busy processes a step with this spin
takes 1.2 to 1.6 times its idle CPU time, and longer than without it, so the spin is for calm machines
(`experiments/busy_core.py`)."""


@contextlib.contextmanager
def own_threads(threads: int = 0) -> Iterator[None]:
    """A context for our work in a user's process, such as a notebook: torch's threads do not spin, and are restored afterwards.

    The way that threads wait is fixed when torch is loaded, and no context can change it.  So torch uses one thread, unless a
    number is requested or `OMP_WAIT_POLICY` is PASSIVE.

    Args:
        threads: number of threads; 0 if none is requested.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads or (before if os.environ.get(WAITS, "").upper() == "PASSIVE" else 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)


SPARE_CORES = 0.3
"""If our threads and the cores of other processes exceed the number of cores by more than this, the machine counts as busy."""

Ticks = dict[int, tuple[int, int]]
"""For each core, the number of busy and of idle ticks since the system's start."""


def core_ticks(table: Path = Path("/proc/stat")) -> Ticks:
    """The ticks of each core that this process may use; empty if the system has no such table (only Linux has)."""
    try:
        lines = [line.split() for line in table.read_text("utf-8").splitlines() if re.match(r"cpu\d", line)]
    except OSError:
        return {}
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    counts = {int(name.removeprefix("cpu")): [int(word) for word in words] for name, *words in lines}
    idle = {core: sum(ticks[3:5]) for core, ticks in counts.items() if core in own}  # idle, or waiting for I/O
    return {core: (sum(counts[core]) - waited, waited) for core, waited in idle.items()}


def cores_busy(before: Ticks, after: Ticks) -> float:
    """Mean number of busy cores between two measurements, 0 to `num_cores()`."""
    passed = [(after[core][0] - busy, after[core][1] - idle) for core, (busy, idle) in before.items() if core in after]
    return sum(busy / (busy + idle) for busy, idle in passed if busy + idle > 0)


def cores_of_others(seconds: float = 0.5) -> float:
    """Mean number of this process's cores that other processes keep busy, measured for `seconds` while this process sleeps.

    Returns:
        0 to `num_cores()`; NaN if the system has no table of ticks.
    """
    before = core_ticks()
    time.sleep(seconds)
    return cores_busy(before, core_ticks()) if before else math.nan


def is_calm(threads: int, seconds: float = 0.1) -> bool:
    """Whether this process's cores have room for these threads next to other processes; False if that cannot be measured."""
    return threads + cores_of_others(seconds) <= num_cores() + SPARE_CORES


def _cpu_flags() -> tuple[str, ...]:
    return tuple((_cpuinfo("flags") or _cpuinfo("Features")).split())


@cache
def _cpuinfo(key: str) -> str:
    """A value of /proc/cpuinfo, cached because each bf16 request for samples needs it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "")
    except OSError:
        return ""
