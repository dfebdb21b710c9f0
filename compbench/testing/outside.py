"""The contract check from outside: a sandboxed process runs the plugin, and its findings come over a typed channel.

The plugin's output goes to a log.  A hang, a crash or an exit is a finding of the current check; checks that had not begun are
reported as skipped.  This module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict, Unpack

from compbench.runner.isolated import scratch, values_of
from compbench.runner.processes import Ended, last_line
from compbench.system.errors import CompbenchError
from compbench.system.files import Json
from compbench.system.home import Home
from compbench.testing.verdicts import CHECKS_OF, Finding, Report, failed


class CheckOptions(TypedDict, total=False):
    """The arguments of `check` that are the same for several methods."""

    plugins: Sequence[Path]
    only: Sequence[str]
    device: str
    time_limit: float
    threads: int


def check(
    method: str,
    *,
    kind: str = "methods",
    plugins: Sequence[Path] = (),
    only: Sequence[str] = (),
    device: str = "auto",
    time_limit: float = 600.0,
    threads: int = 1,
) -> Report:
    """Check one method, task or metric in a separate process.

    Args:
        method: its name; a method may come from `plugins`.
        kind: methods, tasks or metrics.
        plugins: files of methods that are not installed.
        only: names of checks; () means all.
        device: auto (the CPU, then the first GPU if there is one), cpu, cuda or cuda:N.
        time_limit: seconds for all checks together.
        threads: CPU threads of the process.

    Raises:
        CompbenchError: there is no such check of this kind, or no such device.
    """
    _refuse_unknown(only, kind)
    start = time.monotonic()
    files = [str(file.resolve()) for file in plugins]
    arguments = {"method": method, "plugins": files, "only": list(only), "device": device}
    if kind != "methods":
        arguments = {"kind": kind, "name": method, "only": list(only)}
    findings = tuple(_findings(arguments, time_limit, threads))
    return Report(method, findings, time.monotonic() - start)


def check_all(names: Sequence[tuple[str, str]], *, jobs: int, **options: Unpack[CheckOptions]) -> Iterator[Report]:
    """Check several (kind, name), `jobs` of them at a time; reports come in the order of the names, as early as possible."""
    for kind in dict.fromkeys(kind for kind, _ in names):
        _refuse_unknown(options.get("only", ()), kind)
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        yield from pool.map(lambda one: check(one[1], kind=one[0], **options), names)


def _refuse_unknown(only: Sequence[str], kind: str) -> None:
    """Raise CompbenchError if one of the names is not a check of this kind."""
    known = CHECKS_OF[kind]
    for name in only:
        if name not in known:
            raise CompbenchError(f"no check of {kind} named '{name}'. Known: {', '.join(known)}.")


def _findings(arguments: Mapping[str, Json], time_limit: float, threads: int) -> Iterator[Finding]:
    """Findings until the child has no more; any other end of the child is a finding, too."""
    at = "loads/"

    def note(stage: str, done: int, total: int) -> None:
        nonlocal at
        at = stage

    found = "compbench.testing.examine:findings" if "device" in arguments else "compbench.testing.examine:findings_of"
    try:
        with scratch() as folder:
            yield from values_of(
                found,
                arguments,
                Finding,
                folder,
                home=Home.of_user(),
                device=str(arguments.get("device", "cpu")),
                threads=threads,
                seconds=time_limit,
                listener=note,
            )
    except Ended as end:
        if end.usage:
            raise CompbenchError(end.reason) from end
        check, _, problem = at.partition("/")
        during = f"during '{check}'"
        if end.status == "timeout":
            yield failed("time", problem, f"not done within {time_limit:g} s, {during}")
        else:
            line = last_line(end.traceback, 200)
            yield failed("process", problem, f"{end.reason}, {during}" + (f"; its last line: {line}" if line else ""))
        yield Finding("process", "", "skipped", f"all that would have come after '{check}'")
