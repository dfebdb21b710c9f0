"""Files that are written whole or not at all, checked on reading, and locked while being made; also tensors and TOML in them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, get_args

from compbench.system.errors import (
    CompbenchError,
    Unwritable,
    blames_the_content,
    first_of,
    not_read,
    suggest,
    unreadable,
)

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike
    from pydantic import BaseModel, ValidationError
    from torch import Tensor

Content = TypeVar("Content", bound="BaseModel")
Json = object
"""A JSON value: null, a boolean, a number, a string, or a list or dictionary of such values.  It is untrusted until a pydantic
model has validated it."""
BESIDE_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^\[\]{}"]++')
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.EPROTONOSUPPORT)
"""Errors of a file system without locks, such as some network file systems."""
LOCK_SECONDS = 0.1
"""A waiting process tries again to get a lock at this interval."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, even if the disk is full or the process is killed.

    Raises:
        Unwritable: nothing was written, and why.
    """
    with _part_of(path) as part:
        part.write(content)


@contextmanager
def _part_of(path: Path) -> Iterator[BinaryIO]:
    """A hidden file next to a path; it replaces the path once it is on the disk, else it is deleted.  Raises Unwritable."""
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as part:
            yield part
            part.flush()
            os.fsync(part.fileno())
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            raise Unwritable.of(path, error) from error
        raise


def remove_parts(folder: Path) -> None:
    """Delete the hidden files that killed writers left in a folder.  Call only if no other process writes there."""
    for part in folder.glob(".*." + "[0-9a-f]" * 8):
        with contextlib.suppress(OSError):
            part.unlink()


def read_limited(path: Path, limit: int) -> bytes:
    """The bytes of a regular file; a link, a pipe, a device or a file larger than the limit is refused unread.

    Raises:
        CompbenchError: what is wrong with the file.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise CompbenchError("is not a regular file; symbolic links, pipes and devices are refused.")
        if status.st_size > limit:
            raise CompbenchError(f"is {status.st_size} bytes long; at most {limit} are read.")
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # boards read ten thousand small files: twice as fast as `open`
        try:
            content = os.read(handle, status.st_size)
            while (left := status.st_size - len(content)) and (more := os.read(handle, left)):
                content += more
            return content
        finally:
            os.close(handle)
    except OSError as error:
        raise CompbenchError(f"cannot be read: {error.strerror or error}.") from error


def nesting(text: bytes) -> int:
    """Nesting depth of lists and objects in a JSON text; a reader of a very deep text may run out of stack."""
    depth = most = 0
    for bracket in BESIDE_BRACKETS.sub(b"", text):
        depth += 1 if bracket in b"[{" else -1
        most = max(most, depth)
    return most


def read_json(path: Path, content: type[Content], limit: int, kind: str) -> Content:
    """A small file of JSON, read without trust.

    Args:
        path: path of the file.
        content: model of the content.
        limit: largest size in bytes.
        kind: name for such files in messages.

    Raises:
        CompbenchError: the file is invalid; the message says why.
    """
    from pydantic import ValidationError

    raw = read_limited(path, limit)
    try:
        return content.model_validate_json(raw)
    except ValidationError as error:
        raise CompbenchError(f"is not a valid {kind}: {first_of(error)[:300]}.") from error


