"""Leases: who works on what, where several processes on several machines share a folder and nothing else.

A lease is one file that its holder refreshes; filelock's `SoftFileLease` does the work.  A holder that died on this machine
is seen at once, one on another machine after `DEAD_SECONDS` without a refresh on the reader's own monotonic clock: no two
clocks are compared.  The file goes when the lease is given back, so leases do not pile up.  A lease says who should be
working; that no record is overwritten is the store's own doing.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from compbench.errors import CompbenchError, Unwritable
from compbench.files import read_limited

BEAT_SECONDS = 2.0
"""Between two refreshes of a holder."""
DEAD_SECONDS = 60.0
"""A lease that was not refreshed for so long has no holder."""
POLL_SECONDS = 0.2
LONGEST_SECONDS = 1e7
"""Of waiting: as good as for ever, which filelock forbids in a thread that holds the same file."""
MAX_BYTES = 4096


class Busy(CompbenchError):
    """A living process holds the lease.  `path` is where to look whether that has ended."""

    def __init__(self, path: Path, holder: str, message: str = "") -> None:
        super().__init__(message or f"{path} is held by another process ({holder}).")
        self.path, self.holder = path, holder


class Lost(Busy):
    """This process held the lease, was silent for too long, and another took the work over."""


class Lease:
    """A lease that this process holds until `release`."""

    def __init__(self, path: Path, lock: SoftFileLease) -> None:
        self.path, self._lock = path, lock

    def check(self) -> None:
        """Raise Lost if another process took this one for dead (it was suspended, or cut off from the disk)."""
        if self._lock.compromise is not None:
            holder = holder_of(self.path) or "unknown"
            raise Lost(self.path, holder, "the run was taken over by another process after a long silence; its record counts.")

    def release(self) -> None:
        """Give it back; the file is gone afterwards."""
        self._lock.release()


def take(
    path: Path, *, alarm: Callable[[], None] = lambda: None, beat: float = BEAT_SECONDS, dead: float = DEAD_SECONDS
) -> Lease:
    """Take a lease.  Returns at once, or, if another machine's lies there, once it is known whether its holder lives.

    Args:
        path: its file.
        alarm: called while waiting; may raise to give up.
        beat: seconds between refreshes.
        dead: seconds of silence after which a holder counts as dead; the same for all who share the folder.

    Raises:
        Busy: another process holds it, and lives.
        Unwritable: the lease cannot be written (a full disk, say), so the work need not begin.
    """
    first = _refreshed(path)

    def lives() -> bool:
        alarm()
        refreshed = _refreshed(path)
        return refreshed is not None and (refreshed != first or _is_local(path))

    return _acquired(path, lives, beat=beat, dead=dead)


def wait(path: Path, *, alarm: Callable[[], None], beat: float = BEAT_SECONDS, dead: float = DEAD_SECONDS) -> None:
    """Wait until no living process holds a lease.  `alarm` is called meanwhile; it may raise to give up."""

    def never() -> bool:
        alarm()
        return False

    _acquired(path, never, beat=beat, dead=dead).release()


def holder_of(path: Path) -> str:
    """`process 12 on HOST`, or "" where no one holds the lease."""
    facts = _facts(path)
    return f"process {facts['pid']} on {facts['host']}" if {"pid", "host"} <= facts.keys() else ""


def _acquired(path: Path, cancel: Callable[[], bool], *, beat: float, dead: float) -> Lease:
    lock = SoftFileLease(
        str(path), lease_duration=dead, heartbeat_interval=beat, thread_local=False, poll_interval=min(POLL_SECONDS, beat)
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=LONGEST_SECONDS, cancel_check=cancel)
    except (Timeout, LeaseSettingsMismatch) as error:
        raise Busy(path, holder_of(path) or "unknown") from error
    except OSError as error:
        raise Unwritable.of(path, error) from error
    return Lease(path, lock)


def _refreshed(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
        return status.st_mtime_ns, status.st_ino
    except OSError:
        return None


def _is_local(path: Path) -> bool:
    """Whether the holder is on this machine: a dead one would have been replaced at once."""
    return _facts(path).get("host") == socket.gethostname()


def _facts(path: Path) -> dict[str, str]:
    try:
        text = read_limited(path, MAX_BYTES).decode(errors="replace")
    except CompbenchError:
        return {}
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
