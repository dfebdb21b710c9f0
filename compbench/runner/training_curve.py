"""Scores during training: a fit is stopped at some steps and continued, and its averaged weights are scored at each stop.

A stopped fit saves a checkpoint and resumes bit for bit (the contract of every method), so the final fit is the same as without
stops.  The weights at a stop are the averages in that checkpoint, loaded into the network that `build` makes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.system.errors import Cancelled, CompbenchError
from compbench.system.files import load_tensors

if TYPE_CHECKING:
    from torch import nn

AVERAGE = "average."


def stops(train_steps: int, count: int) -> tuple[int, ...]:
    """`count` steps at halves of the training length T, without the end: T / 2^count, ..., T / 4, T / 2."""
    found = {round(train_steps / 2**k) for k in range(1, count + 1)}
    return tuple(sorted(step for step in found if 0 < step < train_steps))


def path_of(folder: Path, step: int) -> Path:
    """Path of the weights at a step in a contestant's folder."""
    return folder / f"curve-{step}.safetensors"


def stopped(fit: Callable[[], object], checkpoint: Path, build: Callable[[], nn.Module] | None, name: str) -> nn.Module:
    """The network at the step where a fit was stopped.

    Args:
        fit: runs until it raises Cancelled.
        checkpoint: path of the fit's checkpoint.
        build: the method's untrained network.
        name: name of the method.

    Raises:
        CompbenchError: the fit cannot be stopped, or its checkpoint has no averaged weights or those of another network.
    """
    if build is None:
        raise CompbenchError(f"--curve: method '{name}' has no `build`, so weights cannot be loaded into it.")
    try:
        fit()
    except Cancelled:
        pass
    else:
        raise CompbenchError(f"--curve: the fit of '{name}' never checks whether it should stop.")
    tensors = load_tensors(checkpoint)[0] if checkpoint.is_file() else {}
    averages = {key.removeprefix(AVERAGE): tensor for key, tensor in tensors.items() if key.startswith(AVERAGE)}
    net = build()
    state = net.state_dict()
    if not averages or not averages.keys() <= state.keys():
        raise CompbenchError(f"--curve: the fit of '{name}' is not one loop of compbench.flow.train over the network of `build`.")
    net.load_state_dict({**state, **averages})
    return net
