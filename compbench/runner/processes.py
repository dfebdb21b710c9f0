"""Child processes of a run: start them with the right number of threads and allocator, watch them, and kill them as a group."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from compbench.api.schemas import Card, RunRequest, Status
from compbench.registry.checkout import sources_of
from compbench.registry.registry import Registry
from compbench.runner.channel import Channel, Closed, Garbled
from compbench.runner.messages import Begin, Failed, Finish, M, Message, Progress, parsed
from compbench.runner.signals import STOPPING_SIGNALS, unheard_by_children
from compbench.runner.supervisor import STOP
from compbench.system.devices import is_calm, num_cores, thread_variables
from compbench.system.errors import Unwritable
from compbench.system.files import remove_tree

GRACE_SECONDS = 20.0
"""Time between SIGTERM and SIGKILL, in which a process can finish a training step and write a checkpoint."""
MESSAGE_SECONDS = 30.0
"""Longest wait for the rest of a message that has begun."""
SUPERVISOR_SECONDS = 10.0
"""Longest wait until a supervisor has killed everything."""
ALARM_SECONDS = 0.5
"""The parent checks at this interval whether a wait should end."""
ASKING = (*STOPPING_SIGNALS, signal.SIGUSR2)
"""Signals by which a user or a scheduler asks a process to stop; a scheduler may send them to every process of a job."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_TOP_PAD_": "67108864"}
"""Let glibc keep freed memory instead of returning it: page faults make convolutions 1.3 to 2 times slower (measured)."""
DEFAULTS = {"HDF5_USE_FILE_LOCKING": "FALSE"}
"""Defaults of variables that a user may override.  Official files are only read, so HDF5 needs no lock, even if a notebook has
one open or the disk has no locks."""
COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_HOME": "triton-home", "TRITON_CACHE_DIR": "triton"}
COMPILED |= {"CUDA_CACHE_PATH": "cuda"}
"""Variables that name caches of compiled code, and a folder for each, because the sandbox forbids writing to a home folder."""


