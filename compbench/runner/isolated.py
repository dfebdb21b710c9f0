"""Call a function that runs a plugin outside of a run, in a contestant's sandbox: for `info`, `check` and `diagnose`.

    parent -> child   Call
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
from compbench.runner.messages import Message, Progress, receive
from compbench.runner.processes import Ended, Process
from compbench.system.errors import CompbenchError, first_of
from compbench.system.files import Json, temporary_folder
from compbench.system.home import Home

SECONDS = 600.0
"""Default limit for one call, in seconds."""
T = TypeVar("T")


class Call(Message):
    """The `module:function` to call, its arguments, and the sandbox: the folder to write to and what must not be read."""

    function: str
    arguments: dict[str, Json]
    device: str
    folder: str
    closed: tuple[str, ...]


class Value(Message):
    """One value that the function yielded; it is empty if the function has `ended`."""

    value: object = None
    ended: bool = False


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one child; it is deleted afterwards, whatever the child did to it."""
    with temporary_folder("compbench-isolated-") as room:
        yield room / "own"


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
    """Yield what `function(progress, **arguments)` yields in a separate process, one value after the other.

    Args:
        function: "module:name" in compbench; its values must be of `kind`.
        folder: from `scratch`; all that the child may write to.
        home: the child cannot read the parts that belong to the referee, the parent or other runs.
        device: CUDA is started before the border closes, unless it is "cpu".
        seconds: for all values together.

    Raises:
        Ended: the child failed, crashed, ran out of time or sent something else; `usage` where the request was wrong.
    """
    process = Process("method", ("compbench.runner.isolated",), folder, threads=threads)
    closed = tuple(map(str, home.closed))
    deadline = time.monotonic() + seconds
    try:
        process.order(Call(function=function, arguments=dict(arguments), device=device, folder=str(folder), closed=closed))
        while not (found := process.expect(Value, deadline=deadline, progress=listener)).ended:
            yield TypeAdapter(kind).validate_python(found.value)
    except ValidationError as error:
        raise Ended("failed", f"the method's process sent an invalid answer: {first_of(error)}"[:300]) from error
    finally:
        process.stop()


def answer_of(function: str, arguments: Mapping[str, Json], kind: type[T], folder: Path, *, home: Home, device: str = "cpu") -> T:
    """The one value of a function.  Raises CompbenchError where the child ended without it."""
    try:
        return next(values_of(function, arguments, kind, folder, home=home, device=device))
    except StopIteration as end:
        raise CompbenchError("the method's process sent no answer.") from end
    except Ended as end:
        raise CompbenchError(end.reason) from end


def main(descriptor: int) -> None:
    """The child's side: one call comes in over the channel, its values go out over it."""
    from compbench.runner.worker import failures_sent
    from compbench.system import devices

    channel = Channel.of_descriptor(descriptor)
    order = receive(channel, Call)

    def progress(stage: str, done: int, total: int) -> None:
        Progress(stage=stage, done=done, total=total).send(channel)

    with failures_sent(channel):
        if order.device != "cpu":
            devices.start_cuda()
        sandbox.put_up(forbidden=map(Path, order.closed), writable=(Path(order.folder),))
        module, _, name = order.function.partition(":")
        for value in getattr(import_module(module), name)(progress, **order.arguments):
            Value(value=value).send(channel)
        Value(ended=True).send(channel)


if __name__ == "__main__":
    main(int(sys.argv[1]))
