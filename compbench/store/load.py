"""Record files -> records, fast: ten thousand are read and fully validated in about a second of CPU time."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from compbench.errors import CompbenchError
from compbench.files import read_limited
from compbench.schemas import RECORD_FORMAT, Record
from compbench.store.records import MAX_RECORD_BYTES, Problem, is_whole, parse, undigested


def read_records(paths: Iterable[Path]) -> tuple[list[Record], list[Problem]]:
    """All records among some files, and what is none; a bad file never hides the good ones.

    Args:
        paths: record files, in any order.

    Returns:
        records and problems, each sorted by path; a problem's reason is one line.
    """
    records, problems = [], []
    with collector_paused():
        for path in sorted(paths, key=str):
            try:
                records.append(_in_its_place(_read(read_limited(path, MAX_RECORD_BYTES)), path))
            except (CompbenchError, RecursionError) as error:
                problems.append(Problem(path, " ".join(str(error).split())))
    return records, problems


def _read(content: bytes) -> Record:
    """A record of the present format straight from its bytes; anything else goes the way that migrates and explains."""
    if len(content) <= MAX_RECORD_BYTES:
        bare, digest = undigested(content)
        try:
            record = Record.model_validate_json(bare)
        except ValidationError:
            return parse(content)
        if record.format == RECORD_FORMAT and "format" in record.model_fields_set and is_whole(bare, digest):
            return record
    return parse(content)


def _in_its_place(record: Record, path: Path) -> Record:
    """The record, if identity, file and artifacts are named as they must be: copies and forgeries are not.

    Raises:
        CompbenchError: what does not fit.
    """
    try:
        identity = record.spec.identity
    except (ValueError, RecursionError) as error:  # NaN, or nesting without end, in settings
        raise CompbenchError(f"has settings that are no plain JSON: {str(error)[:120]}.") from error
    if record.identity != identity:
        raise CompbenchError("has an identity that is not the hash of its spec.")
    if path.stem != record.name:
        raise CompbenchError(f"is the record {record.name} under another name.")
    if any(not artifact.name.startswith(f"{record.name}.") for artifact in record.artifacts):
        raise CompbenchError("names artifacts that are not its own.")
    if len({score.name for score in record.scores}) < len(record.scores):
        raise CompbenchError("has two scores of one name.")
    return record


@contextmanager
def collector_paused() -> Iterator[None]:
    """Records have no cycles, and looking for some in ten thousand of them took up to half of a board's time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
