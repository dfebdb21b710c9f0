"""What an attempt needs of contestant and referee, wherever they live."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from compbench.run.audit import Watch
from compbench.run.messages import ContestantDescribed, Evaluated, Fit, Fitted, Measured, Open, Opened, RefereeDescribed


class Pair(Protocol):
    """Contestant and referee, in processes of their own or in this one.

    Each step raises `Ended` when a child fails.  `alarm` is called twice a second while a step waits.
    """

    alarm: Callable[[], None]
    watch: Watch
    predecessors: int
    contestant_folder: Path
    referee_folder: Path

    def describe(self) -> tuple[ContestantDescribed, RefereeDescribed]: ...
    def prepare(self) -> None: ...
    def open(self, order: Open) -> Opened: ...
    def fit(self, order: Fit) -> Fitted: ...
    def evaluate(self) -> Evaluated: ...
    def measure(self) -> Measured: ...
    def stop(self, *, gracefully: bool) -> None: ...
    def log(self) -> str: ...
