"""Records on disk: one JSON file per attempt, written whole or not at all, and checked on reading."""

from __future__ import annotations

import contextlib
import gc
import glob
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from compbench.api.schemas import Artifact, Record, RunRequest
from compbench.store.format import MAX_RECORD_BYTES, dump, parse
from compbench.store.text import clean
from compbench.store.validate import check_known, check_place, check_scores
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import read_limited, write_atomically

SAMPLES = "samples.png"
"""The name of a sample grid ends with this."""
MAX_PICTURE_BYTES = 8 * 2**20
"""Largest size of a sample grid, which is embedded in the board's page; a usual one has some hundred kilobytes."""
RESERVED = ".reserved"
"""Suffix of the empty dot-file that keeps an attempt's name while its files are being written."""


T = TypeVar("T")


class Taken(CompbenchError):
    """Another writer has this attempt."""


class Problem(NamedTuple):
    """A file in the store that is not a usable record."""

    path: Path
    reason: str


def read_record(path: Path) -> Record:
    """The record in a file.  Raises CompbenchError: it is not what compbench wrote there (changed, forged, moved), and why."""
    try:
        record = parse(read_limited(path, MAX_RECORD_BYTES))
        check_place(record, path)
        check_scores(record)
        return record
    except CompbenchError as error:
        raise CompbenchError(clean(str(error))) from error  # it may quote what stands in the file


def read_result(path: Path) -> Record:
    """The record of a successful run in a file that a user named.  Raises CompbenchError: it is none, and why."""
    try:
        record = read_record(path)
    except CompbenchError as error:
        raise CompbenchError(f"{path.name} {error}") from error
    if record.status != "ok":
        raise CompbenchError(f"{path.name} belongs to a run that ended as '{record.status}': it has no scores.")
    return record


def read_artifact(folder: Path, artifact: Artifact) -> bytes:
    """A file next to a record that the record names.  Raises CompbenchError: it cannot be read, or is another file."""
    content = read_limited(folder / artifact.name, MAX_PICTURE_BYTES)
    if hashlib.sha256(content).hexdigest() != artifact.sha256:
        raise CompbenchError("is not the file that its record names: the hashes differ.")
    return content


def read_all(paths: Iterable[Path], read: Callable[[Path], T]) -> tuple[list[T], list[Problem]]:
    """The objects read from some files, and the unreadable files, in order; a bad file never hides the good ones."""
    found, problems = [], []
    with collector_paused():
        for path in sorted(paths, key=str):
            try:
                found.append(read(path))
            except CompbenchError as error:
                problems.append(Problem(path, clean(str(error))))
    return found, problems


def read_records(paths: Iterable[Path]) -> tuple[list[Record], list[Problem]]:
    """All records among some files, and the files that are not records."""
    return read_all(paths, read_record)


