"""Run contestant and referee in the caller's process, for debuggers, without a time limit; a plugin can crash this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compbench.api.schemas import RunRequest
from compbench.registry.registry import Registry
from compbench.runner.audit import Listener, Watch
from compbench.runner.contestant import Contestant
from compbench.runner.messages import OF_THE_REFEREE, ContestantDescribed, M, Message, RefereeDescribed
from compbench.runner.processes import Ended
from compbench.runner.referee import Referee
from compbench.system.devices import own_threads
from compbench.system.errors import CompbenchError


class InProcessPair:
    """A `Pair` of plain calls, on threads that do not spin while they wait; a failure keeps its traceback for the debugger.

    The referee's description is the same for all methods of a task, so it is not computed again if `known` gives it.
    """

    predecessors, deadline = 0, float("inf")

    def __init__(
        self,
        request: RunRequest,
        folder: Path,
        listener: Listener,
        registry: Registry | None = None,
        known: RefereeDescribed | None = None,
    ) -> None:
        self._known = known
        self.alarm: Callable[[], None] = lambda: None
        self.contestant_folder, self.referee_folder = folder / "contestant", folder / "referee"
        self.watch, self.threads = Watch(listener), request.threads
        self.contestant = Contestant(request, self.contestant_folder, progress=self.watch, registry=registry)
        self.referee = Referee(request, self.referee_folder, progress=listener, registry=registry)

    def describe(self) -> tuple[ContestantDescribed, RefereeDescribed]:
        try:
            return self.contestant.describe(), self._known or self.referee.describe()
        except CompbenchError as error:
            raise Ended("refused", str(error), usage=True) from error

    def ask(self, order: Message, kind: type[M]) -> M:
        with own_threads(self.threads):
            if isinstance(order, OF_THE_REFEREE):
                found = self.referee.obey(order, self.contestant.sample)
            else:
                found = self.contestant.obey(order)
        assert isinstance(found, kind)
        return found

    def is_outdated(self) -> bool:
        return False

    def stop(self, *, gracefully: bool = False) -> None: ...

    def log(self) -> str:
        return ""
