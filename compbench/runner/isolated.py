"""Call a function that runs plugin code outside of a run, in a contestant's sandbox: for `info`, `check` and `diagnose`.

    parent -> child   Call; the next one after the end of the first
    child -> parent   Value for each value that the function yields, and one at the end; Progress and Failed at any moment

The child is a separate process.  It writes to one scratch folder and cannot read data of the referee or of other runs.
Values are plain JSON: the parent, which imports no torch, prints or keeps them.  What the child prints goes to a log.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from compbench.runner import sandbox
from compbench.runner.channel import Channel
from compbench.runner.messages import Call, Progress, Value, receive
from compbench.runner.processes import Ended, Process
from compbench.system import devices
from compbench.system.errors import CompbenchError, first_of
from compbench.system.files import Json, temporary_folder
from compbench.system.home import Home

SECONDS = 600.0
"""Default limit for one call, in seconds."""
T = TypeVar("T")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one child; it is deleted afterwards, whatever the child did to it."""
    with temporary_folder("compbench-isolated-") as room:
        yield room / "own"


class Isolated:
    """A process that answers calls, one after the other, so that several calls share its imports.

    Args:
        folder: a folder from `scratch`, the only one that the child may write to.
        home: the child cannot read the parts that belong to the referee, the parent or other runs.
        device: unless it is "cpu", CUDA is started before the sandbox is put up.
    """

    def __init__(self, folder: Path, *, home: Home, device: str = "cpu", threads: int = 1) -> None:
        self._process = Process("method", ("compbench.runner.isolated",), folder, threads=threads)
        self._border: dict[str, Json] = {"device": device, "folder": str(folder), "closed": tuple(map(str, home.closed))}

    def values(
        self,
        function: str,
        arguments: Mapping[str, Json],
        kind: type[T],
        *,
        seconds: float = SECONDS,
        listener: Callable[[str, int, int], None] = lambda stage, done, total: None,
    ) -> Iterator[T]:
        """Yield what `function(progress, **arguments)` yields in the process, one value after the other, to the end.

        Args:
            function: "module:name" in compbench; its values must be of `kind`.
            seconds: time limit for all values together.

        Raises:
            Ended: the child failed, crashed, ran out of time or sent something else; `usage` where the request was wrong.
        """
        deadline, adapter = time.monotonic() + seconds, TypeAdapter(kind)
        self._process.order(Call(function=function, arguments=dict(arguments), **self._border))
        try:
            while not (found := self._process.expect(Value, deadline=deadline, progress=listener)).ended:
                yield adapter.validate_python(found.value)
        except ValidationError as error:
            raise Ended("failed", f"the method's process sent an invalid answer: {first_of(error)}"[:300]) from error

    def close(self) -> None:
        """End the process."""
        self._process.stop()


def values_of(
    function: str,
    arguments: Mapping[str, Json],
    kind: type[T],
    folder: Path,
    *,
    home: Home,
    device: str = "cpu",
    threads: int = 1,
    seconds: float = SECONDS,
    listener: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Iterator[T]:
    """Yield the values of a function in a separate process, which ends after the last value (see `Isolated`)."""
    with contextlib.closing(Isolated(folder, home=home, device=device, threads=threads)) as process:
        yield from process.values(function, arguments, kind, seconds=seconds, listener=listener)


def answer_of(function: str, arguments: Mapping[str, Json], kind: type[T], folder: Path, *, home: Home, device: str = "cpu") -> T:
    """The single value of a function.  Raises CompbenchError if the child ended without a value."""
    try:
        return next(values_of(function, arguments, kind, folder, home=home, device=device))
    except StopIteration as end:
        raise CompbenchError("the method's process sent no answer.") from end
    except Ended as end:
        raise CompbenchError(end.reason) from end


def main(descriptor: int) -> None:
    """The child's side: calls come in over the channel, their values go out over it."""
    from compbench.runner.worker import failures_sent

    channel, is_closed = Channel.of_descriptor(descriptor), False

    def progress(stage: str, done: int, total: int) -> None:
        Progress(stage=stage, done=done, total=total).send(channel)

    with failures_sent(channel):
        while True:
            order = receive(channel, Call)
            if not is_closed:
                if order.device != "cpu":
                    devices.start_cuda()
                sandbox.put_up(forbidden=map(Path, order.closed), writable=(Path(order.folder),))
                is_closed = True
            module, _, name = order.function.partition(":")
            for value in getattr(import_module(module), name)(progress, **order.arguments):
                Value(value=value).send(channel)
            Value(ended=True).send(channel)


if __name__ == "__main__":
    main(int(sys.argv[1]))
