"""A function of ours that runs a plugin outside of a run, behind a contestant's border: for `info`, `check`, `diagnose`.

    parent -> child   Call
    child -> parent   Value for each value that the function yields, then Returned; Progress and Failed at any moment

The child is a process of its own.  It writes to one scratch folder and cannot read what is the referee's or other runs'.
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

from compbench.errors import CompbenchError
from compbench.files import Json, temporary_folder
from compbench.home import Home
from compbench.run import sandbox
from compbench.run.channel import Channel, Closed
from compbench.run.messages import Message, receive
from compbench.run.processes import Ended, Process, own_places

SECONDS = 600.0
"""Longest call, where no one says otherwise."""


T = TypeVar("T")


class Call(Message):
    """`module:function` of ours, its arguments, and the border: the folder to write to and what must not be read."""

    function: str
    arguments: dict[str, Json]
    device: str
    folder: str
    closed: tuple[str, ...]


class Answer(Message):
    """Base of what the child sends."""


class Value(Answer):
    """One value that the function yielded."""

    value: object


class Returned(Answer):
    """There are no more; how many there were."""

    count: int


def ignored(stage: str, done: int, total: int) -> None:
    """A listener to progress that does nothing."""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one child; gone afterwards, whatever the child made of it."""
    with temporary_folder("compbench-isolated-") as room:
        folder = room / "own"
        folder.mkdir()
        yield folder


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
    listener: Callable[[str, int, int], None] = ignored,
) -> Iterator[T]:
    """What `function(progress, **arguments)` yields in a process of its own, one value after the other.

    Args:
        function: "module:name" of compbench's own.
        arguments: JSON.
        kind: what each value must be; checked by pydantic.
        folder: from `scratch`; all that the child may write to.
        home: what of it is the referee's, the parent's or other runs' is closed to the child.
        device: CUDA is started before the border closes, unless it is "cpu".
        seconds: for all values together.
        listener: called with (stage, done, total).

    Raises:
        Ended: the child failed, crashed, ran out of time or sent something else; `usage` where the request was wrong.
    """
    log = folder.with_name("output.log")
    process = Process("method", ("compbench.run.isolated",), env=own_places(folder), threads=threads, log=log)
    closed = tuple(map(str, home.closed))
    deadline, count = time.monotonic() + seconds, 0
    try:
        order = Call(function=function, arguments=dict(arguments), device=device, folder=str(folder), closed=closed)
        with contextlib.suppress(Closed):  # `expect` finds out how it died
            order.send(process.control)
        while isinstance(found := process.expect(Answer, deadline=deadline, progress=listener), Value):
            count += 1
            yield _checked(found.value, kind)
        if isinstance(found, Returned) and found.count != count:
            raise Ended("failed", f"{count} answers came of {found.count}")
    finally:
        process.stop(gracefully=False)


def _checked(value: object, kind: type[T]) -> T:
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Ended("failed", f"the method's process sent a wrong answer: {where}: {first['msg']}"[:300]) from error


def answer_of(function: str, arguments: Mapping[str, Json], kind: type[T], folder: Path, *, home: Home, device: str = "cpu") -> T:
    """The one value of a function.  Raises CompbenchError where the child ended without it."""
    try:
        for value in values_of(function, arguments, kind, folder, home=home, device=device):
            return value
    except Ended as end:
        raise CompbenchError(end.reason) from end
    raise CompbenchError("the method's process sent no answer.")


def main(descriptor: int) -> int:
    """The child's side: one call comes in over the channel, its values go out over it."""
    from compbench import devices
    from compbench.run.messages import Progress
    from compbench.run.worker import explain

    channel = Channel.of_descriptor(descriptor)
    order = receive(channel, Call)

    def progress(stage: str, done: int, total: int) -> None:
        Progress(stage=stage, done=done, total=total).send(channel)

    count = 0
    try:
        if order.device != "cpu":
            devices.start_cuda()
        sandbox.put_up(forbidden=map(Path, order.closed), writable=(Path(order.folder),))
        module, _, name = order.function.partition(":")
        for value in getattr(import_module(module), name)(progress, **order.arguments):
            Value(value=value).send(channel)
            count += 1
        Returned(count=count).send(channel)
    except Closed:
        return 3
    except BaseException as error:
        explain(error).send(channel)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
