"""Child processes of a run: started with the right threads and allocator, watched, and killed as a group."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from compbench.devices import num_cores, thread_variables
from compbench.errors import Unwritable
from compbench.home import Home
from compbench.run.messages import Channel, Closed, Message
from compbench.run.supervisor import STOP
from compbench.schemas import RunRequest, Status

GRACE_SECONDS = 20.0
"""Between SIGTERM and SIGKILL: enough to finish a training step and write a checkpoint."""

MESSAGE_SECONDS = 30.0
"""Longest wait for the rest of a message that has begun."""

WARDEN_SECONDS = 10.0
"""Longest wait for a warden to have killed everything."""

ALARM_SECONDS = 0.5
"""Between two looks at whether a wait should end."""

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_TOP_PAD_": "67108864"}
"""glibc keeps freed memory instead of returning it: page faults are the top cost of convolutions (1.3-2x measured)."""
COMPILED = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_HOME": "triton-home",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}
"""What keeps compiled code, and the folder of the cache that it gets: inside the sandbox a home folder cannot be written to."""

FAILURES: tuple[Status, ...] = ("failed", "oom", "killed", "refused")
"""Ends that a child may claim for itself."""


class Ended(Exception):
    """A child that will not answer any more: the record's status, reason and traceback tail."""

    def __init__(self, status: Status, reason: str, traceback: str = "", *, usage: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.traceback, self.usage = status, reason, traceback, usage


class Process:
    """A child in a process group of its own, with a channel to it.

    Args:
        role: what messages call it.
        words: the module and its arguments; descriptors that it inherits follow.
        peers: channels that it inherits beside its own, which comes first.
        env: what its environment has beside `environment()`'s.
        threads: CPU threads.
        log: where its output goes.
    """

    def __init__(
        self,
        role: str,
        words: Sequence[str],
        *,
        peers: Sequence[Channel] = (),
        env: Mapping[str, str] = MappingProxyType({}),
        threads: int,
        log: Path,
    ) -> None:
        self.role, self.log = role, log
        self.control, theirs = Channel.pair()
        descriptors = [channel.socket.fileno() for channel in (theirs, *peers)]
        with _opened(log) as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "compbench.run.supervisor", str(len(descriptors)), *words, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment(threads), **env},
                pass_fds=descriptors,
                start_new_session=True,
            )
        theirs.close()
        self.control.socket.settimeout(MESSAGE_SECONDS)

    def expect(
        self,
        kind: str,
        *,
        deadline: float,
        progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
        alarm: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """The header of the next message of a kind; progress goes to `progress`.

        Args:
            kind: what the child was asked to answer with.
            deadline: `time.monotonic()` after which it has run out of time.
            alarm: called twice a second, also while the child says nothing; what it raises ends the waiting.

        Raises:
            Ended: it failed, died or ran out of time.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.control.socket, selectors.EVENT_READ)
            while True:
                alarm()
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(min(left, ALARM_SECONDS)):
                    if time.monotonic() >= deadline:
                        raise Ended("timeout", f"the {self.role} was not done within the time limit")
                    continue
                message = self._receive()
                if message.kind == "progress":
                    with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):  # a plugin may send anything
                        progress(*_progress(message.header))
                elif message.kind == "error":
                    header = message.header
                    raise Ended(
                        header.get("status") if header.get("status") in FAILURES else "failed",
                        str(header.get("reason", ""))[:1900],
                        str(header.get("traceback", ""))[-7900:],
                        usage=bool(header.get("usage")),
                    )
                elif message.kind == kind:
                    return message.header

    def _receive(self) -> Message:
        try:
            return self.control.receive(max_payload=0)
        except Closed as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=10)
            raise self._death() from error

    def _death(self) -> Ended:
        """What the exit status says of a child that went without a word."""
        code, tail = self.process.poll(), log_tail(self.log)
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in signal.Signals._value2member_map_ else f"signal {-code}"
            if name == "SIGKILL":
                return Ended("oom", f"the {self.role} was killed by SIGKILL, most likely for want of memory", tail)
            return Ended("failed", f"the {self.role} died of {name}", tail)
        return Ended("failed", f"the {self.role} ended with exit status {code} and without a word", tail)

    def stop(self, *, gracefully: bool) -> None:
        """End it and all that it started: SIGTERM and some grace if asked (a fit then saves a checkpoint), SIGKILL at last."""
        if gracefully and self.process.poll() is None:
            self._signal(signal.SIGTERM)
            self.control.hang_up()  # a child that waits for orders ends at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=GRACE_SECONDS)
        self.process.send_signal(STOP)  # its warden also finds what a plugin started and left behind
        for _ in range(2):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=WARDEN_SECONDS)
                break
            self._signal(signal.SIGKILL)  # the whole group, should the warden not answer
        self.control.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Child(Process):
    """A contestant or a referee."""

    def __init__(self, role: str, request: RunRequest, peer: Channel, log: Path) -> None:
        threads = request.threads or max(1, num_cores() // request.slots)
        env = _places(request, log.parent) if role == "contestant" else {}
        super().__init__(role, ("compbench.run.worker", role), peers=(peer,), env=env, threads=threads, log=log)
        self.begin(request)

    def begin(self, request: RunRequest) -> None:
        """Tell the child what it is to do; one that has finished a run takes another."""
        self.control.send("request", request=request.model_dump(mode="json"))


def _progress(header: dict[str, Any]) -> tuple[str, int, int]:
    """Stage, steps done and steps in all; no more of a text than fits a line, and nothing that moves a cursor."""
    stage = "".join(letter for letter in str(header["stage"])[:100] if letter.isprintable())
    return stage, int(header["done"]), int(header["total"])


class Crew:
    """A contestant and a referee, kept for runs that follow each other in the same processes.

    Args:
        folder: where their logs go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key: tuple[object, ...] = ()
        self.pair: tuple[Child, Child] | None = None
        self.predecessors = 0

    def take(self, request: RunRequest) -> tuple[Child, Child]:
        """Contestant and referee with `request` before them: the ones at hand if they suit it and live, else new ones."""
        key = (request.method, request.plugins, request.threads, request.slots, request.device)
        if self.pair is not None and self._key == key and all(child.process.poll() is None for child in self.pair):
            self.predecessors += 1
            for child in self.pair:
                child.begin(request)
            return self.pair
        self.close(gracefully=False)
        left, right = Channel.pair()
        contestant = Child("contestant", request, left, self._folder / "contestant.log")
        self.pair = contestant, Child("referee", request, right, self._folder / "referee.log")
        left.close()
        right.close()
        self._key, self.predecessors = key, 0
        return self.pair

    def release(self) -> None:
        """A run is over and went well: its processes wait for the next."""
        for child in self.pair or ():
            with contextlib.suppress(Closed):  # `take` sees that it is gone
                child.control.send("finish")

    def close(self, *, gracefully: bool) -> None:
        """End both; the contestant may first save a checkpoint."""
        if self.pair is not None:
            contestant, referee = self.pair
            self.pair = None
            contestant.stop(gracefully=gracefully)
            referee.stop(gracefully=False)


def environment(threads: int) -> dict[str, str]:
    """The children's environment: threads, allocator, no stray caches."""
    return {**os.environ, **MALLOC, **thread_variables(threads), "PYTHONUNBUFFERED": "1", "PYTHONNOUSERSITE": "1"}


def _places(request: RunRequest, scratch: Path) -> dict[str, str]:
    """Where a contestant may write what is nobody else's: temporary files, and compiled code, which is worth keeping."""
    home = Home(Path(request.home))
    temporary = scratch / "tmp"
    try:
        for folder in (temporary, home.cache, home.runs, home.references):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable.of(temporary, error) from error
    compiled = home.cache / "compiled"
    caches = {name: os.environ.get(name, str(compiled / folder)) for name, folder in COMPILED.items()}
    return {"TMPDIR": str(temporary), **caches}


@contextlib.contextmanager
def _opened(log: Path) -> Iterator[BinaryIO]:
    try:
        file = log.open("wb")
    except OSError as error:
        raise Unwritable.of(log, error) from error
    with file:
        yield file


def log_tail(log: Path, count: int = 4000) -> str:
    """The last characters of a child's output."""
    try:
        return log.read_bytes()[-count:].decode("utf-8", "replace")
    except OSError:
        return ""