class Ended(Exception):
    """A child no longer answers.  The exception has the record's status, reason and traceback tail.

    `stopped`: the child ended because it was asked to stop, by its own report or by the signal that ended it.
    """

    def __init__(self, status: Status, reason: str, traceback: str = "", *, usage: bool = False, stopped: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.traceback, self.usage = status, reason, traceback, usage
        self.stopped = stopped or status == "killed"


class Process:
    """A child in its own process group, with a channel to it, a folder that it may write to, and a log next to that folder.

    `words` are its module and arguments; descriptors that it inherits follow: its channel, then those of `peers`.
    """

    def __init__(
        self,
        role: str,
        words: Sequence[str],
        folder: Path,
        *,
        threads: int,
        calm: bool = False,
        peers: Sequence[Channel] = (),
        card: Card | None = None,
    ) -> None:
        self.role, self.folder, self.log = role, folder, folder.with_name(f"{role}.log")
        self.control, theirs = Channel.pair()
        descriptors = [channel.socket.fileno() for channel in (theirs, *peers)]
        env = {**environment(threads, card, calm=calm), **own_places(folder)}
        try:
            output = self.log.open("wb")
        except OSError as error:
            raise Unwritable.of(self.log, error) from error
        with output, unheard_by_children():
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "compbench.runner.supervisor",
                    str(len(descriptors)),
                    *words,
                    *map(str, descriptors),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                pass_fds=descriptors,
                start_new_session=True,
            )
        theirs.close()
        self.control.socket.settimeout(MESSAGE_SECONDS)

    def order(self, message: Message) -> None:
        """Send an order.  Raises Ended if the child is gone."""
        try:
            message.send(self.control)
        except Closed as error:
            raise self.death() from error

    def expect(
        self,
        kind: type[M],
        *,
        deadline: float,
        progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
        alarm: Callable[[], None] = lambda: None,
    ) -> M:
        """Wait for the next message of a kind, until the deadline of `time.monotonic()` at most.

        An incomplete message ends the wait earlier.  `alarm` is called twice a second, also while the child is silent; an
        exception from it ends the wait.  Raises Ended if the child failed, died, sent something else or ran out of time.
        """
        begun = 0.0  # start of the message that is being received
        with selectors.DefaultSelector() as selector:
            selector.register(self.control.socket, selectors.EVENT_READ)
            while True:
                alarm()
                now = time.monotonic()
                begun = (begun or now) if self.control.pending else 0.0
                if now >= deadline:
                    raise Ended("timeout", f"the {self.role} did not finish within the time limit")
                if begun and now - begun > MESSAGE_SECONDS:
                    raise Ended("failed", f"the {self.role} began a message and did not finish it in {MESSAGE_SECONDS:g} s")
                message = self._next(read=False)
                if message is None and selector.select(max(0.0, min(deadline - now, ALARM_SECONDS))):
                    message = self._next(read=True)
                if message is None:
                    continue
                begun = 0.0
                if isinstance(message, kind):
                    return message
                if isinstance(message, Failed):
                    raise Ended(message.status, message.reason, message.traceback, usage=message.usage)
                if not isinstance(message, Progress):
                    raise Ended("failed", f"the {self.role} sent {type(message).__name__}, which was not asked for")
                progress(message.stage, message.done, message.total)

    def _next(self, *, read: bool) -> Message | None:
        """The next complete message, if any; `read` first reads from the socket once, which does not block if it is readable."""
        try:
            if read:
                self.control.read()
            frame = self.control.taken()
            return parsed(frame) if frame else None
        except Garbled as error:
            raise Ended("failed", f"the {self.role} sent an invalid message: {error}", log_tail(self.log)) from error
        except Closed as error:
            raise self.death() from error

    def death(self) -> Ended:
        """Explain from its exit status how a child ended that sent no message; wait a little for the status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        code, tail = self.process.poll(), log_tail(self.log)
        if code is None or code >= 0:
            return Ended("failed", f"the {self.role} ended with exit status {code} without a message", tail)
        if -code == signal.SIGKILL:
            return Ended("oom", f"the {self.role} was killed by SIGKILL, most likely because memory ran out", tail)
        name = signal.Signals(-code).name if -code in signal.Signals._value2member_map_ else f"signal {-code}"
        return Ended("failed", f"the {self.role} died of {name}", tail, stopped=-code in ASKING)

    def stop(self, *, gracefully: bool = False) -> None:
        """End the child and its descendants: SIGTERM and a grace period if `gracefully` (to save a checkpoint), then SIGKILL."""
        if gracefully and self.process.poll() is None:
            self._signal(signal.SIGTERM)
            self.control.hang_up()  # a child that waits for orders ends at once
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=GRACE_SECONDS)
        self.process.send_signal(STOP)  # its supervisor also finds what a plugin started and left behind
        for _ in range(2):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=SUPERVISOR_SECONDS)
                break
            self._signal(signal.SIGKILL)  # kill the whole group if the supervisor does not answer
        self.control.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Child(Process):
    """A contestant or a referee, which can do several runs one after the other."""

    def __init__(self, role: str, request: RunRequest, peer: Channel, folder: Path, *, calm: bool = False) -> None:
        words, threads = ("compbench.runner.worker", role), threads_of(request)
        super().__init__(role, words, folder, threads=threads, calm=calm, peers=(peer,), card=request.card)
        self.begin(request)

    def begin(self, request: RunRequest) -> None:
        """Send the child its run."""
        Begin(request=request, folder=str(self.folder)).send(self.control)


class Processes:
    """A contestant and a referee, reused for consecutive runs; each has its own folder in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key: tuple[object, ...] = ()
        self._sources: frozenset[tuple[str, int, int]] = frozenset()
        self._started = 0
        self.pair: tuple[Child, Child] | None = None
        self.predecessors = 0

    def take(self, request: RunRequest) -> tuple[Child, Child]:
        """Contestant and referee for `request`: the existing ones if they suit the request and are alive, else new ones.

        Processes that have imported code are not used once a source file has changed.
        """
        key = (request.method, request.plugins, request.threads, request.slots, request.device, request.card)
        sources = sources_of(Registry(tuple(map(Path, request.plugins))))
        alike = (key, sources) == (self._key, self._sources)
        if self.pair is not None and alike and all(child.process.poll() is None for child in self.pair):
            self.predecessors += 1
            for child in self.pair:
                child.begin(request)
            return self.pair
        self.close()
        if self._started:
            remove_tree(self._contestant_folder)
        self._started += 1  # no contestant gets a folder that another could write to
        left, right = Channel.pair()
        calm = (threads := threads_of(request)) > 1 and is_calm(threads)  # a single thread never waits for others
        contestant = Child("contestant", request, left, self._contestant_folder, calm=calm)
        self.pair = contestant, Child("referee", request, right, self.folder / "referee", calm=calm)
        left.close()
        right.close()
        self._key, self._sources, self.predecessors = key, sources, 0
        return self.pair

    def is_outdated(self, request: RunRequest) -> bool:
        """Whether a source file has changed since the processes for `request` were started."""
        return self._sources != sources_of(Registry(tuple(map(Path, request.plugins))))

    @property
    def _contestant_folder(self) -> Path:
        return self.folder / f"contestant-{self._started}"

    def release(self) -> None:
        """Keep the processes of a run that went well for the next run."""
        for child in self.pair or ():
            with contextlib.suppress(Closed):  # `take` notices that it is gone
                Finish().send(child.control)

    def close(self, *, gracefully: bool = False) -> None:
        """End both; the contestant may first save a checkpoint."""
        if self.pair is not None:
            contestant, referee = self.pair
            self.pair = None
            contestant.stop(gracefully=gracefully)
            referee.stop()


def threads_of(request: RunRequest) -> int:
    """CPU threads of each child."""
    return request.threads or max(1, num_cores() // request.slots)


def environment(threads: int, card: Card | None = None, *, calm: bool = False) -> dict[str, str]:
    """The children's environment: threads, allocator, no user site packages, and the only visible GPU if one was chosen."""
    own = dict.fromkeys(("PYTHONUNBUFFERED", "PYTHONNOUSERSITE", "PYTHONSAFEPATH"), "1")
    own["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)  # otherwise each slot's compiler would start one process per core
    seen = {} if card is None else {"CUDA_VISIBLE_DEVICES": card.entry}
    return {**DEFAULTS, **os.environ, **MALLOC, **thread_variables(threads, calm=calm), **own, **seen}


def own_places(folder: Path) -> dict[str, str]:
    """Make a child's own folder; return the variables that keep temporary files and compiled code inside of it."""
    temporary, compiled = folder / "tmp", folder / "compiled"
    try:
        for place in (temporary, compiled):
            place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable.of(folder, error) from error
    return {"TMPDIR": str(temporary), **{name: str(compiled / place) for name, place in COMPILED.items()}}


def log_tail(log: Path, count: int = 4000) -> str:
    """The last characters of a child's output, which may be of any size."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - count))
            return file.read(count).decode("utf-8", "replace")
    except OSError:
        return ""


def last_line(text: str, most: int = 300) -> str:
    """The last non-empty line of a child's output, shortened; "" if there is none."""
    return next((line.strip()[:most] for line in reversed(text.splitlines()) if line.strip()), "")
