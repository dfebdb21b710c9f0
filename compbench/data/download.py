"""Fetch and verify official files: resumable, locked, and whole or absent under their own name."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from compbench.data.sources import DataSource, SourceFile, file_sha256
from compbench.errors import CompbenchError

BLOCK = 2**20
TIMEOUT_SECONDS = 60.0
SPARE_BYTES = 2**28
"""Left free on the disk after a download."""

Progress = Callable[[str, int, int], None]
"""(file, bytes done, bytes in all or 0)."""


class FileStatus(NamedTuple):
    """What `verify` found of one file."""

    name: str
    state: Literal["ok", "missing", "wrong"]
    detail: str = ""


def fetch(
    source: DataSource, folder: Path, *, offline: bool = False, progress: Progress = lambda name, done, total: None
) -> list[Path]:
    """Bring all files of a source into `folder`; those that are there are verified instead.

    Args:
        source: what to fetch.
        folder: data folder; made if need be.
        offline: fetch nothing, say what is missing.
        progress: called as progress(file, done, total).

    Returns:
        paths of the files.

    Raises:
        CompbenchError: no mirror answers, the disk is too small, a hash is wrong, another process is fetching, or
            `offline` and a file is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [_fetch_one(file, folder, source.name, offline, progress) for file in source.files]


def verify(source: DataSource, folder: Path) -> list[FileStatus]:
    """Size and hashes of each file against what is known; a file of unknown hash against the note of its first use."""
    return [_status(file, folder / file.name) for file in source.files]


def _fetch_one(file: SourceFile, folder: Path, source: str, offline: bool, progress: Progress) -> Path:
    path = folder / file.name
    with (folder / f"{file.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CompbenchError(f"{file.name} is being fetched by another process; wait for it.") from error
        if path.is_file():
            status = _status(file, path)
            if status.state == "wrong":
                raise CompbenchError(f"{path} is wrong: {status.detail}; move it away and fetch it again.")
            return path
        if offline:
            size = f" ({file.size} bytes)" if file.size else ""
            raise CompbenchError(f"{file.name}{size} of '{source}' is missing; bring it by hand into {folder}.")
        part = folder / f"{file.name}.part"
        _download(file, part, progress)
        status = _status(file, part)
        if status.state != "ok":
            part.unlink()
            raise CompbenchError(f"{file.name} was downloaded but is wrong: {status.detail}; nothing was kept. Try again.")
        os.replace(part, path)
        note = path.with_name(path.name + ".sha256")
        note.write_text(f"{file_sha256(path)}  {file.name}\n")
        return path


def _download(file: SourceFile, part: Path, progress: Progress) -> None:
    """Try the mirrors in turn; each goes on where the last one stopped."""
    failures = []
    for url in file.urls:
        for _ in range(3):  # a dropped connection is taken up again
            try:
                if _transfer(file, url, part, progress):
                    return
            except (OSError, urllib.error.URLError) as error:
                failures.append(f"{url.split('/')[2]}: {getattr(error, 'reason', error)}")
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                    break
    kept = f"; {part.stat().st_size} bytes are kept, run it again to go on" if part.is_file() else ""
    last = failures[-1] if failures else "the connection was cut"
    raise CompbenchError(f"could not fetch {file.name} ({last}){kept}, or bring it by hand into {part.parent}.")


def _transfer(file: SourceFile, url: str, part: Path, progress: Progress) -> bool:
    """One connection.  True if the file is complete afterwards, False if it was cut."""
    have = part.stat().st_size if part.is_file() else 0
    if file.size and have == file.size:
        return True
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send: the part is whole, or of another file
            return True
        raise
    with answer:
        if have and answer.status != 206:
            have = 0  # the mirror does not resume
        length = int(answer.headers.get("Content-Length") or 0)
        total = have + length if length else file.size
        _check_space(part.parent, total - have)
        with part.open("ab" if have else "wb") as output:
            while block := answer.read(BLOCK):
                output.write(block)
                have += len(block)
                progress(file.name, have, total)
    return not total or have >= total


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise CompbenchError(f"{needed / 2**30:.1f} GiB are to be fetched, {folder} has {free / 2**30:.1f} GiB free.")


def _status(file: SourceFile, path: Path) -> FileStatus:
    if not path.is_file():
        return FileStatus(file.name, "missing", f"`compbench data fetch` gets it, or bring it into {path.parent}")
    size = path.stat().st_size
    if file.size and size != file.size:
        return FileStatus(file.name, "wrong", f"{size} bytes, expected {file.size}")
    note = path.with_name(file.name + ".sha256")
    expected = file.sha256 or (note.read_text().split()[0] if note.is_file() else "")
    if expected:
        found = file_sha256(path)
        if found != expected:
            return FileStatus(file.name, "wrong", f"SHA-256 {found[:16]}..., expected {expected[:16]}...")
        return FileStatus(file.name, "ok", "" if file.sha256 else "matches the hash of its first use")
    if file.md5 and _md5(path) != file.md5:
        return FileStatus(file.name, "wrong", "MD5 differs")
    return FileStatus(file.name, "ok", "its hash is not published; trusted on first use")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
