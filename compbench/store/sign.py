"""Digests for records of format 1, which had none: done once, by whoever knows that the files are what was written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from compbench.errors import CompbenchError
from compbench.files import read_limited, write_atomically
from compbench.schemas import Record
from compbench.store.format import MAX_RECORD_BYTES, UNSIGNED, dump, parse
from compbench.store.records import Store
from compbench.store.validate import check_costs, check_place, check_scores


def sign(folder: Path, levels: Path) -> tuple[Path, ...]:
    """Write every record of format 1 in the present format, with its digest.  What it says stays as it was.

    Args:
        folder: of records.
        levels: of what was vouched for; it names records by their bytes, and gets the new ones.

    Returns:
        the files that were written.

    Raises:
        CompbenchError: one of them is no sound record; nothing was written.
    """
    signed: dict[Path, tuple[bytes, bytes]] = {}
    for path in Store(folder).paths():
        content = read_limited(path, MAX_RECORD_BYTES)
        if is_unsigned(content):
            signed[path] = content, dump(_sound(path, content))
    hashes = {hashlib.sha256(old).hexdigest(): hashlib.sha256(new).hexdigest() for old, new in signed.values()}
    for path, (_, new) in signed.items():
        write_atomically(path, new)
    for path in sorted(levels.glob("*.json")):
        text = path.read_text("utf-8")
        for before, after in hashes.items():
            text = text.replace(before, after)
        if text != path.read_text("utf-8"):
            write_atomically(path, text.encode())
    return tuple(signed)


def is_unsigned(content: bytes) -> bool:
    """Whether a file is of the format without a digest."""
    try:
        raw = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(raw, dict) and raw.get("format") == UNSIGNED


def _sound(path: Path, content: bytes) -> Record:
    try:
        record = parse(content, unsigned=True)
        check_place(record, path)
        check_scores(record)
        check_costs(record)
    except CompbenchError as error:
        raise CompbenchError(f"{path.name} {error} Nothing was signed.") from error
    return record
