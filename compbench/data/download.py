"""Fetch and verify official files: downloads resume, are locked, and get the file's name only when they are complete."""

from __future__ import annotations

import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from compbench.data.sources import DataSource, SourceFile, file_hash, note_sha256, noted_sha256
from compbench.system.errors import CompbenchError, is_of_full_disk, remedy
from compbench.system.files import lock

BLOCK = 2**20
TIMEOUT_SECONDS = 60.0
ATTEMPTS = 3
"""Number of successive connections without new data after which a mirror is given up."""
PAUSE_SECONDS = 2.0
"""Pause before the second attempt; the pause before the third is twice as long."""
SPARE_BYTES = 2**28
"""Number of bytes that must stay free on the disk after a download."""

Progress = Callable[[str, int, int], None]
"""A callback (file, bytes done, bytes in total or 0)."""


class FileStatus(NamedTuple):
    """The result of `verify` for one file; `sha256` is "" if it was not measured."""

    name: str
    state: Literal["ok", "missing", "wrong", "unreadable"]
    detail: str = ""
    sha256: str = ""


class _MirrorFailed(Exception):
    """A mirror does not answer, or does not have the file; the next one is tried."""


def _silent(name: str, done: int, total: int) -> None:
    return None


def fetch(source: DataSource, folder: Path, *, offline: bool = False, progress: Progress = _silent) -> list[Path]:
    """Fetch all files of a source into `folder`; files that are already there are verified instead.

    Args:
        source: what to fetch.
        folder: data folder; created if it does not exist.
        offline: fetch nothing, and report what is missing.
        progress: called as progress(file, done, total), and as progress("file (checking)", ...) while it is hashed.

    Returns:
        paths of the files.

    Raises:
        CompbenchError: no mirror answers, the disk is too small, a hash is wrong, another process is fetching, or
            `offline` and a file is missing.
    """
    return [_fetch_one(file, folder, source.name, offline, progress) for file in source.files]


def verify(source: DataSource, folder: Path, *, progress: Progress = _silent) -> list[FileStatus]:
    """Compare size and SHA-256 of each file with the known values.

    A file without a known hash must have the right structure; its hash is recorded on first use and checked from then on.
    """
    statuses = []
    for file in source.files:
        path = folder / file.name
        status = _status(file, path, noted_sha256(path), progress)
        if status.state == "ok":
            note_sha256(path, status.sha256)
        statuses.append(status)
    return statuses


def _fetch_one(file: SourceFile, folder: Path, source: str, offline: bool, progress: Progress) -> Path:
    path = folder / file.name
    if offline and not path.is_file():
        size = f"{file.size} bytes" if file.size else f"about {file.about / 1e9:.1f} GB" if file.about else "size unknown"
        raise CompbenchError(f"{file.name} of '{source}' is missing ({size}); copy it into {folder} by hand.")
    with _lock(folder, file.name):
        if path.is_file():
            status = _status(file, path, noted_sha256(path), progress)
            if status.state == "unreadable":
                raise CompbenchError(f"{path}: {status.detail}.")
            if status.state == "wrong":
                raise CompbenchError(f"{path} is wrong: {status.detail}; move it away and fetch it again.")
        else:
            status = _bring(file, path, progress)
        note_sha256(path, status.sha256)
    return path


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{name}.lock").open("a")
    except OSError as error:
        raise CompbenchError(f"cannot write in {folder} ({error.strerror}); set COMPBENCH_HOME to a folder of yours.") from error
    with file:
        try:
            lock(file, wait=False)
        except BlockingIOError as error:
            raise CompbenchError(f"{name} is being fetched by another process; wait for it.") from error
        yield


def _bring(file: SourceFile, path: Path, progress: Progress) -> FileStatus:
    """Download from the first mirror that sends the right file, and name the file only when it is complete."""
    part = path.with_name(path.name + ".part")
    failures = []
    for url in file.urls:
        host = url.split("/")[2]
        try:
            status = _from_mirror(file, url, part, noted_sha256(path), progress)
        except _MirrorFailed as error:
            failures.append(f"{host}: {error}")
            continue
        if status.state == "ok":
            os.replace(part, path)
            return status
        failures.append(f"{host}: {status.detail}")
    left = (
        f"{_size(part)} bytes are kept; run the command again to continue"
        if part.is_file()
        else "nothing was kept; try again later"
    )
    raise CompbenchError(
        f"could not fetch {file.name} ({'; '.join(failures)}); {left}, or copy the file into {path.parent} by hand."
    )


