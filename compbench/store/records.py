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

from pydantic import BaseModel

from compbench.api.schemas import Artifact, Record, RunSpec, name_of
from compbench.store.format import MAX_RECORD_BYTES, NewerFormat, clean, dump, parse
from compbench.store.validate import check_known, check_place, check_scores
from compbench.system.errors import CompbenchError, Unreadable, Unwritable
from compbench.system.files import read_limited, write_atomically

SAMPLES = "samples.png"
"""The name of a sample grid ends with this."""
MAX_PICTURE_BYTES = 8 * 2**20
"""Largest size of a sample grid, which is embedded in the board's page; a usual one has some hundred kilobytes."""
RESERVED = ".reserved"
"""Suffix of the empty dot-file that reserves an attempt's name while its files are being written."""
GAP = 32
"""The attempts of a run end where this many numbers in a row have no file; a deleted attempt leaves a gap, and a scheduler that
starts a stopped run again and again leaves many attempts to delete."""

_FIELD_SETS: dict[frozenset[str], set[str]] = {}
"""The one set of field names that all parts with these fields share; published records have some dozens."""

T = TypeVar("T")


class Taken(CompbenchError):
    """Another writer has taken this attempt number."""


class Problem(NamedTuple):
    """A file in the store that is not a usable record."""

    path: Path
    reason: str

    @property
    def passed_over(self) -> str:
        """The line of a command that leaves the file out."""
        return f"passed over: {self.path.name} {self.reason}"


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        NewerFormat: a newer compbench wrote it.
        CompbenchError: the file was changed, forged or moved; the message says why.
    """
    try:
        record = parse(read_limited(path, MAX_RECORD_BYTES))
        check_place(record, path)
        check_scores(record)
        _share_field_sets(record)
        return record
    except CompbenchError as error:
        kind = NewerFormat if isinstance(error, NewerFormat) else CompbenchError
        raise kind(clean(str(error))) from error  # the error may quote the file's content


def _share_field_sets(record: Record) -> None:
    """Let parts of records with the same fields share one set of field names, which saves a third of a record's memory."""
    profile, spec = record.profile, record.spec
    places: tuple[BaseModel, ...] = (record.environment, record.code, record.plugin, *record.artifacts, *record.losses)
    for part in (record, spec, spec.budget, profile, *profile.stages, *record.scores, *places):
        own = part.__pydantic_fields_set__
        known = _FIELD_SETS.setdefault(frozenset(own), own)
        object.__setattr__(part, "__pydantic_fields_set__", known)  # frozen, and a copy of a part copies its set


def read_result(path: Path) -> Record:
    """The record of a successful run in a file that a user named.  Raises CompbenchError with the reason if it is not one."""
    try:
        record = read_record(path)
    except CompbenchError as error:
        raise CompbenchError(f"{path.name} {error}") from error
    if record.status != "ok":
        raise CompbenchError(f"{path.name} belongs to a run that ended as '{record.status}': it has no scores.")
    return record


def read_artifact(folder: Path, artifact: Artifact) -> bytes:
    """The bytes of a file that a record names.  Raises CompbenchError if it cannot be read or has another hash."""
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


def read_published(folder: Path, names: Iterable[str] | None = None) -> tuple[list[Record], list[Problem]]:
    """The records of a folder that a board may show: those that agree with our own tasks and metrics.

    With `names`, only these files are read.
    """

    def read(path: Path) -> Record:
        record = read_record(path)
        check_known(record)
        return record

    return read_all((folder / name for name in (Store(folder).names() if names is None else names)), read)


