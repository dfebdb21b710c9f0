"""Bytes that a call would hold at most on a GPU, counted on tensors without numbers; neither memory nor a GPU is needed."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from compbench.flow.transfer import numbers

GIB = 1 << 30


def draws_without_driver() -> bool:
    """Whether this torch initialises tensors that lie on a GPU in name only; 2.6 asks the driver for it."""
    try:
        with FakeTensorMode(), torch.device("cuda"):
            torch.empty(1).uniform_()
    except RuntimeError:
        return False
    return True


class Peak(TorchDispatchMode):
    """Counts the storages that live at once, of tensors made inside."""

    def __init__(self) -> None:
        super().__init__()
        self._live: dict[int, int] = {}
        self.now = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.device.type == "cuda":
                self._note(tensor.untyped_storage())
        return out

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self._live:
            self._live[key] = storage.nbytes()
            self.now += self._live[key]
            self.bytes = max(self.bytes, self.now)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self._live.pop(key, 0)


@contextlib.contextmanager
def counted() -> Iterator[Peak]:
    """Tensors made in the block lie on a GPU, in name only, and are counted."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"), Peak() as peak:
            yield peak
    finally:
        numbers.cache_clear()  # what has no numbers must not be kept