def _from_mirror(file: SourceFile, url: str, part: Path, noted: str, progress: Progress) -> FileStatus:
    resumed = part.is_file()
    _download(file, url, part, progress)
    status = _status(file, part, noted, progress)
    if status.state == "unreadable":
        raise CompbenchError(f"{part}: {status.detail}.")
    if status.state != "ok":
        part.unlink()
        if resumed:  # the partial download may be of another file: start again
            return _from_mirror(file, url, part, noted, progress)
    return status


def _download(file: SourceFile, url: str, part: Path, progress: Progress) -> None:
    """Fill `part` from one mirror; resume after a cut connection as long as new data arrive."""
    best, idle = _size(part), 0
    while True:
        try:
            if _transfer(file, url, part, progress):
                return
            reason = "the connection was cut"
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code < 500 and error.code != 429:
                raise _MirrorFailed(reason) from error
        except (OSError, http.client.HTTPException) as error:
            if is_of_full_disk(error):
                raise CompbenchError(
                    f"the disk of {part.parent} is full, and {_size(part)} bytes of {file.name} are kept; "
                    "make room and run the command again."
                ) from error
            reason = str(getattr(error, "reason", error))
        idle = 0 if _size(part) > best else idle + 1
        best = max(best, _size(part))
        if idle == ATTEMPTS:
            raise _MirrorFailed(reason)
        time.sleep(PAUSE_SECONDS * idle)


def _transfer(file: SourceFile, url: str, part: Path, progress: Progress) -> bool:
    """One connection.  True if the file is complete afterwards, False if it was cut."""
    have = _size(part)
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
        if have and answer.status == 206 and not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            raise ConnectionError("the mirror resumes at the wrong place")
        if answer.status != 206:
            have = 0  # the mirror does not resume
        length = int(answer.headers.get("Content-Length") or 0)
        total = have + length if length else file.size
        if file.size and total != file.size:
            raise _MirrorFailed(f"offers {total} bytes, expected {file.size}")
        _check_space(part.parent, (total or file.about) - have)
        with part.open("ab" if have else "wb") as output:
            while block := answer.read(BLOCK):
                output.write(block)
                have += len(block)
                progress(file.name, have, total)
            output.flush()
            os.fsync(output.fileno())
    return not total or have >= total


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise CompbenchError(f"the download needs {needed / 2**30:.1f} GiB, and {folder} has {free / 2**30:.1f} GiB free.")


def _status(file: SourceFile, path: Path, noted: str, progress: Progress) -> FileStatus:
    """Compare the file at `path` (perhaps still a partial name) with the known values and the hash noted on first use."""
    if not path.is_file():
        return FileStatus(file.name, "missing", f"get it by `compbench data fetch`, or copy it into {path.parent}")
    size = path.stat().st_size
    if file.size and size != file.size:
        return FileStatus(file.name, "wrong", f"{size} bytes, expected {file.size}")

    def report(done: int) -> None:
        progress(f"{file.name} (checking)", done, size)

    try:
        found = file_hash(path, progress=report)
        if not file.sha256 and file.md5 and (md5 := file_hash(path, "md5")) != file.md5:
            return FileStatus(file.name, "wrong", f"MD5 is {md5}, expected {file.md5}", found)
    except OSError as error:
        return FileStatus(file.name, "unreadable", f"it could not be read ({error.strerror}); {remedy(error, 'fetch it again')}")
    expected = file.sha256 or noted
    if expected and found != expected:
        where = "" if file.sha256 else f" from its first use (if the change is right, delete {file.name}.sha256)"
        return FileStatus(file.name, "wrong", f"SHA-256 is {found}, expected {expected}{where}", found)
    if file.sha256:
        return FileStatus(file.name, "ok", "", found)
    if file.md5:
        return FileStatus(file.name, "ok", "its MD5 is right; a SHA-256 of it is not published", found)
    if noted:
        return FileStatus(file.name, "ok", "matches the hash of its first use", found)
    if file.num_images:
        from compbench.data.readers import npz_problem  # imports torch, which a file of known hash does not need

        if problem := npz_problem(path, file.num_images):
            return FileStatus(file.name, "wrong", problem, found)
    return FileStatus(file.name, "ok", f"its hash is not published; SHA-256 {found} is trusted and recorded on first use", found)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
