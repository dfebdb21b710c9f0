"""Leases: divide work between processes on several machines that share a folder and nothing else.

A lease is one file that its holder refreshes; filelock's `SoftFileLease` does the work.  The death of a holder on this machine is
detected at once.  A holder on another machine counts as dead after `DEAD_SECONDS` without a refresh by the reader's own monotonic
clock, so no two clocks are compared.  The file is deleted when the lease is released, so leases do not pile up.  A lease only
decides which process should work; the store itself prevents overwriting.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

try:
    from filelock._identity import host_name, owner_is_stale
except ImportError:  # an older filelock writes plain host names and no start of a process
    host_name, owner_is_stale = socket.gethostname, None  # type: ignore[assignment]

from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import read_limited

BEAT_SECONDS = 2.0
"""A holder refreshes its lease at this interval."""
DEAD_SECONDS = 60.0
"""A lease that was not refreshed for this long counts as abandoned."""
EMPTY_SECONDS = 5.0  # an empty lease of this age has no holder: writing its line takes microseconds
POLL_SECONDS = 0.2
LONGEST_SECONDS = 1e7
"""Longest wait in seconds; it is effectively unlimited, because filelock forbids an infinite timeout here."""
MAX_BYTES = 4096


class Busy(CompbenchError):
    """A living process holds the lease; the lease's file is `path`."""

    def __init__(self, path: Path, holder: str, message: str = "") -> None:
        super().__init__(message or f"{path} is held by another process ({holder}).")
        self.path, self.holder = path, holder


class Holder(NamedTuple):
    """The process that holds a lease; `start` says when it began, where filelock writes that ("" elsewhere).

    A host's name includes the namespace of process numbers, if that is not the machine's own (a container).
    """

    host: str
    pid: int
    start: str = ""

    @property
    def here(self) -> bool:
        """Whether its process number counts for this process too."""
        return self.host == host_name()

    @property
    def is_alive(self) -> bool:
        """Whether a process of this machine still runs; by now its number may belong to another one."""
        if owner_is_stale is not None and self.start.isdecimal():
            return not owner_is_stale(self.pid, self.host, int(self.start))
        try:
            own = Path("/proc", str(self.pid))
            return b"python" in (own / "cmdline").read_bytes() or b"compbench" in (own / "comm").read_bytes()
        except OSError:
            return False


class Lost(Busy):
    """This process held the lease but was silent for too long, and another process took over the work."""


class Lease:
    """A lease that this process holds until `release`."""

    def __init__(self, path: Path, cancel: Callable[[], bool], *, beat: float, dead: float) -> None:
        poll = min(POLL_SECONDS, beat)
        self.path = path
        self._lock = SoftFileLease(
            str(path), lease_duration=dead, heartbeat_interval=beat, thread_local=False, poll_interval=poll
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=LONGEST_SECONDS, cancel_check=_without_empty(path, cancel))
        except (Timeout, LeaseSettingsMismatch) as error:
            raise Busy(path, _holder_of(path)) from error
        except OSError as error:
            raise Unwritable.of(path, error) from error

    def check(self) -> None:
        """Raise Lost if another process took over because this one seemed dead (it was suspended, or cut off from the disk)."""
        if self._lock.compromise is not None:
            message = "another process took over the run after a long silence; the record of that process counts."
            raise Lost(self.path, _holder_of(self.path), message)

    def release(self) -> None:
        """Release the lease and delete its file."""
        self._lock.release()


def take(
    path: Path, *, alarm: Callable[[], None] = lambda: None, beat: float = BEAT_SECONDS, dead: float = DEAD_SECONDS
) -> Lease:
    """Take a lease.  Returns at once, or, if another machine holds it, as soon as it is known whether that holder is alive.

    Args:
        alarm: called while waiting; may raise to give up.
        beat: seconds between refreshes.
        dead: seconds of silence after which a holder counts as dead; the same for all processes that share the folder.

    Raises:
        Busy: a living process holds it.
        Unwritable: the lease cannot be written, for example on a full disk, so the work should not begin.
    """
    first = _refreshed(path)

    def lives() -> bool:
        """Whether the holder still refreshes; a dead holder on this machine would have been replaced at once."""
        alarm()
        refreshed, host = _refreshed(path), _facts(path).get("host")
        return refreshed is not None and host is not None and (refreshed != first or host == host_name())

    return Lease(path, lives, beat=beat, dead=dead)


def wait(path: Path, *, alarm: Callable[[], object]) -> None:
    """Wait until no living process holds a lease.  `alarm` is called meanwhile; it may raise to give up."""
    Lease(path, lambda: bool(alarm()), beat=BEAT_SECONDS, dead=DEAD_SECONDS).release()


def holders(folder: Path) -> list[Holder]:
    """The holder of each lease in a folder; a holder may be dead."""
    found = []
    for path in sorted(folder.glob("*.lease")):
        facts = _facts(path)
        if facts.get("pid", "").isdecimal() and "host" in facts:
            found.append(Holder(facts["host"], int(facts["pid"]), facts.get("start", "")))
    return found


def _without_empty(path: Path, cancel: Callable[[], bool]) -> Callable[[], bool]:
    """`cancel` that first deletes an abandoned empty file, left by a killed holder, which filelock would never replace."""
    seen: dict[tuple[int, int], float] = {}

    def check() -> bool:
        with contextlib.suppress(OSError), path.open("r+b") as file:
            status, now = os.fstat(file.fileno()), time.monotonic()
            if not status.st_size and now - seen.setdefault((status.st_ino, status.st_ctime_ns), now) >= EMPTY_SECONDS:
                file.write(b"abandoned\n")
        return cancel()

    return check


def _refreshed(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
        return status.st_mtime_ns, status.st_ino
    except OSError:
        return None


def _holder_of(path: Path) -> str:
    facts = _facts(path)
    return f"process {facts['pid']} on {facts['host']}" if {"pid", "host"} <= facts.keys() else "unknown"


def _facts(path: Path) -> dict[str, str]:
    try:
        text = read_limited(path, MAX_BYTES).decode(errors="replace")
    except CompbenchError:
        return {}
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
