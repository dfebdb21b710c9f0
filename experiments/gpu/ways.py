"""Ways to compute a fit or a request on a GPU: the harness's way, and ways that may be faster.

The harness uses `Way.HARNESS`.  Another way replaces it once measurements on a GPU show that it is the best
(`python experiments/gpu/quarter_hour.py`, docs/gpu.md).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).parent))
from captured_swarm import swarms_captured
from whole_step import ramps_on_device, train_whole

from compbench.flow import compilation
from compbench.flow.train import train
from compbench.system.gpu_layout import layout_kept


class Choices(NamedTuple):
    """The choices that define a way.

    Attributes:
        layout: group norm of images: "torch" is torch's own, which loses channels-last; "fp32" and "bf16" are outputs of ours.
        step: the unit of a CUDA graph: each compiled network, or the whole step (of a fit) or request (of a sampler).
        how: options of `torch.compile` on a GPU; None compiles nothing.
    """

    layout: Literal["torch", "fp32", "bf16"] = "fp32"
    step: Literal["network", "whole"] = "network"
    how: dict[str, Any] | None = {"mode": "reduce-overhead"}


class Way(Enum):
    """The settings of a measurement, by name."""

    HARNESS = Choices()
    WHOLE = Choices(step="whole", how={})
    TORCH_LAYOUT = Choices(layout="torch")
    FORCED_LAYOUT = Choices(layout="torch", how={"options": {"triton.cudagraphs": True, "force_layout_optimization": True}})
    BF16_NORMS = Choices(layout="bf16")
    AUTOTUNED = Choices(step="whole", how={"mode": "max-autotune-no-cudagraphs"})
    EAGER = Choices(how=None)

    @property
    def label(self) -> str:
        """The name on command lines and in results."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def named(cls, label: str) -> Way:
        """The way with a label.  Raises KeyError if there is none."""
        return {way.label: way for way in cls}[label]


@contextmanager
def applied(way: Way, device: torch.device) -> Iterator[None]:
    """Compute fits and samples in a way while the block runs.

    On a CPU networks are compiled as usual on a CPU, so that each way can be tried without a GPU.  Whole steps are those of
    training loops and of swarms of noise networks.
    """
    choices = way.value
    how = compilation.HOW["cpu"] if device.type == "cpu" or choices.how is None else choices.how
    with ExitStack() as stack:
        stack.enter_context(nullcontext() if choices.layout == "torch" else layout_kept(narrow=choices.layout == "bf16"))
        stack.enter_context(mock.patch.dict(compilation.HOW, {device.type: how}))
        if choices.step == "whole":
            stack.enter_context(ramps_on_device())
            stack.enter_context(swarms_captured())
            for module in modules_that_train():
                stack.enter_context(mock.patch.object(module, "train", partial(train_whole, how=how)))
        yield


def modules_that_train() -> list[Any]:
    """Our modules, including methods, that call `compbench.flow.train.train` by its name."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("compbench") and name != train.__module__]
    return [module for module in ours if getattr(module, "train", None) is train]
