"""Children of runs that fork from a process with torch in it, for tests in which a fresh interpreter is not the claim.

A run starts a contestant and a referee, and each spends 1.5 CPU seconds on `import torch`, 1.1 on the compiler that torch's
first optimiser imports, and 0.4 on the methods, tasks and metrics.  Here a template process imports them once; for each child
it forks, and the fork goes on as `compbench.run.supervisor` would after its own imports.  All that follows is real:
supervisor, sandbox, messages, signals, time limits, kills.

Not the same as after a real start: torch and everything of ours are loaded before the run is known, the hash seed is the
template's, and a supervisor dies with the template, not with the process of the test.  `@pytest.mark.fresh` gives a
test real starts, as has all that goes through the command line in a process of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

SUPERVISOR = ["-P", "-m", "compbench.run.supervisor"]
READ_AT_START = ("PYTHON", "MALLOC_", "LD_", "TORCH_", "KMP_")
"""What a process reads of its environment when it starts or imports torch: where these differ, the start is a real one.
The number of threads is read then too, and set again after the fork."""
HIGH = 512
"""Descriptors from here on are free for a moment between the fork and the child's own."""


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


class Forked:
    """What `subprocess.Popen` is for a real start: process id, exit status, signals."""

    def __init__(self, words: Sequence[str], status: socket.socket) -> None:
        self.args, self.returncode = words, None
        self._status, self._lock = status, threading.Lock()
        self.pid = int(status.recv(64) or -1)
        if self.pid < 0:
            raise RuntimeError("the template process is gone")

    def _look(self, seconds: float | None) -> None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
                self.returncode = int(self._status.recv(64) or -signal.SIGKILL)
                self._status.close()

    def poll(self) -> int | None:
        self._look(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._look(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Template:
    """The client's side: starts the template process when the first child is asked for."""

    def __init__(self) -> None:
        self.fresh = False
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._env: dict[str, str] = {}

    def popen(self, words: Sequence[str], **options: Any) -> Forked | subprocess.Popen[bytes]:
        """As `subprocess.Popen`; a fork where the words are those of a supervised child and its environment allows it."""
        env = options.get("env", {})
        with self._lock:
            if self.fresh or list(words[1:4]) != SUPERVISOR or read_at_start(env) != read_at_start(self._env or env):
                return subprocess.Popen(words, **options)
            if self._control is None:
                self._start(env)
            assert self._control is not None
            ours, theirs = socket.socketpair()
            order = {"words": words[4:], "env": dict(env), "folder": os.getcwd(), "descriptors": options["pass_fds"]}
            descriptors = [theirs.fileno(), options["stdout"].fileno(), *options["pass_fds"]]
            with theirs:
                socket.send_fds(self._control, [json.dumps(order).encode()], descriptors)
        return Forked(words, ours)

    def _start(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-P", __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(words, env=self._env, pass_fds=[theirs.fileno()], start_new_session=True)


TEMPLATE = Template()


def install() -> None:
    """From now on `compbench.run.processes` starts its children from the template."""
    from compbench.run import processes

    names = {**vars(subprocess), "Popen": TEMPLATE.popen}
    processes.subprocess = SimpleNamespace(**names)  # type: ignore[assignment]


def serve(control: socket.socket) -> list[str]:
    """The template's side: fork for each order until the client is gone.  Returns in a child: the supervisor's words."""
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno())
    children: dict[int, socket.socket] = {}
    while True:
        ready = select.select([control, woken], [], [])[0]
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
            _reap(children)
        if control in ready:
            text, descriptors, _, _ = socket.recv_fds(control, 2**20, 64)
            if not text:
                os._exit(0)
            order = json.loads(text)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (control, woken, wakes, *children.values()):
                    end.detach()  # or it would close what soon has its number
                return _become(order, descriptors)
            for descriptor in descriptors[1:]:
                os.close(descriptor)
            children[pid] = socket.socket(fileno=descriptors[0])


def _reap(children: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with contextlib.suppress(OSError), children.pop(ended[0]) as status:
                status.sendall(str(os.waitstatus_to_exitcode(ended[1])).encode())


def _become(order: dict[str, Any], received: Sequence[int]) -> list[str]:
    """Session, descriptors, environment and folder as `subprocess.Popen` would have made them."""
    os.setsid()
    os.write(received[0], str(os.getpid()).encode())
    output, *passed = (fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH) for descriptor in received[1:])
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for number in (1, 2):
        os.dup2(output, number)
    os.closerange(3, HIGH)
    for number, descriptor in zip(order["descriptors"], passed, strict=True):
        os.dup2(descriptor, number)
    os.closerange(HIGH, 2 * HIGH)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["folder"])
    tempfile.tempdir = None
    words: list[str] = order["words"]
    return words


def load() -> None:
    """Import what children of most runs import, and keep it out of their collections of garbage."""
    import torch

    import compbench.run.contestant
    import compbench.run.referee  # noqa: F401
    from compbench.registry import Registry

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # the first of a process imports torch's compiler
    registry = Registry()
    for kind in ("tasks", "metrics", "methods"):
        for entry in registry.entries(kind):
            registry.attempt(entry)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import torch

    load()
    words = serve(socket.socket(fileno=int(sys.argv[1])))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    from compbench.run import supervisor

    supervisor.main(int(words[0]), *words[1:])
