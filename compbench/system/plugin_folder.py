"""The parent's access to a folder that a plugin can write to: by descriptors, without following links.

A plugin can replace anything below its folder by a link, a pipe or another folder at any moment.  So the parent opens each folder
of a path relative to the descriptor of the folder above it, with O_NOFOLLOW, and accesses files relative to that descriptor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from compbench.system.errors import CompbenchError
from compbench.system.files import copy_opened

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_FILES = 20_000
"""Largest number of folder entries that are examined; for comparison, a hundred rounds of ten silos write 2000 checkpoints."""


def lent_to(folder: Path) -> Path:
    """The folder, next to a plugin's own, for files that the plugin may only read: the sandbox forbids writing there."""
    return folder.with_name(f"{folder.name}-lent")


class PluginFolder:
    """The folder `below` a `root`.  The parent made the root and a plugin cannot replace it; it can replace everything below."""

    def __init__(self, root: Path, *below: str) -> None:
        self.root, self.below = root, below

    @contextlib.contextmanager
    def opened(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder, for `dir_fd`.

        Args:
            make: create missing folders.

        Raises:
            OSError: there is no such folder; a link in its place does not count.
        """
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root, FOLDER)
        try:
            for name in self.below:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=handle)
                above, handle = handle, os.open(name, FOLDER, dir_fd=handle)
                os.close(above)
            yield handle
        finally:
            os.close(handle)

    def files(self) -> dict[str, os.stat_result]:
        """The entries of the folder with their file status, unread; {} if there is no folder."""
        found = {}
        with contextlib.suppress(OSError), self.opened() as folder, os.scandir(folder) as entries:
            for entry in islice(entries, MOST_FILES):
                with contextlib.suppress(OSError):
                    found[entry.name] = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
        return found

    def holds(self, name: str) -> bool:
        """Whether there is an entry of this name, of any kind."""
        with contextlib.suppress(OSError), self.opened() as folder:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            return True
        return False

    def publish(self, name: str, destination: Path, *, limit: int = 2**36) -> None:
        """Copy a regular file out of the folder, as `compbench.system.files.publish` does.

        Raises:
            CompbenchError: there is no such file here, it is not a regular file, or it is too large.
            Unwritable: the destination cannot be written.
        """
        try:
            with self.opened() as folder:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError as error:
            raise CompbenchError(f"{name} cannot be published: {error.strerror}.") from error
        copy_opened(handle, name, destination, limit=limit)

    def link(self, target: Path) -> None:
        """Put a link to a file into the folder, under the file's name.  Raises OSError."""
        with self.opened(make=True) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target.name, dir_fd=folder)
            os.symlink(target, target.name, dir_fd=folder)
