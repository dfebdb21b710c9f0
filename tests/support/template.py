"""Children of runs that fork from a process with torch in it, for tests in which a fresh interpreter is not the claim.

A run starts a contestant and a referee, and each spends 1.5 CPU seconds on `import torch`, 1.1 on the compiler that torch's
first optimiser imports, and 0.4 on the methods, tasks and metrics; the referee measures the machine's peak for a quarter
second.  Here a template process does all of that once; for each child it forks, and the fork goes on as
`compbench.runner.supervisor` would after its own imports.  All that follows is real: supervisor, sandbox, messages, signals,
time limits, kills.

    test's process, or a command line of `Template.compbench`  --order, descriptors-->  template  --fork-->  supervisor -> child

Not the same as after a real start: torch and everything of ours are loaded before the run is known, the hash seed and the peak
are the template's, and a supervisor is asked to stop by the template when who ordered it is gone, not by the kernel.
`@pytest.mark.fresh` gives a test real starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PLACE = "COMPBENCH_TEMPLATE"
"""Of the environment of a job on the cluster of tests: the socket of the template that its children fork from."""
OURS = ("compbench", "compbench-methods")
"""Distributions that are loaded before a fork: no test edits them."""
ROOMS = ("system", "data", "metrics", "flow", "tasks")
"""All modules of these rooms of the package are loaded before a fork, and `MODULES`."""
MODULES = ("PIL.ImageDraw", "PIL.ImageFont", "platformdirs.unix", "safetensors.torch", "torch.utils.flop_counter")
MODULES += ("compbench.runner.contestant", "compbench.runner.referee", "compbench.runner.sandbox")
READ_AT_START = ("PYTHON", "MALLOC_", "LD_", "TORCH_", "KMP_")
"""What a process reads of its environment when it starts or imports torch: where these differ, the start is a real one.
The number of threads is read then too, and set again after the fork."""
OF_SKLEARN = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})
"""scikit-learn sets these when it is imported, in whichever test does so first.  torch's OpenMP is GNU's and reads neither."""
HIGH = 512
"""Descriptors from here on are free for a moment between the fork and the child's own."""
COLLAPSE, LARGE_PAGE = 25, 2**21  # MADV_COLLAPSE


def read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    ignored = {"PYTHONUNBUFFERED", *OF_SKLEARN}
    return {name: value for name, value in env.items() if value and name.startswith(READ_AT_START) and name not in ignored}


def supervised(words: Sequence[str]) -> list[str] | None:
    """The supervisor's words, where a command is this interpreter's own and begins with the supervisor."""
    from compbench.runner import supervisor

    if words[0] == sys.executable and words[1] == "-P":
        if list(words[2:4]) == ["-m", "compbench.runner.supervisor"]:
            return list(words[4:])
        if words[2] == supervisor.__file__:
            return list(words[3:])
    return None


