"""Records on disk: one JSON an attempt, written whole or not at all, and read without trust."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from compbench.errors import CompbenchError, Unwritable
from compbench.files import read_limited, write_atomically
from compbench.schemas import RECORD_FORMAT, Artifact, Record, RunRequest

MAX_RECORD_BYTES = 4 * 2**20
"""A record is some kilobytes; anything larger is not one."""

SAMPLES = "samples.png"
"""How the name of a sample grid ends."""

MAX_PICTURE_BYTES = 8 * 2**20
"""A sample grid is some hundred kilobytes, and is embedded in the board's page."""

DIGEST = b'\n "digest": "'
"""How the line with the digest begins.  No string of a record holds a line break, and nested names stand deeper."""


def _with_digest(raw: dict[str, Any]) -> dict[str, Any]:
    """Format 1 had no digest of the file; nothing else differs, and what was never written down is not made up."""
    return {**raw, "format": 2}


def _with_fence(raw: dict[str, Any]) -> dict[str, Any]:
    """Format 2 did not say what stood around the contestant, nor why speeds were dropped: nothing did, none were."""
    return {**raw, "format": 3}


def _with_experts_counted(raw: dict[str, Any]) -> dict[str, Any]:
    """Format 3 counted no weight of stacked experts, so how many parameters their mixtures had is not known."""
    profile, method = raw.get("profile"), (raw.get("spec") or {}).get("method")
    if method in ("ddm", "dfd", "dcfm-a") and isinstance(profile, dict):
        raw = {**raw, "profile": {**profile, "parameters": None}}
    return {**raw, "format": 4}


def _with_other_cores(raw: dict[str, Any]) -> dict[str, Any]:
    """Format 4 did not say what other processes took of the machine: not known."""
    return {**raw, "format": 5}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _with_digest,
    2: _with_fence,
    3: _with_experts_counted,
    4: _with_other_cores,
}
"""format -> function that turns a record of that format into the next."""


RESERVED = ".reserved"
"""Suffix of the empty dot-file that keeps an attempt's name while its files are being written."""


class Taken(CompbenchError):
    """Another writer has this attempt."""


class Problem(NamedTuple):
    """A file in the store that is not a usable record."""

    path: Path
    reason: str