def finished_among(paths: Iterable[Path], identities: Sequence[str]) -> Record | None:
    """The latest successful record of a run, by the first of its identities (`EqualCode.identities`) that has one.

    Files whose names have none of the identities are not read, and bad files are skipped (`board` reports them).
    """
    short = {identity[:12] for identity in identities}
    found, _ = read_records(path for path in paths if short.intersection(path.name.split(".")))
    done = sorted((one for one in found if one.status == "ok" and one.identity in identities), key=lambda record: -record.attempt)
    return min(done, key=lambda record: identities.index(record.identity), default=None)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection: records have no cycles, and searching ten thousand of them took up to half of a board's time."""
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

    def names(self) -> list[str]:
        """Names of record files, sorted; files that start with a dot are still being written and are skipped."""
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            names = []
        except OSError as error:
            raise Unreadable.of(self.folder, error) from error
        return sorted(name for name in names if name.endswith(".json") and not name.startswith("."))

    def paths(self) -> list[Path]:
        """Record files, sorted by name."""
        return [self.folder / name for name in self.names()]

    def path_of(self, record: Record) -> Path:
        """The file of a record in this folder."""
        return self.folder / f"{record.name}.json"

    def read(self) -> tuple[list[Record], list[Problem]]:
        """All records, and the files among them that are not records."""
        return read_records(self.paths())

    def attempts(self, spec: RunSpec, identity: str) -> list[Record]:
        """The records of a run, oldest first.  Bad files are skipped (`board` reports them)."""
        found, _ = read_records(self.folder / name for name in self._attempts(spec, identity))
        return sorted((one for one in found if one.identity == identity), key=lambda record: record.attempt)

    def finished(self, spec: RunSpec, identities: Sequence[str]) -> Record | None:
        """The latest successful record of a run, as in `finished_among`, without listing the folder."""
        paths = (self.folder / name for identity in identities for name in self._attempts(spec, identity))
        return finished_among(paths, identities)

    def next_attempt(self, spec: RunSpec, identity: str) -> int:
        """The number of the next attempt; files that are unreadable or being written count too."""
        return 1 + max((int(name.split(".")[-2]) for name in self._attempts(spec, identity)), default=0)

    def sweep_up(self, spec: RunSpec, identity: str) -> None:
        """Delete files that a killed writer of this run left.  Call only while holding the run's lease."""
        for file in self._attempts(spec, identity):
            reserved, name = self._reserving(file), file.removesuffix(".json")
            if not reserved.exists():
                continue
            if not (self.folder / file).exists():
                for left in [*self.folder.glob(f"{glob.escape(name)}.*"), *self.folder.glob(f".{glob.escape(name)}.*")]:
                    left.unlink(missing_ok=True)
            reserved.unlink(missing_ok=True)

    def _attempts(self, spec: RunSpec, identity: str) -> Iterator[str]:
        """Names of the files of a run's attempts, including files being written, up to the first `GAP` missing numbers."""
        number, missing = 1, 0
        while missing < GAP:
            name = f"{name_of(spec, identity, number)}.json"
            there = os.path.lexists(self.folder / name) or os.path.lexists(self._reserving(name))
            number, missing = number + 1, 0 if there else missing + 1
            if there:
                yield name

    def _reserving(self, name: str) -> Path:
        """The file that reserves a record's name."""
        return self.folder / f".{name}{RESERVED}"

    def check_writable(self) -> None:
        """Check before a run begins that its record can be written.  Raises Unwritable."""
        self._make_folder()
        try:
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise Unwritable.of(self.folder, error) from error

    def write(self, record: Record, artifacts: dict[str, bytes] | None = None) -> Path:
        """Write artifacts (suffix -> bytes), then the record that names them; return its path.  Nothing is ever overwritten.

        Raises Taken: this attempt exists already or is being written; Unwritable: the record was not written.
        """
        path = self.path_of(record)
        with self._reserved(path):
            named = []
            for suffix, content in sorted((artifacts or {}).items()):
                name = f"{record.name}.{suffix}"
                write_atomically(self.folder / name, content)
                named.append(Artifact(name=name, sha256=hashlib.sha256(content).hexdigest()))
            write_atomically(path, dump(record.model_copy(update={"artifacts": tuple(named)})))
        return path

    def commit(self, record: Record, artifacts: dict[str, bytes] | None = None) -> Record:
        """Write a record as the next attempt of its run; return the record on disk, with its number and artifacts.

        Other processes may add attempts meanwhile, so the number is the first free one.  Raises Unwritable.
        """
        while True:
            record = record.model_copy(update={"attempt": self.next_attempt(record.spec, record.identity)})
            with contextlib.suppress(Taken):
                return read_record(self.write(record, artifacts))

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
        """Reserve an attempt for this writer: only one process can create the reserving file."""
        reserved = self._reserving(path.name)
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
        """A record's entry for its sample grid, with a file name without folders; None if it has none."""
        named = (artifact for artifact in record.artifacts if artifact.name.endswith(SAMPLES))
        return next((artifact.model_copy(update={"name": Path(artifact.name).name}) for artifact in named), None)

    def picture(self, record: Record) -> bytes | None:
        """The sample grid of a record, if it exists and has the recorded hash."""
        with contextlib.suppress(CompbenchError):
            return read_artifact(self.folder, grid) if (grid := self.sample_grid(record)) else None
        return None

    def matching(self, text: str) -> list[Path]:
        """The records that match a text: the one at that path or with that whole name, or all whose names contain the text."""
        if os.path.isfile(text):  # unlike pathlib's, it raises no error if the text is too long for a path
            return [Path(text)]
        whole = f"{text.removesuffix('.json')}.json"
        if os.path.basename(whole) == whole and not whole.startswith(".") and os.path.isfile(self.folder / whole):
            return [self.folder / whole]  # found without listing the folder
        return [self.folder / name for name in self.names() if text in name]

    def find(self, text: str) -> Path:
        """The one record that matches a path or a part of a name.  Raises CompbenchError if none or several match."""
        return find_among([self], text)


def find_among(stores: Sequence[Store], text: str) -> Path:
    """The one record that matches, as in `Store.find`; if several stores have it, the first store's copy."""
    found = {path.name: path for store in reversed(stores) for path in store.matching(text)}
    if len(found) == 1:
        return next(iter(found.values()))
    where = " and ".join(str(store.folder) for store in stores)
    what = f"{len(found)} records match '{text}' in {where}: name one" if found else f"no record matching '{text}' in {where}"
    raise CompbenchError(f"{what}; `compbench show` without a name lists them.")
