"""The supervisor of a child: a small process between the parent and the child, so that nothing of a child outlives its run.

A plugin may start processes that leave the process group and whose parents end; the kernel gives such orphans to the nearest
ancestor that asked for them (Linux: PR_SET_CHILD_SUBREAPER), which is the supervisor.  When the child ends, or the parent asks
(SIGUSR1) or dies, the supervisor kills all remaining processes, and then ends in the same way as the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

STOP = signal.SIGUSR1
"""The parent sends this signal to a supervisor, which then kills everything below it."""
PARENT_DIED, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
PRIVATE, PLAIN = 1 << 18 | 1 << 14, 2 | 4  # MS_PRIVATE | MS_REC; MS_NOSUID | MS_NODEV
OWN_MEMORY = b"compbench-own"
"""Source name of the mount of a child's own /dev/shm; `sandbox` recognises the mount by it."""


def fork_under_supervisor(*descriptors: int) -> None:
    """Fork; the child returns, and only it keeps `descriptors`; the other process becomes its supervisor and never returns."""
    _control(ADOPT_ORPHANS, 1)
    parent, supervisor = os.getppid(), os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {STOP})  # the signal stays pending until there is a child to stop
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {STOP})
        _control(PARENT_DIED, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(3)
        return
    for descriptor in descriptors:
        os.close(descriptor)
    _watch(child, parent)


def give_own_memory() -> None:
    """Give this process its own /dev/shm, which ends with its descendants, if the kernel and its rules allow that.

    A fork tries it first, because a partial success would leave this process without its user ID.
    """
    if os.environ.get("COMPBENCH_SANDBOX") == "off" or sys.platform != "linux":
        return
    trial = os.fork()
    if trial == 0:
        with contextlib.suppress(BaseException):
            os._exit(0 if _own_memory() else 1)
        os._exit(1)
    if os.waitpid(trial, 0)[1] == 0:
        _own_memory()
        _control(PARENT_DIED, signal.SIGKILL)  # a change of credentials may have cleared this setting


def _own_memory() -> bool:
    """Mount a private /dev/shm in a new mount namespace (without root, a new user namespace too); return whether it succeeded."""
    libc, user, group = ctypes.CDLL(None), os.getuid(), os.getgid()
    if libc.unshare(NEW_MOUNTS) != 0:
        if libc.unshare(NEW_USER | NEW_MOUNTS) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if libc.mount(b"none", b"/", None, PRIVATE, None) != 0:
        return False
    made: int = libc.mount(OWN_MEMORY, b"/dev/shm", b"tmpfs", PLAIN, b"mode=1777")
    return made == 0 and (os.getuid(), os.getgid()) == (user, group)


def _watch(child: int, parent: int) -> NoReturn:
    def stop(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the child handles them
        signal.signal(number, signal.SIG_IGN)
    signal.signal(STOP, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {STOP})
    _control(PARENT_DIED, STOP)
    if os.getppid() != parent:
        stop(STOP, None)
    ended = status = 0
    while ended != child:
        ended, status = os.wait()
    _kill_the_rest()
    if os.WIFSIGNALED(status):
        fatal = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(fatal, signal.SIG_DFL)
        os.kill(os.getpid(), fatal)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _kill_the_rest() -> None:
    """Kill children until there are none left; children of a killed process become ours."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid, (parent, _) in process_table().items():
                if parent == os.getpid():
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            os.wait()


def process_table(table: Path = Path("/proc")) -> dict[int, tuple[int, int]]:
    """For each process, its parent and the clock ticks of CPU time that it and its ended children used (Linux)."""
    found = {}
    for stat in table.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = stat.read_text("utf-8", "replace").rsplit(")", 1)[1].split()  # a process name may contain spaces and brackets
            found[int(stat.parent.name)] = int(words[1]), sum(map(int, words[11:15]))
    return found


def cpu_seconds_below(top: int, table: Path = Path("/proc")) -> float | None:
    """User and system time in seconds of a process and its descendants, including ended ones; None if not known."""
    known = process_table(table)
    if top not in known:
        return None
    own, found = {top}, [top]
    while found:
        found = [pid for pid, (parent, _) in known.items() if parent in found and pid not in own]
        own.update(found)
    return sum(known[pid][1] for pid in own) / os.sysconf("SC_CLK_TCK")


def main(count: int, module: str, *words: str) -> None:
    """Run a module, or a file of Python, under a supervisor; the last `count` words are descriptors that only it keeps."""
    fork_under_supervisor(*map(int, words[len(words) - count :]))
    if "referee" not in words:  # which runs no method
        give_own_memory()
    sys.argv = [module, *words]
    if module.endswith(".py"):
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _control(what: int, value: int) -> None:
    """Call prctl if the system has it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
