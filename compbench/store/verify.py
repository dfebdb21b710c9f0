"""Check that a store is as compbench wrote it: each file is a complete record with the right name, or belongs to one."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Literal, NamedTuple

from compbench.api.schemas import Artifact, Record
from compbench.store import sealed
from compbench.store.format import NewerFormat
from compbench.store.records import Store, read_artifact, read_record
from compbench.store.validate import check_costs, check_known, check_shots
from compbench.system.errors import CompbenchError

WRITING_SECONDS = 60.0
"""A file that is being written gets its final name within this time; an older one was left by a killed process."""
UNFINISHED = re.compile(r"^\..+\.(json|png)\.[A-Za-z0-9_]+$")
"""Pattern of files that are being written, and of files that reserve an attempt's name meanwhile."""
KEPT = frozenset({".gitkeep", ".gitignore", ".gitattributes"})
Kind = Literal["record", "artifact", "orphan", "left over"]


class Finding(NamedTuple):
    """A problem and its fix.  Damaged records and artifacts are harmful; orphans and leftovers only take space."""

    name: str
    kind: Kind
    problem: str
    fix: str


class Report(NamedTuple):
    """Sound records and problems, sorted by name, and missing artifacts, without which a record is still valid."""

    records: tuple[Record, ...]
    findings: tuple[Finding, ...]
    absent: tuple[str, ...]


def verify(folder: Path) -> Report:
    """Check every file of a store: format, location, plausibility, hashes of artifacts, orphans and leftovers."""
    if not folder.is_dir():
        raise CompbenchError(f"there is no folder {folder}: name a folder of records.")
    records: list[Record] = []
    findings: list[Finding] = []
    named: set[str] = set()
    paths = sorted(folder.iterdir())
    for path in Store(folder).paths():
        try:
            record = read_record(path)
            check_costs(record)
            check_known(record)
            sealed.check(record)
            check_shots(record)
        except CompbenchError as error:
            newer = isinstance(error, NewerFormat)
            fix = "keep the file, and update compbench" if newer else "restore the file from a copy, or delete it and run again"
            findings.append(Finding(path.name, "record", str(error), fix))
            named.update(other.name for other in paths if other.name.startswith(f"{path.stem}."))  # this record may own them
            continue
        wrong = [finding for artifact in record.artifacts if (finding := _artifact(folder, artifact))]
        findings += wrong
        named |= {path.name, *(artifact.name for artifact in record.artifacts)}
        if not wrong:
            records.append(record)
    findings += [finding for path in paths if path.name not in named and (finding := _stray(path))]
    wanted = {artifact.name for record in records for artifact in record.artifacts}
    absent = sorted(wanted - {path.name for path in paths})
    return Report(tuple(records), tuple(sorted(findings)), tuple(absent))


def _artifact(folder: Path, artifact: Artifact) -> Finding | None:
    try:
        if os.path.lexists(folder / artifact.name):
            read_artifact(folder, artifact)
        return None
    except CompbenchError as error:
        return Finding(artifact.name, "artifact", str(error), "restore it from a copy, or make it readable")


def _stray(path: Path) -> Finding | None:
    """Report a file that no record names."""
    if path.name in KEPT:
        return None
    if UNFINISHED.match(path.name):
        try:
            age = time.time() - path.lstat().st_mtime
        except FileNotFoundError:  # it was renamed just now
            return None
        if abs(age) < WRITING_SECONDS:
            return None
        return Finding(path.name, "left over", "was left by a process that was killed while writing", "delete it")
    what = "is a folder" if path.is_dir() else "belongs to no record"
    return Finding(path.name, "orphan", what, "delete it, or restore its record")
