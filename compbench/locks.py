"""Work that is worth doing once: others who want the same thing wait for whoever began it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file that is about to be made.  The kernel lets go of it when the process ends, however it ends.

    Args:
        path: the file; the lock lies beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
