"""Sweeps that fork from a process with torch in it, for soaks of a thousand kills.

    template -> sweep, the parent that is killed -> supervisors -> contestant and referee

Of a kill's five CPU seconds, four import torch and the command line.  Here a template process does so once and forks a
sweep for each kill; its children are forks of that sweep.  So every process has the parent that it has in a real sweep:
what dies with whom, sessions, supervisors, sandboxes, messages, leases and files are real.  Fresh interpreters are not.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

from support.real_sweeps import CHEAP


class ForkedChild:
    """What a run needs of `subprocess.Popen`, for a child that was forked from this process."""

    def __init__(
        self, words: Sequence[str], *, stdout: IO[bytes], env: dict[str, str], pass_fds: Sequence[int], **_: Any
    ) -> None:
        assert list(words[1:4]) == ["-P", "-m", "compbench.runner.supervisor"]
        self.args, self.returncode = words, None
        self.pid = os.fork()
        if self.pid == 0:
            ended_by(lambda: _supervise(words[4:], stdout.fileno(), env, pass_fds))

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout or 1e9)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def ended_by(work: Callable[[], object]) -> NoReturn:
    """Do what this fork is for, and end as a process of its own would."""
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _supervise(words: Sequence[str], output: int, env: dict[str, str], kept: Sequence[int]) -> None:
    """Session, descriptors and environment as `subprocess.Popen` would have made them; then what the supervisor does."""
    from compbench.runner import supervisor

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for number in (1, 2):
        os.dup2(output, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.environ.clear()
    os.environ.update(env)
    supervisor.main(int(words[0]), *words[1:])


class ForkedSweep:
    """A sweep to be killed; the template's child, not ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        return None if Path(f"/proc/{self.pid}").exists() else 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self) -> None:
        while self.poll() is None:
            time.sleep(0.005)


class SweepTemplate:
    """The process that sweeps fork from; one order at a time."""

    def __init__(self) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-m", "support.forked_sweeps"]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, home: Path, *words: str) -> ForkedSweep:
        """A new `compbench sweep --quiet WORDS`, whose working folder, and that of all below it, is its home."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"home": str(home), "words": ["sweep", "--quiet", *words]}) + "\n")
        self.process.stdin.flush()
        return ForkedSweep(int(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def serve() -> None:
    """The template's side: a fork for each line of orders; what ended is waited for by no one but the kernel."""
    import torch

    import compbench.runner.contestant
    import compbench.runner.referee  # noqa: F401
    from compbench.cli import output, sweep  # noqa: F401
    from compbench.cli.main import main
    from compbench.registry.registry import Registry
    from compbench.registry.resolve import metrics_of
    from compbench.runner import processes
    from compbench.sweep import this_machine as local  # noqa: F401

    torch.set_num_threads(1)
    registry = Registry()
    registry.load("methods", CHEAP[1])
    metrics_of(registry.load("tasks", CHEAP[3]), registry)
    names = {**vars(subprocess), "Popen": ForkedChild}
    processes.subprocess = SimpleNamespace(**names)  # type: ignore[assignment]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    answers = os.dup(1)
    while line := os.read(0, 2**16):
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(answers)
            with open(order["home"] + ".log", "ab") as log, open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)
                for number in (1, 2):
                    os.dup2(log.fileno(), number)
            os.environ["COMPBENCH_HOME"] = order["home"]
            os.makedirs(order["home"], exist_ok=True)
            os.chdir(order["home"])
            ended_by(lambda words=order["words"]: main(words, standalone_mode=True))
        os.write(answers, f"{pid}\n".encode())


if __name__ == "__main__":
    serve()
