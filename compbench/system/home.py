"""The folder of compbench's data (COMPBENCH_HOME or the user's data folder), and scratch folders, deleted with their process."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import lock, publish, remove_tree, same_content
from compbench.system.plugin_folder import PluginFolder

CLOSED = "COMPBENCH_CLOSED"
"""Variable with a JSON list of further folders that no plugin may read: the user's own, if a gate gives its sides new homes."""

FROM_DATA = "data"
"""Folder of a cache for results that depend only on a task's data and contain no data of a referee."""


class Home:
    """The folders under COMPBENCH_HOME; each is created when something is written there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls) -> Home:
        """COMPBENCH_HOME if set, else the platform's data folder for the user.

        Raises:
            CompbenchError: COMPBENCH_HOME, or one of its parents, is not a folder.
        """
        if setting := os.environ.get("COMPBENCH_HOME"):
            return cls(_folder(setting))
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("compbench", appauthor=False)))

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def runs(self) -> Path:
        """Checkpoints, weights, logs and traces, one folder per run (named by identity)."""
        return self.root / "runs"

    @property
    def references(self) -> Path:
        """The referee's files: judges, reference statistics, processed data.  Contestants cannot read them; safe to delete."""
        return self.root / "references"

    @property
    def cache(self) -> Path:
        """The contestants' files: fitted models that several runs share, a copy of processed data.  Safe to delete."""
        return self.root / "cache"

    @property
    def data(self) -> Path:
        """Official data files."""
        return self.root / "data"

    @property
    def leases(self) -> Path:
        """Leases of the runs in progress, one folder per run (named by identity).  A contestant cannot reach them."""
        return self.root / "leases"

    @property
    def profiles(self) -> Path:
        """Measurements of `compbench profile`."""
        return self.root / "profiles"

    @property
    def board(self) -> Path:
        return self.root / "board"

    @property
    def levels(self) -> Path:
        """Verification levels of records, next to the folder of records; if that is a link, next to its target."""
        return self.records.resolve().parent / "levels"

    @property
    def closed(self) -> tuple[Path, ...]:
        """Folders that no plugin may read, in this home and the user's own: those of the referee, the parent and other runs."""
        more = [Path(path) for path in json.loads(os.environ.get(CLOSED, "[]"))]
        for home in (self, Home.of_user()):
            more += [home.references, home.records, home.board, home.runs, home.leases, home.levels]
        return tuple(dict.fromkeys(more))

    def share_data(self, cache: Path) -> None:
        """Give a contestant the referee's processed data, so that it is processed once; no data goes the other way.

        `Home.cache` gets a copy that contestants can read but not write; `cache`, in a contestant's folder, gets links.  The copy
        is compared with the referee's file each time, and made again if it differs.
        """
        for _ in self.shared_data():
            pass
        self.link_data(cache)

    def link_data(self, cache: Path) -> None:
        """Put links to the processed data in `Home.cache` into a contestant's cache; a file that cannot be linked is left out."""
        for path in processed_data(self.cache):
            with contextlib.suppress(OSError):  # the contestant then makes its own
                PluginFolder(cache.parent, cache.name, FROM_DATA).link(path)

    def shared_data(self) -> Iterator[Path]:
        """Copies in `Home.cache` of the referee's processed data, each brought up to date before it is yielded."""
        shared = self.cache / FROM_DATA
        for path in processed_data(self.references):
            with contextlib.suppress(OSError, CompbenchError):
                if not same_content(path, shared / path.name):
                    publish(path, shared / path.name)
                yield shared / path.name


def processed_data(cache: Path) -> list[Path]:
    """The files of processed data in a cache, without the locks next to them: a contestant makes its own."""
    return sorted(path for path in (cache / FROM_DATA).glob("*.*") if path.suffix in (".safetensors", ".npz"))


def home_beside(folder: Path, data: Path) -> Path:
    """A separate home in `folder`, with the user's official data.  Raises Unwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / "data"
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)  # the user's home has moved
        if data.is_dir():
            with contextlib.suppress(FileExistsError):
                link.symlink_to(data, target_is_directory=True)
    except OSError as error:
        raise Unwritable.of(folder, error) from error
    return folder


def _folder(setting: str) -> Path:
    """The folder that COMPBENCH_HOME names; it need not exist yet."""
    try:
        path = Path(setting).expanduser().resolve()
        there = next(place for place in (path, *path.parents) if place.exists())
        found = "" if there.is_dir() else f"{there} is not a folder"
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no such user, a name too long
        path, found = Path(setting), str(error)
    if found:
        raise CompbenchError(f"COMPBENCH_HOME={setting}: {found}; name a folder; it need not exist yet.")
    return path


def scratch_prefix() -> str:
    """Prefix of the names of this machine's scratch folders."""
    return f"compbench-{socket.gethostname()}-"


def remove_left_over(root: Path) -> None:
    """Remove the scratch folders that killed processes of this machine left under `root`.  Raises OSError."""
    for left in root.glob(f"{glob.escape(scratch_prefix())}*"):
        if not is_in_use(left):
            remove_tree(left)


@contextlib.contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """A folder that is deleted afterwards, together with folders that killed processes of this machine left under `root`.

    Raises:
        Unwritable: the folder cannot be created.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_left_over(root)
        hidden = Path(tempfile.mkdtemp(prefix=".compbench-", dir=root))  # it gets its final name once it is locked
        in_use = os.open(hidden / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        lock(in_use, wait=True)
        folder = hidden.rename(hidden.with_name(hidden.name.replace(".compbench-", scratch_prefix())))
    except OSError as error:
        raise Unwritable.of(root, error) from error
    try:
        yield folder
    finally:
        remove_tree(folder)
        os.close(in_use)


def is_in_use(folder: Path) -> bool:
    """Whether a process holds, or may hold, the folder's lock; the kernel releases the lock however the process ends."""
    try:
        in_use = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock(in_use, wait=False)
    except OSError:
        return True
    finally:
        os.close(in_use)
