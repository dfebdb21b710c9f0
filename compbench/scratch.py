"""Folders for what lives no longer than a process, also when the process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from compbench.errors import Unwritable


@contextlib.contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """A folder that is gone afterwards; those that killed processes of this machine left under `root` go with it.

    Raises:
        Unwritable: there can be none.
    """
    ours = f"compbench-{socket.gethostname()}-"
    try:
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{glob.escape(ours)}*"):
            if not _is_in_use(left):
                shutil.rmtree(left, ignore_errors=True)
        hidden = Path(tempfile.mkdtemp(prefix=".compbench-", dir=root))  # without a name of ours until it is locked
        lock = os.open(hidden / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        folder = hidden.rename(hidden.with_name(hidden.name.replace(".compbench-", ours)))
    except OSError as error:
        raise Unwritable.of(root, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _is_in_use(folder: Path) -> bool:
    """Whether a process holds the folder's lock; the kernel lets go of it however the process ends."""
    try:
        lock = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