def parse(content: bytes) -> Record:
    """A record from its bytes, migrated to the present format.

    Raises:
        CompbenchError: not a record of a format that this version reads, and what is wrong with it; or not what was
            written: the digest is another.
    """
    if len(content) > MAX_RECORD_BYTES:
        raise CompbenchError(f"is {len(content)} bytes long; a record has at most {MAX_RECORD_BYTES}.")
    try:
        raw = json.loads(content)
        if not isinstance(raw, dict) or not isinstance(raw.get("format"), int):
            raise CompbenchError("is not a record: it has no format number.")
        if raw["format"] >= 2:
            _check_digest(content, raw)
        return Record.model_validate(_migrated(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CompbenchError(f"is not a record: {where}: {first['msg']}.") from error
    except (ValueError, RecursionError) as error:
        raise CompbenchError(f"is not JSON: {str(error)[:120]}.") from error


def _check_digest(content: bytes, raw: dict[str, Any]) -> None:
    """Takes the digest out of an object; other spacing, as of a formatter, is no other record."""
    digest = raw.pop("digest", None)
    if raw["format"] <= RECORD_FORMAT and digest not in (_digest(undigested(content)[0]), _digest(_lines(raw))):
        found = "has no digest, and records have one since format 2" if digest is None else "was changed: its digest is another's"
        raise CompbenchError(f"{found}; take the file as it was written.")


def undigested(content: bytes) -> tuple[bytes, str]:
    """A record's bytes without the line of its digest, and the digest; "" if there is none."""
    start = content.find(DIGEST)
    end = content.find(b"\n", start + 1)
    if start < 0 or end < 0:
        return content, ""
    return content[:start] + content[end:], content[start + len(DIGEST) : end].rstrip(b'",').decode(errors="replace")


def is_whole(content: bytes, digest: str) -> bool:
    """Whether bytes from `undigested` are those that were written."""
    return _digest(content) == digest


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _migrated(raw: dict[str, Any]) -> dict[str, Any]:
    if raw["format"] > RECORD_FORMAT:
        raise CompbenchError(f"has format {raw['format']}; this compbench reads up to {RECORD_FORMAT}: update it.")
    while raw["format"] < RECORD_FORMAT:
        if raw["format"] not in MIGRATIONS:
            raise CompbenchError(f"has format {raw['format']}, which there never was.")
        raw = MIGRATIONS[raw["format"]](raw)
    return raw


def dump(record: Record) -> bytes:
    """The bytes of a record: indented JSON with sorted keys, so that diffs read well.

    `digest` is the SHA-256 of all other lines.  It tells a flipped bit or an edited score; it is no signature.
    """
    raw = record.model_dump(mode="json")
    return _lines({**raw, "digest": _digest(_lines(raw))})


def _lines(raw: dict[str, Any]) -> bytes:
    return (json.dumps(raw, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


class Store:
    """A folder of records, one file an attempt, with the artifacts of each beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def paths(self) -> list[Path]:
        """Record files, sorted; files that start with a dot are being written and are passed over."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        return [self.folder / name for name in sorted(names) if name.endswith(".json") and not name.startswith(".")]

    def read(self) -> tuple[list[Record], list[Problem]]:
        """All records, and what lies among them that is none; a bad file never hides the good ones."""
        records, problems = [], []
        for path in self.paths():
            try:
                records.append(parse(read_limited(path, MAX_RECORD_BYTES)))
            except CompbenchError as error:
                problems.append(Problem(path, str(error)))
        return records, problems

    def attempts(self, identity: str) -> Iterator[Record]:
        """Records of one run, oldest first.  Bad files are passed over (`board` reports them)."""
        found = []
        for path in self.folder.glob(f"*.{identity[:12]}.*.json"):
            with contextlib.suppress(CompbenchError):
                record = parse(read_limited(path, MAX_RECORD_BYTES))
                if record.identity == identity:
                    found.append(record)
        return iter(sorted(found, key=lambda record: record.attempt))

    def finished(self, identity: str) -> Record | None:
        """The latest successful record of a run."""
        done = [record for record in self.attempts(identity) if record.status == "ok"]
        return done[-1] if done else None

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
        """Delete what a writer of this run left that was killed over it.  For the holder of the run's claim only."""
        for reserved in self.folder.glob(f".*.{identity[:12]}.*.json{RESERVED}"):
            name = reserved.name[1:].removesuffix(f".json{RESERVED}")
            if not (self.folder / f"{name}.json").exists():
                for left in [*self.folder.glob(f"{glob.escape(name)}.*"), *self.folder.glob(f".{glob.escape(name)}.*")]:
                    left.unlink(missing_ok=True)
            reserved.unlink(missing_ok=True)

    def write(self, record: Record, artifacts: dict[str, bytes] | None = None) -> Path:
        """Write artifacts first, then the record that names them; an attempt is never overwritten.

        Args:
            record: the record; its `artifacts` are filled in here.
            artifacts: suffix -> bytes, as in "samples.png".

        Returns:
            path of the record.

        Raises:
            Taken: this attempt is there already, or is just being written.
            Unwritable: the record was not written.
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

    @contextlib.contextmanager
    def _reserved(self, path: Path) -> Iterator[None]:
        """Keep an attempt for one writer of several: only one can create the file that says so."""
        reserved = path.with_name(f".{path.name}{RESERVED}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError as error:
            raise Taken(f"{path} is being written by another process.") from error
        except OSError as error:
            raise Unwritable.of(path, error) from error
        try:
            if path.exists():
                raise Taken(f"there is a record {path} already; records are never overwritten.")
            yield
        finally:
            reserved.unlink(missing_ok=True)

    def sample_grid(self, record: Record) -> Artifact | None:
        """What a record says of its sample grid, its name without folders; None if it names none."""
        named = (artifact for artifact in record.artifacts if artifact.name.endswith(SAMPLES))
        return next((artifact.model_copy(update={"name": Path(artifact.name).name}) for artifact in named), None)

    def picture(self, record: Record) -> bytes | None:
        """The sample grid of a record, if it is there and is what the record says."""
        grid = self.sample_grid(record)
        if grid is None:
            return None
        with contextlib.suppress(CompbenchError):
            content = read_limited(self.folder / grid.name, MAX_PICTURE_BYTES)
            if hashlib.sha256(content).hexdigest() == grid.sha256:
                return content
        return None

    def find(self, text: str) -> Path:
        """The record that a user means: a path, a file name, or the beginning of an identity.

        Raises:
            CompbenchError: none, or more than one.
        """
        if Path(text).is_file():
            return Path(text)
        found = [path for path in self.paths() if text in path.name]
        if len(found) == 1:
            return found[0]
        what = "no record" if not found else f"{len(found)} records"
        raise CompbenchError(f"{what} matching '{text}' in {self.folder}; `compbench show` without a name lists them.")
