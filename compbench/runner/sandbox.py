"""The contestant's sandbox, enforced by the kernel (Linux, Landlock) before any plugin code runs.

Inside the sandbox a process and its descendants can write only to one folder.  They cannot read data of the referee or of other
runs, cannot bind or connect TCP sockets in the usual way, and cannot signal a process outside.  Kernel objects that would
outlive the process (shared memory, message queues, keys, extended attributes) are blocked too.  The sandbox cannot be left.
docs/security.md lists what it does not cover.

A Landlock rule allows everything beneath a path, without exceptions.  So reading is allowed for all siblings of the folders on
the path to a forbidden one, but not for the folders on that path.  Listing folders is never restricted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

CREATE, ADD, RESTRICT = 444, 445, 446
"""System calls landlock_create_ruleset, landlock_add_rule and landlock_restrict_self, the same on every architecture."""
WRITE_FILE, READ_FILE = 1 << 1, 1 << 2
WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # write, remove, and make anything
REFER, TRUNCATE = 1 << 13, 1 << 14
NODES = 1 << 6 | 1 << 11
"""Right to make device nodes; no plugin needs it, and root could open a disk through such a node."""
OF_FILES = WRITE_FILE | READ_FILE | TRUNCATE
"""A rule for a file (not a folder) may name only these rights."""
NETWORK = 0b11  # bind and connect of TCP
SCOPES = 0b11  # abstract sockets and signals stay inside
NO_NEW_PRIVILEGES = 38  # prctl

OWN_THREADS = Path("/proc/self/task")
"""A process names its threads in this folder (`comm`).  CUDA's library does so when it starts, and fails without this right."""
DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd")
"""Entries of /dev that torch, CUDA and Python write to; none is a disk or another terminal."""
SHARED_MEMORY, OWN_MEMORY = Path("/dev/shm"), "compbench-own"
"""Folder of shared memory, and the source of its mount if a supervisor gave a child a private one, which ends with the child."""
FILTER, SECCOMP, NOT_PERMITTED, PERMITTED = 2, 22, 0x00050001, 0x7FFF0000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of a seccomp filter of system calls."""
KEEPING = {
    "x86_64": (0xC000003E, (29, 64, 68, 240, 248, 249, 250, 188, 189, 190, 425, 463)),
    "aarch64": (0xC00000B7, (194, 190, 186, 180, 217, 218, 219, 5, 6, 7, 425, 463)),
}
"""For each architecture, its number, and its system calls that leave something behind: shmget, semget, msgget, mq_open, add_key,
request_key, keyctl, setxattr, lsetxattr, fsetxattr, io_uring_setup (which could do the others) and setxattrat."""
OTHER_CALLS = 0x40000000
"""System call numbers from here on belong to another table (x32)."""
OFF = "COMPBENCH_SANDBOX"

_kept: list[int] = []
"""Open descriptors of the /proc folders in rules: without a descriptor the kernel may drop the folder and its rule."""


@cache
def abi() -> int:
    """Version of Landlock in this kernel; 0 if there is none."""
    if sys.platform != "linux":
        return 0
    version: int = _libc().syscall(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, version)


def kind() -> str:
    """The sandbox of contestants started now: "landlock", "none" if the kernel has no Landlock, or "off"."""
    if os.environ.get(OFF, "") == "off":
        return "off"
    return "landlock" if abi() else "none"


def put_up(*, forbidden: Iterable[Path], writable: Iterable[Path]) -> None:
    """Restrict this process irrevocably, if the kernel can.

    Args:
        forbidden: folders or files that must not be read; they need not exist.
        writable: folders that may be written to, besides a few devices and the entries of this process's own threads in /proc.

    Raises:
        OSError: the kernel has Landlock and refused.
    """
    if kind() != "landlock":
        return
    version = abi()
    writes = WRITES | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=QQQ", READ_FILE | writes, NETWORK, SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call(CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        hidden = {Path(os.path.realpath(path)) for path in forbidden}
        for path in _beside(hidden):
            _allow(ruleset, path, READ_FILE)
        devices = (path for pattern in DEVICES for path in sorted(Path("/dev").glob(pattern)))
        for path in (*devices, *writable, *([SHARED_MEMORY] if has_own_memory() else [])):
            _allow(ruleset, Path(os.path.realpath(path)), (writes & ~NODES) | READ_FILE)
        if OWN_THREADS.is_dir():
            _kept.append(os.open(OWN_THREADS, os.O_PATH | os.O_CLOEXEC))
            _allow(ruleset, Path(os.path.realpath(OWN_THREADS)), writes & (WRITE_FILE | TRUNCATE))
        _libc().prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _call(RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    _keep_nothing()
    if not has_own_memory():  # torch's compiler uses semaphores if it has several processes
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def has_own_memory() -> bool:
    """Whether /dev/shm is this process's own and ends with it (`compbench.runner.supervisor`)."""
    try:
        return any(line.split()[:2] == [OWN_MEMORY, str(SHARED_MEMORY)] for line in Path("/proc/self/mounts").open())
    except OSError:
        return False


def _keep_nothing() -> None:
    """Refuse the system calls by which a process could leave something behind; does nothing if the kernel has no filters."""
    machine, calls = KEEPING.get(os.uname().machine, (0, ()))
    if not calls or struct.calcsize("P") != 8:
        return
    words = [(LOAD, 0, 0, 4), (EQUAL, 0, len(calls) + 3, machine), (LOAD, 0, 0, 0), (AT_LEAST, len(calls) + 1, 0, OTHER_CALLS)]
    words += [(EQUAL, len(calls) - at, 0, number) for at, number in enumerate(calls)]
    words += [(RETURN, 0, 0, PERMITTED), (RETURN, 0, 0, NOT_PERMITTED)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *word) for word in words))
    program = struct.pack("@HP", len(words), ctypes.addressof(text))
    _libc().prctl(SECCOMP, FILTER, program, 0, 0)


def _beside(hidden: set[Path]) -> Iterator[Path]:
    """The siblings of all folders on the paths to the hidden ones: everything except the hidden folders."""
    way = {parent for path in hidden for parent in path.parents}
    for folder in sorted(way):
        with contextlib.suppress(OSError):
            for entry in sorted(folder.iterdir()):
                if entry not in way and entry not in hidden:
                    yield entry


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # deleted meanwhile, or not readable
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISLNK(mode):  # the link's target has its own rule
            return
        rights = rights if stat.S_ISDIR(mode) else rights & OF_FILES
        rule = struct.pack("=Qi", rights, handle)
        _call(ADD, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    finally:
        os.close(handle)


def _call(number: int, *arguments: object) -> int:
    found = _libc().syscall(number, *arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"the sandbox could not be closed: {os.strerror(code)}; {OFF}=off runs without it")
    return int(found)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
