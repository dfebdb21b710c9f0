"""The child's side of the two-process run: `python -m compbench.run.worker contestant|referee CONTROL PEER`.

Takes orders from the parent over CONTROL; over PEER the referee asks and the contestant answers.  Standard output and
error belong to the plugin and go to a log.
"""

from __future__ import annotations

import hashlib
import selectors
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from compbench import devices
from compbench.errors import Cancelled, CompbenchError, Refused
from compbench.home import Home
from compbench.run import sandbox
from compbench.run.messages import Channel, Closed, Message
from compbench.schemas import RunRequest
from compbench.store.verification import beside

PROGRESS_SECONDS = 0.2
_fenced: list[Path] = []
"""The home that this process is fenced off from; at most one."""
PARENT_DIED = 1  # PR_SET_PDEATHSIG


class Ears:
    """What the harness hears of a child: progress, at most five times a second, and whether it should stop."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._last = 0.0
        self._stop = False
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle

    def _note(self, signum: int, frame: Any) -> None:
        self._stop = True

    def cancelled(self) -> bool:
        return self._stop

    def progress(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS or done == total:
            self._last = now
            self._control.send("progress", stage=stage, done=done, total=total)


def main(role: str, control_descriptor: int, peer_descriptor: int) -> int:
    """Serve the parent's runs, one after the other, until it goes away; a run that fails is the last."""
    control = Channel.of_descriptor(control_descriptor)
    peer = Channel.of_descriptor(peer_descriptor)
    serve = _serve_contestant if role == "contestant" else _serve_referee
    try:
        while True:  # one run after the other, as long as all goes well
            request = RunRequest.model_validate(control.receive().header["request"])
            try:
                serve(request, control, peer, Ears(control))
            except Closed:
                return 3
            except BaseException as error:
                control.send("error", **explain(error))
                return 1
    except Closed:
        return 3


def explain(error: BaseException) -> dict[str, Any]:
    """An exception as facts: what kind of end it is, one line, and the traceback's tail."""
    name = type(error).__name__
    text = " ".join(str(error).split()) or name
    if isinstance(error, Refused):
        status = "refused"
    elif isinstance(error, Cancelled):
        status = "killed"
    elif isinstance(error, MemoryError) or name == "OutOfMemoryError":
        status = "oom"
    else:
        status = "failed"
    ours = isinstance(error, CompbenchError | Cancelled)
    return {
        "status": status,
        "usage": isinstance(error, CompbenchError),
        "reason": (text if ours else f"{name}: {text}")[:1900],
        "traceback": "" if ours else "".join(traceback.format_exception(error))[-7900:],
    }


def _serve_contestant(request: RunRequest, control: Channel, peer: Channel, ears: Ears) -> None:
    from compbench.interfaces import Source
    from compbench.run.contestant import Contestant

    if request.device != "cpu":
        devices.start_cuda()
    fence_off(Path(request.home))
    contestant = Contestant(request, progress=ears.progress, cancelled=ears.cancelled)
    control.send("described", **contestant.describe())
    with selectors.DefaultSelector() as selector:
        selector.register(control.socket, selectors.EVENT_READ, control)
        selector.register(peer.socket, selectors.EVENT_READ, peer)
        while True:
            for key, _ in selector.select():
                if key.data is peer:
                    try:
                        message = peer.receive()
                    except Closed:
                        selector.unregister(peer.socket)
                        continue
                    _answer(contestant, message, peer)
                    continue
                message = control.receive()
                if message.kind == "finish":
                    return
                if message.kind == "fit":
                    order = message.header
                    source = Source(**order["source"])
                    contestant.fit(
                        source=source,
                        precision=order["precision"],
                        device=order["device"],
                        folder=Path(order["folder"]),
                        resume=order["resume"],
                    )
                    control.send("fitted", facts=contestant.facts())
                elif message.kind == "measure":
                    control.send("measured", profile=contestant.measure(), facts=contestant.facts())


def _answer(contestant: Any, message: Message, peer: Channel) -> None:
    """Answer one request; a method that raises is told to the referee, which passes it on."""
    from compbench.interfaces import Request

    asked = message.tensors()
    request = Request(asked["condition"], asked["x0"], asked.get("known"), asked.get("known_mask"))
    try:
        samples = contestant.sample(request, stream=str(message.header.get("stream", "")))
    except Exception as error:
        peer.send("error", **explain(error))
        return
    peer.send("samples", {"samples": samples})


def _serve_referee(request: RunRequest, control: Channel, peer: Channel, ears: Ears) -> None:
    from compbench.run.referee import Referee

    referee = Referee(request, progress=ears.progress)
    control.send("described", **referee.describe())
    while (message := control.receive()).kind != "finish":
        if message.kind == "prepare":
            referee.prepare()
            control.send("prepared")
        elif message.kind == "evaluate":
            found = referee.evaluate(lambda asked, stream: ask(peer, asked, stream))
            folder = Path(message.header["folder"])
            for name, content in referee.pictures.items():
                (folder / f"{name}.png").write_bytes(content)
            control.send("evaluated", pictures=hashes(referee.pictures), **found)


def fence_off(home: Path) -> None:
    """Put up the fence around this process, once: a chain of runs stays inside."""
    if not _fenced:
        _fenced.append(home)
        places = Home(home)
        forbidden = (places.references, places.records, places.board, beside(places.records))
        sandbox.put_up(forbidden=forbidden, writable=(places.runs, places.cache, Path(tempfile.gettempdir())))


def hashes(pictures: dict[str, bytes]) -> dict[str, str]:
    """SHA-256 of each picture, by name: the files lie where the contestant can write."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(pictures.items())}


class ContestantFailed(CompbenchError):
    """The contestant raised while it answered; carries what it said."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(str(facts.get("reason", "the contestant failed")))
        self.facts = facts


def ask(peer: Channel, request: Any, stream: str) -> Any:
    """The referee's side of one request over the peer channel."""
    tensors = {name: value for name, value in request._asdict().items() if value is not None}
    try:
        peer.send("sample", tensors, stream=stream)
        message = peer.receive()
    except Closed as error:
        raise ContestantFailed({"reason": "the contestant's process ended while it was asked for samples"}) from error
    if message.kind == "error":
        raise ContestantFailed(message.header)
    samples = message.tensors().get("samples")
    if samples is None:
        raise ContestantFailed({"reason": f"the contestant answered with a message of kind '{message.kind}'"})
    return samples


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
