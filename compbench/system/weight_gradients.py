"""bf16 gradients of convolutions on several threads that do not wait for each other.

    dx = dy * W (transposed)  by some threads, and at the same time  dW = sum_r dW(dy_r, x_r)  by the others,

where r runs over parts of the batch, separately for each part of dW's output channels.  oneDNN's bf16 kernel for dW has many
barriers per call at which its threads spin, regardless of `OMP_WAIT_POLICY`: next to two busy processes a call takes 10 to 100
times its CPU time (`tests/benchmarks/test_neighbour_speed.py`).  Here each thread makes its own call, so none waits inside a
kernel.

With two threads, one computes the whole of dx and one the whole of dW, so sums are those of one thread.  More threads split dx
into rows and dW into output channels, which changes no sum; if threads are left over, they also split the batch of dW, and the
parts are added in fp32, in order.  So results are the same bits for the same number of threads.  With one thread nothing changes.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

BLOCK = 16
"""Number of output channels that the kernel computes together; it pads a smaller part to this number."""
LEAST_PRODUCTS = 1 << 24
"""Below this number of multiplications one thread computes all gradients, because distributing the work takes as long."""
ELSEWHERE = torch._C.DispatchKeySet(torch._C.DispatchKey.QuantizedCPU)
"""Torch has one kernel of this operator for all processors.  Called under a key that we do not wrap, it runs without Python's
lock, which `torch.library.get_kernel` holds."""

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Gradients with respect to the images, the weights and the bias; None if a gradient is not requested."""


class Operator(Protocol):
    """The methods of a torch operator that are called here, with the types that torch does not declare."""

    def name(self) -> str: ...

    def redispatch(self, keys: torch._C.DispatchKeySet, /, *arguments: object) -> Gradients: ...


OPERATOR: Operator = torch.ops.aten.convolution_backward.default


class Convolution(NamedTuple):
    """The arguments of `convolution_backward` after its four tensors, except the list of requested gradients.

    Attributes:
        bias_sizes: shape of the bias, or None.
        stride, padding, dilation: one number per axis.
        transposed: whether the forward pass is a transposed convolution.
        output_padding: output padding of a transposed convolution.
        groups: number of groups.
    """

    bias_sizes: Sequence[int] | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int


Ints = Sequence[int]
Arguments = tuple[Ints | None, Ints, Ints, Ints, bool, Ints, int, Sequence[bool]]
"""The fields of a `Convolution`, and which gradients are requested."""


@functools.cache
def share_weight_gradients() -> torch.library.Library | None:
    """Let threads share this process's bf16 gradients of convolutions on the CPU without waiting from now on.

    Returns:
        the library that holds the wrapped kernel, whose deletion restores torch's; None if this torch has a separate CPU kernel.
    """
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(OPERATOR.name(), key) for key in ("CPU", "QuantizedCPU")):
        return None
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*verriding a previously registered kernel")
        library.impl(OPERATOR, convolution_backward, "CPU")  # type: ignore[no-untyped-call]
    return library


def convolution_backward(dy: Tensor, x: Tensor, weight: Tensor, *rest: *Arguments) -> Gradients:
    """(dy, images, weights, a `Convolution`'s fields, requested gradients) -> `Gradients`."""
    threads, convolution, wanted = torch.get_num_threads(), Convolution(*rest[:-1]), rest[-1]
    if not is_shared(x, wanted, threads):
        return torchs(dy, x, weight, convolution, wanted)
    return shared(dy, x, weight, convolution, wanted, threads)


def is_shared(x: Tensor, wanted: Sequence[bool], threads: int) -> bool:
    """Whether the gradients are shared between threads, because torch's kernel would let them wait for each other."""
    return threads > 1 and x.dtype is torch.bfloat16 and (wanted[1] or wanted[2])


def torchs(dy: Tensor, x: Tensor, weight: Tensor, convolution: Convolution, wanted: Sequence[bool]) -> Gradients:
    """Torch's own kernel, with the calling thread's number of threads: the plain reference."""
    return OPERATOR.redispatch(ELSEWHERE, dy, x, weight, *convolution, wanted)


