"""The child's side of a run: `python -m compbench.runner.worker contestant|referee CONTROL PEER`.

It takes orders from the parent over CONTROL; the referee sends requests to the contestant over PEER.  Standard output and error
belong to the plugin and go to a log.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

from compbench.api.interfaces import Request
from compbench.runner import messages, sandbox
from compbench.runner.channel import Channel, Closed, Frame, Garbled
from compbench.runner.messages import Begin, Failed, Finish, Progress, Sample, Samples, parsed, receive
from compbench.system import devices
from compbench.system.errors import Cancelled, CompbenchError, Refused, Unwritable
from compbench.system.home import Home

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.runner.contestant import Contestant

PROGRESS_SECONDS = 0.2
POLL_SECONDS = 2.0
"""A method has this long to check whether it should stop; with nothing to save, it is then interrupted, even while compiling."""
REQUEST_BYTES = 2**33
"""Largest size in bytes of a request that a contestant accepts."""
SLACK_BYTES = 2**16
"""An answer may have this many bytes in addition to its numbers, for the header of its tensors."""
GONE = "the contestant's process ended while it was asked for samples"

_sandboxed: list[Path] = []
"""At most one folder: the one that this process is confined to."""


class ProgressReporter:
    """Sends a child's progress at most five times a second, and knows whether the child was asked to stop.

    A fit that has done steps may save them.  Before the first step and after the last one there is nothing to save, so a method
    that does not check within `POLL_SECONDS` is then interrupted by Cancelled: a first compilation can take a minute.
    """

    def __init__(self, control: Channel) -> None:
        self._control, self._last, self._stop, self._under_way = control, 0.0, False, False
        signal.signal(signal.SIGTERM, self._asked_to_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        if not self._stop and not self._under_way:
            signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, POLL_SECONDS)
        self._stop = True

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        raise Cancelled("stopped where there was nothing to save.")

    def cancelled(self) -> bool:
        if self._stop:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return self._stop

    def progress(self, stage: str, done: int, total: int) -> None:
        self._under_way = 0 < done < total
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS or done == total:
            self._last = now
            Progress(stage=stage, done=max(0, int(done)), total=max(0, int(total))).send(self._control)


def main(role: str, control_descriptor: int, peer_descriptor: int) -> None:
    """Serve the parent's runs, one after the other, until the parent ends or a run fails."""
    control, peer = map(Channel.of_descriptor, (control_descriptor, peer_descriptor))
    serve = _serve_contestant if role == "contestant" else _serve_referee
    with failures_sent(control):
        while True:
            serve(receive(control, Begin), control, peer, ProgressReporter(control))


@contextlib.contextmanager
def failures_sent(control: Channel) -> Iterator[None]:
    """Send the parent the error that ends this process, and exit."""
    try:
        yield
    except Closed:
        sys.exit(3)
    except BaseException as error:
        explain(error).send(control)
        sys.exit(1)


def explain(error: BaseException) -> Failed:
    """Turn an exception into a message: how the run ended, one line, and the traceback's tail."""
    if isinstance(error, ContestantFailed):
        return error.failed
    said, ours = error.reason if isinstance(error, Unwritable) else str(error), isinstance(error, CompbenchError | Cancelled)
    text = " ".join(said.split()) or type(error).__name__
    return Failed(
        status=_status(error),
        usage=isinstance(error, CompbenchError),
        reason=text if ours else f"{type(error).__name__}: {text}",
        traceback="" if ours else "".join(traceback.format_exception(error)),
    )


def _status(error: BaseException) -> Literal["failed", "oom", "killed", "refused"]:
    if isinstance(error, Refused | Cancelled):
        return "refused" if isinstance(error, Refused) else "killed"
    out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return "oom" if out_of_memory or "can't allocate memory" in str(error) else "failed"


def _serve_contestant(begin: Begin, control: Channel, peer: Channel, reporter: ProgressReporter) -> None:
    from compbench.runner.contestant import Contestant

    request, folder = begin.request, Path(begin.folder)
    if request.device != "cpu":
        devices.start_cuda()
    confine(Home(Path(request.home)), folder)
    contestant = Contestant(request, folder, progress=reporter.progress, cancelled=reporter.cancelled)
    contestant.describe().send(control)
    with selectors.DefaultSelector() as selector:
        selector.register(control.socket, selectors.EVENT_READ, control)
        selector.register(peer.socket, selectors.EVENT_READ, peer)
        while True:
            for key, _ in selector.select():
                if key.data is peer:
                    try:
                        _answer(contestant, peer.receive(max_payload=REQUEST_BYTES), peer)
                    except Closed:
                        selector.unregister(peer.socket)
                    continue
                order = receive(control, messages.Open, messages.Fit, messages.Measure, Finish)
                if isinstance(order, Finish):
                    return
                contestant.obey(order).send(control)


def _answer(contestant: Contestant, frame: Frame, peer: Channel) -> None:
    """Answer one request; an exception of the method is sent to the referee, which passes it on."""
    asked, order = frame.tensors(), parsed(frame)
    assert isinstance(order, Sample)
    request = Request(asked["condition"], asked["x0"], asked.get("known"), asked.get("known_mask"))
    try:
        Samples().send(peer, {"samples": contestant.sample(request, order.stream, order.follow)})
    except Closed:
        raise
    except Exception as error:
        explain(error).send(peer)


def _serve_referee(begin: Begin, control: Channel, peer: Channel, reporter: ProgressReporter) -> None:
    from compbench.runner.referee import Referee

    referee = Referee(begin.request, Path(begin.folder), progress=reporter.progress)
    referee.describe().send(control)
    while not isinstance(order := receive(control, *messages.OF_THE_REFEREE, Finish), Finish):
        referee.obey(order, partial(ask, peer)).send(control)


def confine(home: Home, folder: Path) -> None:
    """Put this process into the sandbox once; later runs of a chain stay inside.

    The process can write only to `folder`, and cannot read data of the referee, the parent or other runs.
    """
    if not _sandboxed:
        with contextlib.suppress(OSError):  # only what exists now will be readable later
            home.cache.mkdir(parents=True, exist_ok=True)
        _sandboxed.append(folder)
        sandbox.put_up(forbidden=home.closed, writable=(folder,))


class ContestantFailed(CompbenchError):
    """The contestant raised an error while it answered; `failed` is the message that it sent."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason or "the contestant failed")
        self.failed = failed


def ask(peer: Channel, request: Request, stream: str, follow: int = 0) -> Tensor:
    """The referee's side of one request over the peer channel; an answer may be as large as float64 samples."""
    tensors = {name: value for name, value in request._asdict().items() if value is not None}
    try:
        Sample(stream=stream, follow=follow).send(peer, tensors)
        frame = peer.receive(max_payload=8 * request.x0.numel() + SLACK_BYTES)
        message, samples = parsed(frame), frame.tensors().get("samples")
    except Garbled as error:
        raise ContestantFailed(Failed(reason=f"the contestant's answer is invalid: {error}")) from error
    except Closed as error:
        raise ContestantFailed(Failed(reason=GONE)) from error
    if isinstance(message, Failed):
        raise ContestantFailed(message)
    if samples is None:
        raise ContestantFailed(Failed(reason=f"the contestant answered with {type(message).__name__}"))
    return samples


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
