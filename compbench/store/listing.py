"""The names of a store's records, listed once, and a fast way to read a few facts of many records.

Reading a record whole takes about a millisecond, and a store may hold fifty thousand.  Names say task, method, preset, seed and
identity; a glimpse says how a run ended and what it took.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import RunRequest
from compbench.store.format import MAX_RECORD_BYTES
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.files import read_limited

STATUS = re.compile(rb'\n "status": "([a-z]+)"')
SECONDS = re.compile(rb'\n "seconds": ([0-9.eE+-]+)')
RESUMED = re.compile(rb'\n "resumed": true')
DEVICE_CLASS = re.compile(rb'"device_class": ?"([^"\\]+)"')
"""Pattern that finds the device class in the line of the spec; this line is the same in all record formats."""


class Glimpse(NamedTuple):
    """Facts of a run from its record's lines.  Nothing is checked, not even the digest, so use them only for estimates."""

    status: str
    device_class: str
    resumed: bool
    seconds: float


class Listing:
    """The names of the records in a store at one moment, by run."""

    def __init__(self, store: Store) -> None:
        self._folder = store.folder
        self._names: dict[str, list[str]] = defaultdict(list)
        for name in store.names():
            self._names[name.rsplit(".", 3)[0]].append(name)

    def of(self, request: RunRequest) -> list[Path]:
        """Records of the request's task, method, preset and seed, with any settings, code or device."""
        run = f"{request.task}.{request.method}.{request.preset}.s{request.seed}"
        return [self._folder / name for name in self._names.get(run, ())]

    def runs(self) -> Iterator[tuple[tuple[str, str, str], list[Path]]]:
        """(task, method, preset) of each run, and its records."""
        for run, names in self._names.items():
            if len(parts := run.split(".")) == 4:
                yield (parts[0], parts[1], parts[2]), [self._folder / name for name in names]


def glimpse(path: Path) -> Glimpse | None:
    """Facts from a record's lines; None if the file cannot be read or is not written like a record."""
    try:
        content = read_limited(path, MAX_RECORD_BYTES)
    except CompbenchError:
        return None
    status, seconds, device = (pattern.search(content) for pattern in (STATUS, SECONDS, DEVICE_CLASS))
    if not (status and device):
        return None
    try:
        took = float(seconds[1]) if seconds else 0.0
    except ValueError:
        return None
    return Glimpse(status[1].decode(), device[1].decode(errors="replace"), bool(RESUMED.search(content)), took)