def read_published(folder: Path) -> tuple[list[Record], list[Problem]]:
    """The records of a folder that a board may show: they contradict nothing that is known about our tasks and metrics."""

    def read(path: Path) -> Record:
        record = read_record(path)
        check_known(record)
        return record

    return read_all(Store(folder).paths(), read)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Records have no cycles, and looking for some in ten thousand of them took up to half of a board's time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class Store:
    """A folder of records, one file per attempt, with the artifacts of each next to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """Record files, sorted; files that start with a dot are being written and are passed over."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        return [self.folder / name for name in sorted(names) if name.endswith(".json") and not name.startswith(".")]

    def read(self) -> tuple[list[Record], list[Problem]]:
        """All records, and the files among them that are not records."""
        return read_records(self.paths())

    def attempts(self, *identities: str) -> list[Record]:
        """Records of some runs, oldest first; the folder is listed once.  Bad files are skipped (`board` reports them)."""
        short = {identity[:12] for identity in identities}
        found, _ = read_records(path for path in self.paths() if short.intersection(path.name.split(".")))
        return sorted((one for one in found if one.identity in identities), key=lambda record: record.attempt)

    def finished(self, identities: Sequence[str]) -> Record | None:
        """The latest successful record of a run, by the first of its identities (`EqualCode.identities`) that has one."""
        found = [record for record in reversed(self.attempts(*identities)) if record.status == "ok"]
        return min(found, key=lambda record: identities.index(record.identity), default=None)

    def may_have(self, request: RunRequest) -> bool:
        """Whether there is a record of such a name: without one, the run cannot have been finished."""
        named = glob.escape(f"{request.task}.{request.method}.{request.preset}.s{request.seed}.")
        return any(True for _ in self.folder.glob(f"{named}*.json"))

    def next_attempt(self, identity: str) -> int:
        """The number of the next attempt, also past files that cannot be read or are being written."""
        names = [path.name.removesuffix(RESERVED) for path in self.folder.glob(f"*.{identity[:12]}.*.json*")]
        numbers = [name.split(".")[-2] for name in names if name.endswith(".json")]
        return 1 + max((int(number) for number in numbers if number.isdigit()), default=0)

    def sweep_up(self, identity: str) -> None:
        """Delete files that a killed writer of this run left.  Call only while holding the run's lease."""
        for reserved in self.folder.glob(f".*.{identity[:12]}.*.json{RESERVED}"):
            name = reserved.name[1:].removesuffix(f".json{RESERVED}")
            if not (self.folder / f"{name}.json").exists():
                for left in [*self.folder.glob(f"{glob.escape(name)}.*"), *self.folder.glob(f".{glob.escape(name)}.*")]:
                    left.unlink(missing_ok=True)
            reserved.unlink(missing_ok=True)

    def check_writable(self) -> None:
        """Check before a run begins that its record can be written.  Raises Unwritable."""
        self._make_folder()
        try:
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise Unwritable.of(self.folder, error) from error

    def write(self, record: Record, artifacts: dict[str, bytes] | None = None) -> Path:
        """Write artifacts (suffix -> bytes) first, then the record that names them; its path.  Nothing is ever overwritten.

        Raises Taken: this attempt is there already, or is just being written; Unwritable: the record was not written.
        """
        path = self.folder / f"{record.name}.json"
        with self._reserved(path):
            named = []
            for suffix, content in sorted((artifacts or {}).items()):
                name = f"{record.name}.{suffix}"
                write_atomically(self.folder / name, content)
                named.append(Artifact(name=name, sha256=hashlib.sha256(content).hexdigest()))
            write_atomically(path, dump(record.model_copy(update={"artifacts": tuple(named)})))
        return path

    def write_next(self, record: Record, artifacts: dict[str, bytes]) -> Path:
        """Write it as the next attempt; records of the same run may come in from elsewhere meanwhile."""
        while True:
            with contextlib.suppress(Taken):
                return self.write(record, artifacts)
            record = record.model_copy(update={"attempt": self.next_attempt(record.identity)})

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise Unwritable(
                f"could not write {self.folder}: it is not a folder, or it is a link that leads to none; put a folder there."
            ) from error
        except OSError as error:
            raise Unwritable.of(self.folder, error) from error

    @contextlib.contextmanager
    def _reserved(self, path: Path) -> Iterator[None]:
        """Reserve an attempt for one of several writers: only one can create the reserving file."""
        reserved = path.with_name(f".{path.name}{RESERVED}")
        self._make_folder()
        try:
            os.close(os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError as error:
            raise Taken(f"{path} is being written by another process.") from error
        except OSError as error:
            raise Unwritable.of(path, error) from error
        try:
            if path.exists():
                raise Taken(f"the record {path} exists already; records are never overwritten.")
            yield
        finally:
            reserved.unlink(missing_ok=True)

    def sample_grid(self, record: Record) -> Artifact | None:
        """A record's entry for its sample grid, with a name without folders; None if it names none."""
        named = (artifact for artifact in record.artifacts if artifact.name.endswith(SAMPLES))
        return next((artifact.model_copy(update={"name": Path(artifact.name).name}) for artifact in named), None)

    def picture(self, record: Record) -> bytes | None:
        """The sample grid of a record, if it exists and has the recorded hash."""
        with contextlib.suppress(CompbenchError):
            return read_artifact(self.folder, grid) if (grid := self.sample_grid(record)) else None
        return None

    def matching(self, text: str) -> list[Path]:
        """The records that a user may mean: a path, one by its whole name, or all in whose names a text occurs."""
        if os.path.isfile(text):  # unlike pathlib's, no error where it is too long for a path
            return [Path(text)]
        found = [path for path in self.paths() if text in path.name]
        return [path for path in found if text in (path.name, path.stem)] or found

    def find(self, text: str) -> Path:
        """The record that a user means: a path, or a part of a name.  Raises CompbenchError: none, or more than one."""
        found = self.matching(text)
        if len(found) == 1:
            return found[0]
        what = "no record" if not found else f"{len(found)} records"
        raise CompbenchError(f"{what} matching '{text}' in {self.folder}; `compbench show` without a name lists them.")