class Forked(subprocess.Popen):  # type: ignore[type-arg]
    """As `subprocess.Popen`, but the process is a fork of the template where it may be one.

    Args:
        template: socket's path; None for a real start.
    """

    def __init__(self, template: str | None, words: Sequence[str], **options: Any) -> None:
        self._template, self._lock = template, threading.Lock()
        self._status: socket.socket | None = None
        super().__init__(words, **options)

    def _execute_child(self, *given: Any) -> None:
        """The arguments are those of Python's own: words, pass_fds, folder and environment, and both ends of three pipes."""
        words, pass_fds, folder, env = given[0], given[4], given[5], given[6]
        ends = given[10:16]
        own = supervised(words) if self._template and env is not None else None
        if own is not None:
            inherited = [end if end >= 0 else number for number, end in enumerate((ends[0], ends[3], ends[5]))]
            order = {"words": own, "env": dict(env), "folder": str(folder or os.getcwd()), "descriptors": list(pass_fds)}
            if self._ordered(order, [*inherited, *pass_fds]):
                self._child_created = True
                self._close_pipe_fds(*ends)  # type: ignore[attr-defined]
                return
        super()._execute_child(*given)  # type: ignore[misc]

    def _ordered(self, order: dict[str, Any], descriptors: list[int]) -> bool:
        """Whether the template took the order, and then the child's process id."""
        self._status, theirs = socket.socketpair()
        self._client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # closed when this process is gone
        with theirs:
            self._client.connect(self._template)
            socket.send_fds(self._client, [json.dumps(order).encode()], [theirs.fileno(), *descriptors])
        self.pid = int(self._status.recv(64) or -1)
        if self.pid < 0:
            self._status.close()
            self._client.close()
            self._status = None
        return self._status is not None

    def _look(self, seconds: float | None) -> None:
        with self._lock:
            if self._status is not None and self.returncode is None and select.select([self._status], [], [], seconds)[0]:
                self.returncode = int(self._status.recv(64) or -signal.SIGKILL)
                self._status.close()
                self._client.close()

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc, no-any-return]
        self._look(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._status is None:
            return super()._wait(timeout)  # type: ignore[misc, no-any-return]
        self._look(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode


class Template:
    """A template process and its socket: started when the first child is asked for, gone with this process.

    Args:
        python: its interpreter, and that of its command lines.
    """

    def __init__(self, python: Path | None = None) -> None:
        self.fresh = False
        self._python = str(python or sys.executable)
        self._lock = threading.Lock()
        self._kept: list[socket.socket] = []  # what the template's life hangs on
        self._place = ""
        self._run, self._above = "", 0

    def share(self, run: str, above: int) -> None:
        """From now on this is the template of all workers of a run of pytest-xdist, gone with the process above them.

        Args:
            run: identifier of the run.
            above: process id.
        """
        self._run, self._above = run, above

    def popen(self, words: Sequence[str], **options: Any) -> Forked:
        """As `subprocess.Popen`; a fork where the words are those of a supervised child and its environment allows it."""
        own = None if self.fresh or supervised(words) is None else self.place()
        return Forked(own, words, **options)

    def compbench(self, *words: object) -> list[str]:
        """A command line in a process of its own, whose children fork from this template."""
        return [self._python, "-P", __file__, "compbench", self.place(), *map(str, words)]

    def module(self, name: str) -> list[str]:
        """`python -m NAME` in a process of its own, whose children fork from this template."""
        return [self._python, "-P", __file__, "module", self.place(), name]

    def place(self) -> str:
        """The path of the socket; starts the process."""
        with self._lock:
            if not self._place:
                self._place = self._shared() if self._run else self._own()
            return self._place

    def _own(self) -> str:
        folder = Path(tempfile.mkdtemp(prefix="template-", dir="/tmp"))  # not one that a fork's exit deletes
        life, theirs = socket.socketpair()
        self._kept.append(life)
        with theirs:
            return self._start(folder, theirs.fileno())

    def _shared(self) -> str:
        from filelock import FileLock

        folder = Path("/tmp", f"template-{self._run}")  # not where TMPDIR is: a socket's path is short
        folder.mkdir(mode=0o700, exist_ok=True)
        with FileLock(folder / "lock"):
            if (folder / "socket").exists():
                return str(folder / "socket")
            life = os.pidfd_open(self._above)
            try:
                return self._start(folder, life)
            finally:
                os.close(life)

    def _start(self, folder: Path, life: int) -> str:
        """A template that listens in a folder, and ends and removes it once `life` can be read."""
        from compbench.runner.processes import environment

        place = str(folder / "socket")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with listening:
            listening.bind(place)
            listening.listen(64)
            words = [self._python, "-P", __file__, "serve", str(life), str(listening.fileno())]
            subprocess.Popen(words, env=environment(1), pass_fds=[life, listening.fileno()], start_new_session=True)
        return place


TEMPLATE = Template()


def install(popen: Any = TEMPLATE.popen) -> None:
    """From now on children of runs, and probes of the gate, start from a template."""
    from compbench.gate import sides, turns
    from compbench.runner import processes

    for module in (processes, sides, turns):
        module.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": popen})  # type: ignore[attr-defined]


class Server:
    """The template's side: forks for each order; stops what a client ordered when the client is gone."""

    def __init__(self, life: int, listening: socket.socket) -> None:
        self._life, self._listening = life, listening
        self._clients: list[socket.socket] = []
        self._children: dict[int, tuple[socket.socket, socket.socket]] = {}  # process id -> who ordered it, its status
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakes.fileno())

    def serve(self) -> list[str]:
        """Returns in a child: the supervisor's words."""
        while True:
            ready = select.select([self._life, self._listening, self._woken, *self._clients], [], [])[0]
            if self._life in ready:
                shutil.rmtree(Path(self._listening.getsockname()).parent, ignore_errors=True)
                os._exit(0)
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                self._reap()
            if self._listening in ready:
                self._clients.append(self._listening.accept()[0])
            for client in [one for one in self._clients if one in ready]:
                words = self._take(client)
                if words is not None:
                    return words

    def _take(self, client: socket.socket) -> list[str] | None:
        text, descriptors, _, _ = socket.recv_fds(client, 2**20, 64)
        if not text:
            for pid, (who, _) in self._children.items():
                if who is client:
                    os.kill(pid, signal.SIGUSR1)  # `supervisor.STOP`; it is not reaped yet
            self._clients.remove(client)
            client.close()
            return None
        order, status = json.loads(text), socket.socket(fileno=descriptors[0])
        if read_at_start(order["env"]) != read_at_start(os.environ):
            status.close()
        elif pid := os.fork():
            self._children[pid] = client, status
        else:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            mine = [self._listening, self._woken, self._wakes, *self._clients]
            for end in [*mine, *(status for _, status in self._children.values()), status]:
                end.detach()  # or it would close what soon has its number
            return _become(order, descriptors)
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        return None

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with contextlib.suppress(OSError), self._children.pop(ended[0])[1] as status:
                    status.sendall(str(os.waitstatus_to_exitcode(ended[1])).encode())


def _become(order: dict[str, Any], received: Sequence[int]) -> list[str]:
    """Session, descriptors, environment and folder as `subprocess.Popen` would have made them."""
    os.setsid()
    os.write(received[0], str(os.getpid()).encode())
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH) for descriptor in received[1:]]
    for number, descriptor in enumerate(moved[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, HIGH)
    for number, descriptor in zip(order["descriptors"], moved[3:], strict=True):
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
    gc.disable()
    import PIL.Image
    import torch

    from compbench.registry.registry import Registry
    from compbench.system import devices, profiling

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # the first of a process imports torch's compiler
    PIL.Image.preinit()
    for name in MODULES:
        importlib.import_module(name)
    for room in ROOMS:
        package = importlib.import_module(f"compbench.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    registry = Registry()
    for kind in ("tasks", "metrics", "methods"):
        for entry in registry.entries(kind):
            if entry.distribution in OURS:
                registry.attempt(entry)
    cpu = torch.device("cpu")
    for precision in {"fp32", devices.precision("auto", cpu)}:
        profiling.measured_peak(cpu, torch.bfloat16 if precision == "bf16" else torch.float32)
    gc.collect()
    gc.freeze()
    gc.enable()
    _in_large_pages()


def _in_large_pages() -> None:
    """Put this process's memory into pages of 2 MiB, where the kernel knows how (Linux from 6.1).

    A run forks five times, and each fork copies, and each end frees, an entry for each page: 25 ms for 400 MB in small pages,
    5 ms in large ones.
    """
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, _, _, _, *name = line.split()
            begin, end = (int(address, 16) for address in place.split("-"))
            begin, end = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
            if rights == "rw-p" and name in ([], ["[heap]"]) and begin < end:
                advise(begin, end - begin, COLLAPSE)


def main(verb: str, *words: str) -> None:
    """`compbench PLACE ...` is a command line with someone's template, `alone ...` one with its own; `module PLACE NAME ...` is
    `python -m NAME ...` with someone's template; `serve` is a template."""
    if verb == "module":
        import runpy

        install(partial(Forked, words[0]))
        sys.argv[1:] = words[2:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if verb != "serve":
        from compbench.cli import start

        start.open_missing_streams()
        own = words if verb == "alone" else words[1:]
        install(*([] if verb == "alone" else [partial(Forked, words[0])]))
        sys.argv[1:] = own
        start.main()
    import torch

    load()
    order = Server(int(words[0]), socket.socket(fileno=int(words[1]))).serve()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    from compbench.runner import supervisor

    supervisor.main(int(order[0]), *order[1:])


if __name__ == "__main__":
    main(*sys.argv[1:])
