"""A pool of processes with one thread each; if a process dies, only its item fails and the others continue.

Simulators are C code, and a crash kills the process.  `concurrent.futures` would then give up all of its work.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from typing import Any, NamedTuple

from compbench.system.devices import thread_variables


class Failed(NamedTuple):
    """Replaces a missing result and says why it is missing."""

    reason: str


class Workers:
    """Processes that apply one function to items, kept from one call of `map` to the next.

    Args:
        function: maps one item to its result; a module's top-level function, because processes import it.
        count: number of processes.
    """

    def __init__(self, function: Callable[[Any], object], count: int) -> None:
        self._function, self._count = function, max(1, count)
        self._context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        self._idle: list[_Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.end()
        self._idle = []

    def map(self, items: Sequence[object], *, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Any]:
        """function(item) of every item, in order; `Failed` where the function raised or its process died.

        Args:
            items: what to work on; each is sent to one process.
            progress: called as progress(done, total).
        """
        results: list[object] = [None] * len(items)
        waiting = deque(range(len(items)))
        busy: dict[Any, _Worker] = {}
        with self._ending(busy):
            while waiting or busy:
                while waiting and len(busy) < self._count:
                    worker = self._idle.pop() if self._idle else _Worker(self._context, self._function)
                    worker.index = waiting.popleft()
                    with contextlib.suppress(OSError):  # the process died before it got its item; the end of file shows this
                        worker.connection.send(items[worker.index])
                    busy[worker.connection] = worker
                for connection in wait(list(busy)):
                    worker = busy.pop(connection)
                    results[worker.index] = worker.answer()
                    if not isinstance(results[worker.index], Failed):
                        self._idle.append(worker)
                    else:  # a process that failed gets no other item
                        worker.end()
                    progress(len(items) - len(waiting) - len(busy), len(items))
        return results

    @contextlib.contextmanager
    def _ending(self, busy: dict[Any, _Worker]) -> Iterator[None]:
        """End the busy processes if an exception (Ctrl-C) leaves them behind."""
        try:
            yield
        finally:
            for worker in busy.values():
                worker.end()


class _Worker:
    """One process, its end of the pipe, and the item it works on."""

    def __init__(self, context: SpawnContext, function: Callable[[Any], object]) -> None:
        self.connection, theirs = context.Pipe()
        self.index = -1
        self.process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        with _environment(thread_variables(1)):
            self.process.start()
        theirs.close()

    def answer(self) -> object:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join(timeout=10)
            return Failed(f"its process died of {_cause(self.process.exitcode)}")

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join(timeout=10)


def _serve(connection: Connection, function: Callable[[Any], object]) -> None:
    """The process: answer items until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            result = function(item)
        except Exception as error:
            result = Failed(f"{type(error).__name__}: {' '.join(str(error).split())}"[:500])
        connection.send(result)


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Variables that a process is started with; numerical libraries read them when they are loaded."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name if -code in signal.Signals._value2member_map_ else f"signal {-code}"
    return f"exit status {code}"
