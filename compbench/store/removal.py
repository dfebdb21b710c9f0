"""Remove records from your own store: a record, the files next to it, its levels, and its run's files on this machine.

A record is never half removed: it is deleted first, so that the run counts as not done from then on, and a dot-file reserves
the record's name while the rest is deleted.  If the process is killed, `compbench verify` names the remaining files,
and the next run of that spec deletes them.  A full disk does not stop a removal, which makes room.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from compbench.store.lease import Busy, take
from compbench.store.listing import glimpse
from compbench.store.records import RESERVED, Store, read_record
from compbench.system.errors import CompbenchError, Unwritable, is_of_full_disk
from compbench.system.files import remove_tree
from compbench.system.home import Home

IDENTITY = re.compile(r"[0-9a-f]{12}")
UNKNOWN = "unreadable"
"""The status of a file that cannot be read as a record."""


class Wanted(NamedTuple):
    """What to remove: patterns with * and ?, and a status; "" matches everything."""

    method: str = ""
    task: str = ""
    preset: str = ""
    status: str = ""

    def matches(self, path: Path) -> bool:
        parts = path.stem.split(".")
        if len(parts) != 6:
            return False
        filters = ((parts[0], self.task), (parts[1], self.method), (parts[2], self.preset))
        return all(fnmatchcase(name, pattern or "*") for name, pattern in filters) and self.status in ("", status_of(path))


class Removal(NamedTuple):
    """A record that will be removed.

    Attributes:
        path: path of the record.
        status: how its run ended.
        files: the record, its artifacts and its levels.
        run: folder of the run's weights, checkpoints and logs; None if there is none, or if another attempt still needs it.
    """

    path: Path
    status: str
    files: tuple[Path, ...]
    run: Path | None

    @property
    def num_bytes(self) -> int:
        inside = (Path(top) / name for top, _, names in os.walk(self.run) for name in names) if self.run else ()
        return sum(path.lstat().st_size for path in (*self.files, *inside) if os.path.lexists(path))


def status_of(path: Path) -> str:
    """The status of a record's run; `UNKNOWN` if the file cannot be read."""
    found = glimpse(path)
    return UNKNOWN if found is None else found.status


def chosen(home: Home, names: Sequence[str], wanted: Wanted) -> list[Path]:
    """The records to remove: those that are named (a part of a name is enough if it is unique), or all that match the filters.

    Raises:
        CompbenchError: a name matches no record or several, or a file lies outside of the user's store.
    """
    store = Store(home.records)
    if not names:
        return [path for path in store.paths() if wanted.matches(path)]
    found = [_own(store, name) for name in names]
    return list(dict.fromkeys(found))


def _own(store: Store, name: str) -> Path:
    path = store.find(name)
    if path.resolve().parent != store.folder.resolve() or path.suffix != ".json":
        raise CompbenchError(
            f"{name} is not a record of your own store, {store.folder}: remove deletes there only; delete other files yourself."
        )
    return store.folder / path.name


def removals(home: Home, paths: Sequence[Path]) -> list[Removal]:
    """The files to remove with each record.  A run's folder is removed with the last of its attempts."""
    going = {path.name for path in paths}
    staying = {_short(path) for path in Store(home.records).paths() if path.name not in going}
    made = []
    for path in paths:
        run = None if _short(path) in staying else _run_folder(home, _short(path))
        beside = home.records.glob(f"{glob.escape(path.stem)}.*")
        levels = home.levels.glob(f"{glob.escape(path.stem)}.*.json")
        made.append(Removal(path, status_of(path), (path, *sorted({*beside} - {path}), *sorted(levels)), run))
    return made


def _short(path: Path) -> str:
    """The short identity in a record's name; "" where a name has none."""
    return path.stem.split(".")[-2] if "." in path.stem else ""


def _run_folder(home: Home, short: str) -> Path | None:
    """The folder of a run whose identity begins with `short`, if exactly one does."""
    found = list(home.runs.glob(f"{short}*")) if IDENTITY.fullmatch(short) else []
    return found[0] if len(found) == 1 else None


def remove(home: Home, one: Removal) -> None:
    """Remove a record and everything that belongs to it.

    Raises:
        Busy: another process is doing its run again; nothing was removed.
        Unwritable: the store cannot be written, so some files were not deleted.
    """
    with _alone(home, one):
        reserved = one.path.with_name(f".{one.path.name}{RESERVED}")
        try:
            reserved.touch()
            for path in one.files:
                path.unlink(missing_ok=True)
            if one.run is not None:
                remove_tree(one.run)
            reserved.unlink(missing_ok=True)
        except OSError as error:
            raise Unwritable(f"could not remove {one.path.name}: {error.strerror or error}; remove it again.") from error


@contextlib.contextmanager
def _alone(home: Home, one: Removal) -> Iterator[None]:
    """Hold the lease of the record's run, where the run is known.

    On a full disk no lease can be written.  Then no process holds it, or `take` would have raised Busy, and no run can begin.
    """
    try:
        identity = read_record(one.path).identity
    except CompbenchError:
        identity = one.run.name if one.run else ""
    if not identity:
        yield
        return
    try:
        lease = take(home.leases / f"{identity}.lease")
    except Busy as busy:
        raise Busy(busy.path, busy.holder, f"{one.path.stem} is under way again ({busy.holder}): stop that run first.") from busy
    except Unwritable as error:
        if not is_of_full_disk(error.__cause__):
            raise
        yield
        return
    try:
        yield
    finally:
        lease.release()
