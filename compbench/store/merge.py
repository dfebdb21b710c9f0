"""Two or more stores into a new one.  The order of the stores does not show in the result."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.errors import CompbenchError
from compbench.schemas import Artifact, Record
from compbench.store.format import dump
from compbench.store.verify import verify


class Entry(NamedTuple):
    """A record and where it lies."""

    record: Record
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / f"{self.record.name}.json"


class Merged(NamedTuple):
    """What a merge did.  `renumbered` has (folder, old name, new name) of each record whose attempt got another number."""

    num_records: int
    num_identical: int
    renumbered: tuple[tuple[Path, str, str], ...]


def merge(sources: Sequence[Path], destination: Path) -> Merged:
    """Merge stores.

    A record that several stores have is taken once.  Where two have different records of one attempt, all attempts at that
    run are numbered anew, in the order in which they began.  The new store appears whole, under its name, or not at all.

    Args:
        sources: folders of records; none is changed.
        destination: the new store; must not exist, or be an empty folder.

    Raises:
        CompbenchError: a source is damaged, the destination is taken, or the disk is full; nothing was written.
    """
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise CompbenchError(f"{destination} is there already; merge into a new folder.")
    entries = [entry for source in sources for entry in _entries(source)]
    by_content: dict[tuple[str, bytes], list[Entry]] = defaultdict(list)
    for entry in entries:
        by_content[entry.record.identity, _content(entry.record)].append(entry)
    by_identity: dict[str, list[list[Entry]]] = defaultdict(list)
    for (identity, _), same in sorted(by_content.items()):
        by_identity[identity].append(same)
    chosen = {name: same for runs in by_identity.values() for name, same in _numbered(runs).items()}
    _write(chosen, destination)
    moved = [
        (entry.folder, entry.record.name, name)
        for name, same in sorted(chosen.items())
        for entry in same
        if name != entry.record.name
    ]
    return Merged(len(chosen), len(entries) - len(chosen), tuple(moved))


def _entries(source: Path) -> list[Entry]:
    report = verify(source)
    harmed = [finding for finding in report.findings if finding.kind in ("record", "artifact")]
    if harmed:
        first, files = harmed[0], "1 damaged file" if len(harmed) == 1 else f"{len(harmed)} damaged files"
        raise CompbenchError(
            f"{source} has {files}, such as {first.name}, which {first.problem.rstrip('.')}: "
            f"mend it (`compbench verify {source}`), then merge."
        )
    return [Entry(record, source) for record in report.records]


def _content(record: Record) -> bytes:
    """The record but for its attempt's number: what makes two records the same."""
    return dump(_renumbered(record, 1))


def _renumbered(record: Record, attempt: int) -> Record:
    moved = record.model_copy(update={"attempt": attempt})
    artifacts = tuple(Artifact(name=_moved(a.name, record.name, moved.name), sha256=a.sha256) for a in record.artifacts)
    return moved.model_copy(update={"artifacts": artifacts})


def _moved(artifact: str, old: str, new: str) -> str:
    return new + artifact.removeprefix(old)


def _numbered(runs: Sequence[Sequence[Entry]]) -> Mapping[str, Sequence[Entry]]:
    """New name -> copies, for one identity; each item of `runs` has all copies of one record."""
    numbers = [{entry.record.attempt for entry in same} for same in runs]
    known = [number for own in numbers for number in own]
    if len(known) == len(runs) and len(set(known)) == len(runs):
        return {same[0].record.name: same for same in runs}
    in_order = sorted(runs, key=lambda same: (same[0].record.started, _content(same[0].record)))
    return {_renumbered(same[0].record, attempt).name: same for attempt, same in enumerate(in_order, 1)}


def _write(chosen: Mapping[str, Sequence[Entry]], destination: Path) -> None:
    """All files into a folder beside the destination, which then gets its name."""
    staged = destination.absolute().with_name(f".{destination.absolute().name}.{secrets.token_hex(4)}")
    try:
        staged.mkdir(parents=True)
        for name, same in chosen.items():
            _copy(name, same, staged)
        os.sync()
        os.rename(staged, destination)
    except BaseException as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(staged)
        if isinstance(error, OSError):
            raise CompbenchError(f"could not write {destination}: {error.strerror or error}; nothing was changed.") from error
        raise


def _copy(name: str, same: Sequence[Entry], folder: Path) -> None:
    """A record under its new name, with each picture that some copy of it has beside it."""
    for entry in same:
        for artifact in entry.record.artifacts:
            path = entry.folder / artifact.name
            if path.is_file():
                content = path.read_bytes()
                if hashlib.sha256(content).hexdigest() != artifact.sha256:
                    raise CompbenchError(f"{path} changed while it was read; nothing was written.")
                (folder / _moved(artifact.name, entry.record.name, name)).write_bytes(content)
    unmoved = [entry.path.read_bytes() for entry in same if entry.record.name == name]
    content = min(unmoved) if unmoved else dump(_renumbered(same[0].record, int(name.rpartition(".")[2])))
    (folder / f"{name}.json").write_bytes(content)
