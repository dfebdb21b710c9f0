"""Measure what a run costs: synchronised timing, throughput, memory, parameters, FLOPs, peak, energy and traces."""

from __future__ import annotations

import contextlib
import hashlib
import statistics
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from time import perf_counter, process_time  # bound before a plugin is loaded, because a plugin may replace the clocks in `time`
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload
    from torch.profiler import profile

WINDOW_SECONDS = 0.5
"""Length of one timed window of training."""


def synchronise(device: torch.device | None) -> None:
    """Wait until the device has finished its queue; does nothing on a CPU or without a device."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


class StepMeter:
    """Training steps/s as the median over windows of about half a second; the first window is warm-up.

    The parent of a run calls it when a step is reported, so it uses the parent's clock and adds no call to the measured loop.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._start: float | None = None
        self._first = 0
        self._rates: list[float] = []
        self.done = 0

    def step(self, done: int) -> None:
        """Note that `done` steps are finished; a smaller number than before begins a new window."""
        now = self._clock()
        if self._start is None or done < self._first:
            self._start, self._first = now, done
        elif now - self._start >= WINDOW_SECONDS:
            self._rates.append((done - self._first) / (now - self._start))
            self._start, self._first = now, done
        self.done = max(self.done, done)

    def rate(self) -> float | None:
        """Median steps/s; None if no window was completed."""
        windows = self._rates[1:] or self._rates
        return statistics.median(windows) if windows else None


class Flops(NamedTuple):
    """Floating point operations: all of them, and those outside of backward passes."""

    total: float
    forward: float


def count_flops(call: Callable[[], object]) -> float:
    """Floating point operations of a call by torch's formulas (multiply and add count as two; norms are not counted)."""
    with counting_flops() as so_far:
        call()
    return so_far().total


@contextlib.contextmanager
def counting_flops() -> Iterator[Callable[[], Flops]]:
    """Count floating point operations while the block runs; the function that it gives tells those so far.

    `FlopCounterMode` is not used, because its hooks on modules refuse `torch.autograd.grad` with respect to a module's input,
    which energies and guidance call.  Attention runs as separate products, because fused kernels on a CPU, and that of a whole
    encoder layer without gradients, have no formula and would count as 0.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):
        total = forward = 0

        def __torch_dispatch__(
            self, func: OpOverload, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
        ) -> object:
            kwargs = kwargs or {}
            formula = flop_registry.get(func._overloadpacket)
            if formula is None:
                with self:  # a composite operation is counted by its parts
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            out = func(*args, **kwargs)
            if formula is not None:
                flops = formula(*args, **kwargs, out_val=out)
                self.total += flops
                self.forward += 0 if torch._C._current_graph_task_id() >= 0 else flops
            return out

    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), Counter() as counter:
            yield lambda: Flops(float(counter.total), float(counter.forward))
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


PEAK_SHAPES = {"cpu": ((512, 512, 512), (1024, 1024, 1024), (2048, 512, 512)), "cuda": ((4096,) * 3, (8192,) * 3)}
"""Shapes of matrix products (rows, inner, columns); the fastest one gives the peak."""


def measured_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of matrix products in `dtype`, the best of several shapes and repeats, to which "share of peak" refers.

    A process measures each device, type and number of threads once; consecutive runs share the value.
    """
    import torch

    return _measured_peak(device, dtype, torch.get_num_threads())


@lru_cache(maxsize=32)
def _measured_peak(device: torch.device, dtype: torch.dtype, num_threads: int) -> float:
    import torch

    best = 0.0
    for rows, inner, columns in PEAK_SHAPES[device.type]:
        a = torch.randn(rows, inner, device=device).to(dtype)
        b = torch.randn(inner, columns, device=device).to(dtype)
        for _ in range(6):
            synchronise(device)
            start = perf_counter()
            a @ b
            synchronise(device)
            best = max(best, 2 * rows * inner * columns / (perf_counter() - start))
    return best


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: the allocator's peak on a GPU, the process's largest resident set on a CPU."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def num_parameters(model: object) -> int | None:
    """Number of parameters of a module; None if the model is something else without tensors."""
    import torch

    if isinstance(model, torch.nn.Module):
        return sum(parameter.numel() for parameter in model.parameters())
    tensors = [value for value in getattr(model, "__dict__", {}).values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() for tensor in tensors) if tensors else None


def energy(device: torch.device) -> float | None:
    """Energy in joules that the GPU has used since its driver was loaded, from NVML; None if NVML is not available."""
    if device.type != "cuda":
        return None
    try:
        import pynvml

        return pynvml.nvmlDeviceGetTotalEnergyConsumption(_nvml_handle(device)) / 1000
    except Exception:  # NVML raises many errors of its own; a missing energy value must not fail a run
        return None


def num_processes(device: torch.device) -> int:
    """Number of processes with memory on a GPU, from NVML; 0 if NVML is not available, and on a CPU."""
    if device.type != "cuda":
        return 0
    try:
        import pynvml

        return len(pynvml.nvmlDeviceGetComputeRunningProcesses(_nvml_handle(device)))
    except Exception:  # as in `energy`, which then has no value either
        return 0


def _nvml_handle(device: torch.device) -> object:
    import pynvml
    import torch

    pynvml.nvmlInit()
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")


class Timed(NamedTuple):
    """The seconds of a timed block: wall[0] and cpu[0]."""

    wall: list[float]
    cpu: list[float]


@contextlib.contextmanager
def timed(device: torch.device | None) -> Iterator[Timed]:
    """Time a block, with the device synchronised at both ends."""
    result = Timed([0.0], [0.0])
    synchronise(device)
    wall, cpu = perf_counter(), process_time()
    try:
        yield result
    finally:
        synchronise(device)
        result.wall[0], result.cpu[0] = perf_counter() - wall, process_time() - cpu


class Tracer:
    """A torch profiler trace of some training steps, written as a Chrome trace (open it in Perfetto)."""

    def __init__(self, path: Path | None, *, first: int = 5, last: int = 10) -> None:
        self._path, self._first, self._last = path, first, last
        self._profiler: profile | None = None

    def step(self, done: int) -> None:
        """Start the trace at step `first` and stop it at step `last`; called once per step."""
        if self._path is None:
            return
        if self._profiler is None and done >= self._first:
            from torch.profiler import profile

            self._profiler = profile(record_shapes=True, with_flops=True)
            self._profiler.start()
        elif self._profiler is not None and done >= self._last:
            self.close()

    def close(self) -> None:
        """Stop the trace and write it, if it was started."""
        if self._profiler is not None and self._path is not None:
            self._profiler.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(self._path))
            self._profiler, self._path = None, None


def tensor_hashes(model: object) -> set[str]:
    """Hashes of a module's tensors; the extension of a frozen model has all of the model's hashes, whatever the names."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return set()
    state = model.state_dict().values()
    return {hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest() for tensor in state}