def shared(dy: Tensor, x: Tensor, weight: Tensor, convolution: Convolution, wanted: Sequence[bool], threads: int) -> Gradients:
    """The gradients, computed by several single-threaded calls.

    Args:
        dy, x, weight: gradient with respect to the result, (N, O, ...); images, (N, C, ...); weights.
        convolution: the other arguments of the convolution.
        wanted: which gradients are requested.
        threads: largest number of calls.
    """
    workers = _workers(os.getpid(), threads)

    def submit(dy: Tensor, x: Tensor, weight: Tensor, convolution: Convolution, wanted: Sequence[bool]) -> Future[Gradients]:
        return workers.submit(_alone, dy, x, weight, convolution, wanted)

    if products(dy, x, weight, convolution) < LEAST_PRODUCTS:
        return submit(dy, x, weight, convolution, wanted).result()
    for_images = threads // 2 if wanted[0] else 0
    channels, rows = cuts(dy, x, convolution, threads - for_images)
    kernels = [weight] if channels == dy.shape[1] else torch.split(weight, channels)
    of_weight = []
    for part, kernel in zip(torch.split(dy, channels, dim=1), kernels, strict=True):
        own = convolution._replace(bias_sizes=convolution.bias_sizes and [part.shape[1]])
        of_weight.append([submit(*pair, kernel, own, [False, *wanted[1:]]) for pair in _row_parts(part, x, rows)])
    of_images = [submit(*pair, weight, convolution, [True, False, False]) for pair in _row_parts(dy, x, for_images)]
    found = [[call.result() for call in calls] for calls in of_weight]
    return (
        _joined([_given(call.result()[0]) for call in of_images]) if wanted[0] else None,
        _joined([_sum([_given(part[1]) for part in parts]) for parts in found]) if wanted[1] else None,
        _joined([_sum([_given(part[2]) for part in parts]) for parts in found]) if wanted[2] else None,
    )


def products(dy: Tensor, x: Tensor, weight: Tensor, convolution: Convolution) -> int:
    """Number of multiplications for one of the gradients."""
    return (x if convolution.transposed else dy).numel() * weight[0].numel()


class Cuts(NamedTuple):
    """How dW is split: output channels per part, and number of parts of the batch."""

    channels: int
    rows: int


def cuts(dy: Tensor, x: Tensor, convolution: Convolution, threads: int) -> Cuts:
    """The parts for a number of threads: whole blocks of output channels, then rows if threads are left over.

    Channels of grouped and of transposed convolutions are not split.
    """
    channels = dy.shape[1]
    whole = convolution.groups > 1 or convolution.transposed
    parts = 1 if whole else max(1, min(threads, channels // BLOCK))
    block = channels if parts == 1 else BLOCK * math.ceil(channels / (BLOCK * parts))
    return Cuts(block, max(1, min(threads // parts, len(x))))


def _alone(dy: Tensor, x: Tensor, weight: Tensor, convolution: Convolution, wanted: Sequence[bool]) -> Gradients:
    """Torch's kernel in a thread of `_workers`, where the caller's `no_grad` has no effect."""
    with torch.no_grad():
        return torchs(dy, x, weight, convolution, wanted)


def _row_parts(dy: Tensor, x: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """The batch in at most `count` parts."""
    count = min(count, len(x))
    return list(zip(dy.tensor_split(count), x.tensor_split(count), strict=True)) if count else []


def _given(gradient: Tensor | None) -> Tensor:
    assert gradient is not None, "it was requested"
    return gradient


def _joined(parts: list[Tensor]) -> Tensor:
    """Parts concatenated along the first axis."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _sum(parts: list[Tensor]) -> Tensor:
    """The sum of the parts in fp32, from the first to the last."""
    first, *others = parts
    if not others:
        return first
    total = first.float()
    for other in others:
        total += other
    return total.to(first.dtype)


@functools.cache
def _workers(process: int, count: int) -> ThreadPoolExecutor:
    """Threads of a process, in each of which torch uses one thread; a fork does not inherit its parent's threads."""
    before, started = torch.get_num_threads(), threading.Barrier(count + 1)

    def begin() -> None:
        torch.get_num_threads()  # torch sets a thread's number of threads at its first use, overriding earlier settings
        torch.set_num_threads(1)
        started.wait()

    workers = ThreadPoolExecutor(count, "weight-gradients", initializer=begin)
    for _ in range(count):
        workers.submit(int)
    started.wait()
    torch.set_num_threads(before)  # threads that start later take the number that was set last anywhere
    return workers
