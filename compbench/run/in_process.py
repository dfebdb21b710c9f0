"""Contestant and referee in the caller's process, for debuggers.  No time limit, and a plugin can take all down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from compbench.errors import CompbenchError
from compbench.interfaces import Source
from compbench.run.contestant import Contestant
from compbench.run.processes import Ended
from compbench.run.referee import Referee
from compbench.run.worker import hashes
from compbench.schemas import RunRequest


class InProcessPair:
    """The four steps of `runner.ProcessPair`, as plain calls; a failure keeps its traceback and reaches the debugger."""

    predecessors = 0

    def __init__(self, request: RunRequest, listener: Callable[[str, int, int], None]) -> None:
        self.alarm = lambda: None
        self._contestant = Contestant(request, progress=listener)
        self._referee = Referee(request, progress=listener)

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            return self._contestant.describe(), self._referee.describe()
        except CompbenchError as error:
            raise Ended("refused", str(error), usage=True) from error

    def prepare(self) -> None:
        self._referee.prepare()

    def fit(self, **order: Any) -> dict[str, Any]:
        source = Source(**order.pop("source"))
        self._contestant.fit(source=source, folder=Path(order.pop("folder")), **order)
        return self._contestant.facts()

    def evaluate(self, folder: Path) -> dict[str, Any]:
        found = self._referee.evaluate(lambda request, stream: self._contestant.sample(request, stream=stream))
        for name, content in self._referee.pictures.items():
            (folder / f"{name}.png").write_bytes(content)
        return {**found, "pictures": hashes(self._referee.pictures)}

    def measure(self) -> dict[str, Any]:
        return {"profile": self._contestant.measure(), "facts": self._contestant.facts()}

    def stop(self, *, gracefully: bool) -> None:
        return None

    def log(self) -> str:
        return ""
