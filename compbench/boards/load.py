"""Record files -> records, fast: ten thousand are read and fully validated in about a second of CPU time."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from compbench.errors import CompbenchError
from compbench.records import MAX_RECORD_BYTES, Problem, is_whole, parse, undigested
from compbench.schemas import RECORD_FORMAT, Record


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
                with open(path, "rb") as file:
                    records.append(_read(file.read(MAX_RECORD_BYTES + 1)))
            except OSError as error:
                problems.append(Problem(path, f"cannot be read: {error.strerror or error}."))
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
