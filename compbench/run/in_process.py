"""Contestant and referee in the caller's process, for debuggers.  No time limit, and a plugin can take all down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compbench.errors import CompbenchError
from compbench.registry import Registry
from compbench.run import messages
from compbench.run.audit import Watch
from compbench.run.contestant import Contestant
from compbench.run.processes import Ended
from compbench.run.referee import Referee
from compbench.schemas import RunRequest


class InProcessPair:
    """The steps of `Pair` as plain calls; a failure keeps its traceback and reaches the debugger."""

    predecessors = 0

    def __init__(
        self, request: RunRequest, folder: Path, listener: Callable[[str, int, int], None], registry: Registry | None = None
    ) -> None:
        self.alarm: Callable[[], None] = lambda: None
        self.contestant_folder, self.referee_folder = folder / "contestant", folder / "referee"
        self.watch = Watch(listener)
        self._contestant = Contestant(request, self.contestant_folder, progress=self.watch, registry=registry)
        self._referee = Referee(request, self.referee_folder, progress=listener)

    def describe(self) -> tuple[messages.ContestantDescribed, messages.RefereeDescribed]:
        try:
            return self._contestant.describe(), self._referee.describe()
        except CompbenchError as error:
            raise Ended("refused", str(error), usage=True) from error

    def prepare(self) -> None:
        self._referee.prepare()

    def open(self, order: messages.Open) -> messages.Opened:
        return self._contestant.open(order)

    def fit(self, order: messages.Fit) -> messages.Fitted:
        return self._contestant.fit(order)

    def evaluate(self) -> messages.Evaluated:
        return self._referee.evaluate(lambda request, stream: self._contestant.sample(request, stream=stream))

    def measure(self) -> messages.Measured:
        return self._contestant.measure()

    def stop(self, *, gracefully: bool) -> None:
        return None

    def log(self) -> str:
        return ""
