"""Claims: who works on what, where several processes on several machines share a folder and nothing else.

A claim is a file `claim.N` that only one process can create (O_EXCL).  Its holder overwrites a counter in it as long as it
lives; overwriting takes no room, so a full disk does not kill a claim.  A claim whose counter stands still for
`DEAD_SECONDS` of its *reader's* monotonic clock is dead: no two clocks are compared, and none that can jump is read.
Whoever finds claim N dead or given back creates claim N + 1, which again only one can; numbers are never used twice, so a
late taker meets a file that is there.  On one machine nobody waits: the holder also locks the file, and the kernel lets go
of that lock however the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from compbench.errors import CompbenchError, Unwritable

BEAT_SECONDS = 2.0
"""Between two beats of a holder."""

DEAD_SECONDS = 60.0
"""A counter that stood still for so long has no holder."""

WIDTH = 20
FREE = "free".ljust(WIDTH)

State = Literal["absent", "free", "dead", "held", "unknown"]


class Busy(CompbenchError):
    """Somebody who lives holds the claim.  `folder` is where to look whether that has ended."""

    def __init__(self, folder: Path, holder: str, message: str = "") -> None:
        super().__init__(message or f"{folder} is claimed by another process ({holder}).")
        self.folder, self.holder = folder, holder


class Lost(Busy):
    """This process held the claim, was silent for too long, and another took the work over."""


class Claim:
    """A claim that this process holds: a heart that beats in a thread until `release`.

    Args:
        path: its file, created and locked by `take`.
        descriptor: the open file.
        beat: seconds between beats.
    """

    def __init__(self, path: Path, descriptor: int, beat: float) -> None:
        self.path, self._descriptor, self._beat = path, descriptor, beat
        self._count = 0
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._live, name=f"claim {path.parent.name[:12]}", daemon=True)
        self._heart.start()

    def check(self) -> None:
        """Raise Lost if somebody took this process for dead (it was suspended, or cut off from the disk)."""
        if _next(self.path).exists():
            message = f"{self.path.parent} was taken over by another process after a long silence of this one."
            raise Lost(self.path.parent, "unknown", message)

    def release(self) -> None:
        """Give the claim back: others may have it at once."""
        self._ended.set()
        self._heart.join()
        self._write(FREE)
        os.close(self._descriptor)

    def _live(self) -> None:
        while not self._ended.wait(self._beat):
            self._count += 1
            self._write(f"{self._count:0{WIDTH}d}")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a beat that fails is silence, and others know what silence means
            os.pwrite(self._descriptor, text.encode(), 0)
            os.fsync(self._descriptor)


def take(
    folder: Path,
    *,
    beat: float = BEAT_SECONDS,
    dead: float = DEAD_SECONDS,
    machine: str = "",
    alarm: Callable[[], None] = lambda: None,
) -> Claim:
    """Claim a folder for this process.  Returns at once, or, if a claim of another machine lies there, once it is known
    whether its holder lives: a beat or two, or `dead` seconds.

    Args:
        folder: of what is claimed.
        beat: seconds between beats of the claim, if it is had.
        dead: seconds of silence after which a holder counts as dead.
        machine: name of this machine; "" finds it out.
        alarm: called while waiting; may raise to give up.

    Raises:
        Busy: another process holds it, and lives.
        Unwritable: the claim cannot be written (a full disk, say), so the work need not begin.
    """
    machine = machine or this_machine()
    watch = Watch(folder, dead=dead, machine=machine)
    while True:
        state = watch.look()
        if state == "held":
            raise Busy(folder, watch.holder)
        if state == "unknown":
            alarm()
            time.sleep(min(0.05, beat))
            continue
        path = folder / f"claim.{watch.number + 1}"
        descriptor = _create(path, machine)
        if descriptor is not None:
            return Claim(path, descriptor, beat)


class Watch:
    """What one reader sees of a folder's claims, and for how long it has seen the same.

    Args:
        folder: of what is claimed.
        dead: seconds of silence after which a holder counts as dead.
        machine: name of this machine; "" finds it out.
    """

    def __init__(self, folder: Path, *, dead: float = DEAD_SECONDS, machine: str = "") -> None:
        self.folder, self.number, self.holder = folder, 0, ""
        self._machine = machine or this_machine()
        self._dead = dead
        self._seen: tuple[int, bytes] = (0, b"")
        self._silence = 0.0
        self._looked = time.monotonic()

    def look(self) -> State:
        """The state of the newest claim, `number`: absent, free (given back), dead, held by one who lives, or not yet known.

        Old claims stay, so the newest is found by opening one number after the other: other than listings, that is never
        stale on a network's file system.
        """
        while (descriptor := _open(self.folder / f"claim.{self.number + 1}")) is not None:
            os.close(descriptor)
            self.number += 1
        if self.number == 0:
            return "absent"
        descriptor = _open(self.folder / f"claim.{self.number}")
        if descriptor is None:  # its writer found the disk full, or the whole folder was deleted
            self.number = 0
            return "unknown"
        try:
            content = os.pread(descriptor, 4096, 0)
            owner = _owner(content)
            self.holder = f"process {owner.get('process', '?')} on {owner.get('host', '?')}"
            if content.startswith(FREE.encode()):
                return "free"
            if owner.get("machine") == self._machine and owner.get("locked"):
                return "held" if _is_locked(descriptor) else "dead"
        finally:
            os.close(descriptor)
        return self._listen(content)

    def _listen(self, content: bytes) -> State:
        now = time.monotonic()
        gap, self._looked = now - self._looked, now
        if (self.number, content) != self._seen:
            heard_before = self._seen[0] == self.number and self._seen[1][WIDTH:] == content[WIDTH:]
            self._seen, self._silence = (self.number, content), 0.0
            return "held" if heard_before else "unknown"
        self._silence += min(gap, self._dead / 4)  # a reader that slept itself has heard nothing, which proves nothing
        return "dead" if self._silence >= self._dead else "unknown"


def wait(folder: Path, *, alarm: Callable[[], None], poll: float = 0.5, dead: float = DEAD_SECONDS) -> None:
    """Wait until nobody who lives holds a folder's claim.

    Args:
        folder: of what is claimed.
        alarm: called between two looks; may raise to give up.
        poll: seconds between two looks.
        dead: seconds of silence after which a holder counts as dead.
    """
    watch = Watch(folder, dead=dead)
    while watch.look() in ("held", "unknown"):
        alarm()
        time.sleep(poll)


@cache
def this_machine() -> str:
    """A name for the running kernel: processes with the same one see each other's locks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _create(path: Path, machine: str) -> int | None:
    """The new claim, open and locked; None if another process was first.

    What it says is written after the lock was had, so whoever reads it can trust the lock.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return None
    except OSError as error:
        raise Unwritable.of(path, error) from error
    try:
        owner = {"machine": machine, "host": socket.gethostname(), "process": os.getpid(), "locked": _lock(descriptor)}
        content = f"{0:0{WIDTH}d}\n{json.dumps(owner)}\n".encode()
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError as error:
        if not _next(path).exists():  # nobody took it for dead yet: a number may not go missing below another
            os.unlink(path)
        os.close(descriptor)
        raise Unwritable.of(path, error) from error
    return descriptor


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _owner(content: bytes) -> dict[str, Any]:
    """Who wrote a claim; nothing is known of one that is just being written, or whose writer died over it."""
    try:
        found = json.loads(content[WIDTH:])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _lock(descriptor: int) -> bool:
    """Lock the file for as long as it is open here; False on a file system without locks, where the heartbeat must do."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_locked(descriptor: int) -> bool:
    """Whether its holder has the file's lock; readers share theirs, so they do not take each other for the holder."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _next(path: Path) -> Path:
    return path.with_name(f"claim.{int(path.name.rpartition('.')[2]) + 1}")