@contextmanager
def held(path: Path, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file that is about to be made.  The kernel releases it when the process ends, however it ends.

    Args:
        path: the file; the lock lies next to it.
        waiting: called while another process holds the lock; an exception from it ends the waiting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        while True:
            try:
                lock(file, wait=False)
                break
            except BlockingIOError:
                waiting()
                time.sleep(LOCK_SECONDS)
        yield


def lock(file: FileDescriptorLike, *, wait: bool) -> bool:
    """Lock an open file until it is closed.  Such locks only avoid duplicate work; no result depends on them.

    Args:
        file: the file, or its descriptor.
        wait: whether to wait for a process that holds the lock.

    Returns:
        whether the file is locked; False if its file system has no locks.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return True


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read piece by piece."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def same_content(one: Path, other: Path) -> bool:
    """Whether two regular files have the same bytes; False for links."""
    files = one.is_file() and other.is_file() and not other.is_symlink()
    return files and one.stat().st_size == other.stat().st_size and file_sha256(one) == file_sha256(other)


def publish(source: Path, destination: Path, *, limit: int = 2**36) -> None:
    """Copy a regular file of another process to a place where that process cannot write, whole or not at all.

    Args:
        source: the file; a link, a pipe or a device is refused, without waiting for it.
        destination: the path that is replaced.
        limit: largest size in bytes.

    Raises:
        CompbenchError: the source is not a regular file, or is too long.
        Unwritable: the destination cannot be written.
    """
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CompbenchError(f"{source.name} cannot be published: {error.strerror}.") from error
    copy_opened(handle, source.name, destination, limit=limit)


def copy_opened(handle: int, name: str, destination: Path, *, limit: int) -> None:
    """Like `publish`, for an open file, which is closed afterwards; holes in the file stay holes."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        os.close(handle)
        raise CompbenchError(f"{name} cannot be published: it is not a regular file of at most {limit} bytes.")
    with os.fdopen(handle, "rb") as file, _part_of(destination) as part:
        part.truncate(status.st_size)  # bytes appended meanwhile are ignored
        for start, end in _stretches(handle, status.st_size):
            file.seek(start)
            part.seek(start)
            while start < end and (piece := file.read(min(end - start, 2**22))):
                part.write(piece)
                start += len(piece)


def _stretches(handle: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges of an open file that hold data, as (start, end); the rest are holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(handle, at, os.SEEK_DATA)
            end = os.lseek(handle, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return
            start, end = at, size  # a file system without holes
        at = min(end, size)
        if start < at:
            yield start, at


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A new folder that is deleted afterwards, whatever a plugin did in it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Delete a folder and everything below it, whatever its depth and permissions; what cannot be deleted raises no error.

    Call it only when no plugin that can write there is running: links are deleted and never followed, but a running plugin could
    replace a folder by a link while it is being deleted.
    """
    if folder.is_symlink():
        with contextlib.suppress(OSError):
            folder.unlink()
        return
    with contextlib.suppress(Exception):  # also RecursionError: a plugin may nest thousands of folders
        shutil.rmtree(folder)
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if not os.path.lexists(folder):
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([*command, "--", str(folder)], check=False, capture_output=True, timeout=600)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Json]) -> None:
    """Write named tensors and JSON facts to a safetensors file, atomically."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, metadata={"facts": json.dumps(dict(facts))}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises:
        CompbenchError: the file is damaged; the message says what to do.
        OSError: the machine could not read the file, which may be whole.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError) as error:
        if not blames_the_content(error):
            raise not_read(path, error) from error
        raise CompbenchError(unreadable(path, "a file of tensors", error, todo="delete it to start again")) from error


def shipped(folder: Path) -> list[str]:
    """Names of the files in a folder that is installed with compbench."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def read_toml(name: str, content: type[Content], *, folder: Path, option: str, kind: str) -> Content:
    """A file by path if the name ends in .toml, else the shipped one of that name.

    Args:
        name: path or name.
        content: model of the content.
        folder: folder of the shipped files.
        option: the command-line option, for messages.
        kind: name for such files in messages.

    Raises:
        CompbenchError: the file does not exist or is invalid; the message says why.
    """
    from pydantic import ValidationError  # takes 100 ms, which `list` should not need

    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    if not os.path.isfile(path):  # unlike pathlib's, it raises no error if the name is too long
        if name.endswith(".toml"):
            raise CompbenchError(f"{option} {name}: there is no such file.")
        raise suggest(kind, name, shipped(folder), listed=False)
    try:
        return content.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CompbenchError(f"{path} is not TOML: {error}.") from error
    except RecursionError as error:
        raise CompbenchError(f"{path} is nested too deeply; such a file needs only a few levels.") from error
    except ValidationError as error:
        unknown = _unknown_key(error, content)
        raise CompbenchError(f"{path}: {unknown or f'{first_of(error)}.'}") from error


def _unknown_key(error: ValidationError, content: type[BaseModel]) -> str:
    """What to say of a key that a file may not have, with the keys that it may have; "" if something else is wrong."""
    from pydantic import BaseModel

    first = error.errors()[0]
    if first["type"] != "extra_forbidden":
        return ""
    *place, name = first["loc"]
    for part in place:
        kind: object = content.model_fields[part].annotation if isinstance(part, str) else content
        while not (isinstance(kind, type) and issubclass(kind, BaseModel)):  # tuple[Cell, ...]
            kind = get_args(kind)[0]
        content = kind
    where = f"{'.'.join(map(str, place))}: " if place else ""
    return f"{where}{suggest('key', str(name), sorted(content.model_fields), listed=False)}"
