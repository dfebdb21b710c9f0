"""Workers of pytest-xdist that fork from the process above them, which has imported what the tests import.

Each worker imports torch, its compiler, scipy and all of ours: 5 of the 7 CPU seconds that it takes to collect this suite.
Here the process above the workers does that once, and each worker is a fork of it, made before any thread runs: to collect
the suite in three workers takes 9 CPU seconds instead of 22.

    the process above  --import-->  --fork-->  worker: execnet serves, pytest-xdist collects, as in an interpreter of its own

It replaces a class of execnet that is private.  Where a version has another, nothing is done, and the workers start as ever.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import execnet.gateway_io
import pytest
from support.rewriting import files_of

IMPORT = re.compile(r"^(?:from (\w[\w.]*) import ([\w, ]*)|import (\w[\w., ]*))", re.MULTILINE)
"""An import at the top level of a file; of one whose names are in parentheses the module alone."""
BY_EXECNET = "Popen2IOMaster"
"""The class that starts a worker's process."""


class Fork:
    """A process that waits for what execnet has it execute, with the interface of `subprocess.Popen` that execnet needs.

    Args:
        earlier: forks whose pipes this one must not hold open.
    """

    def __init__(self, earlier: Sequence[Fork]) -> None:
        (read, its_output), (its_input, write) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(write, "wb"), os.fdopen(read, "rb")
        self._status: int | None = None
        self._pid = os.fork()
        if not self._pid:
            for fork in (*earlier, self):
                fork.stdin.close()
                fork.stdout.close()
            serve(its_input, its_output)
        os.close(its_input)
        os.close(its_output)

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)


def serve(read: int, write: int) -> NoReturn:
    """Do what `python -c "import sys; exec(eval(sys.stdin.readline()))"` does, which is how execnet starts a worker."""
    status = 1
    try:
        for number, end in enumerate((read, write)):
            os.dup2(end, number)
            os.close(end)
        sys.stdin, sys.stdout, sys.argv = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False), ["-c"]
        sys.modules["__main__"] = main = ModuleType("__main__")  # a process that a test spawns imports what this names
        exec(eval(sys.stdin.readline()), vars(main))
        status = 0
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(status)


def load(files: Sequence[Path]) -> None:
    """Import what some test files import.  What fails is left for the worker that collects the file to report."""
    found = {match.groups(default="") for file in files for match in IMPORT.finditer(file.read_text())}
    for module, names, modules in sorted(found):
        for name in filter(None, [module, *modules.replace(" ", "").split(",")]):
            _try(name)
        for name in filter(str.isidentifier, names.replace(" ", "").split(",")):
            if not hasattr(sys.modules.get(module), name):
                _try(f"{module}.{name}")


def _try(module: str) -> None:
    with suppress(Exception, pytest.skip.Exception):
        importlib.import_module(module)


def fork_workers(config: pytest.Config) -> None:
    """Give execnet a fork of this process for each worker that it is about to start."""
    will_start = not config.option.collectonly and config.getoption("dist", "no") != "no"
    number = config.option.tx.count("popen") if will_start else 0
    by_execnet = getattr(execnet.gateway_io, BY_EXECNET, None)
    if not number or by_execnet is None or not hasattr(os, "fork"):
        return
    gc.disable()
    load(files_of(config))
    gc.freeze()  # a worker's collections leave alone what it shares with the others
    gc.enable()
    forks: list[Fork] = []
    for _ in range(number):
        forks.append(Fork(forks))

    class ByFork(by_execnet):  # type: ignore[misc, valid-type]
        def __init__(self, words: Sequence[str], execmodel: Any) -> None:
            if forks:
                self.popen = forks.pop(0)
                super(by_execnet, self).__init__(self.popen.stdin, self.popen.stdout, execmodel=execmodel)
            else:  # in the place of a worker that crashed
                super().__init__(words, execmodel)

    setattr(execnet.gateway_io, BY_EXECNET, ByFork)
