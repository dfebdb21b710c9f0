"""The contract check from outside: a child process runs the plugin, and its findings come over a private channel.

What the plugin prints goes to a log.  A hang, a crash or an exit is a finding of the check that was going on; checks that
had not begun are reported as skipped.  Light: no torch here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from compbench.check.findings import CHECKS, Finding, Report, failed
from compbench.errors import CompbenchError
from compbench.run.channel import Closed
from compbench.run.messages import Message
from compbench.run.processes import Ended, Process, last_line


class Order(Message):
    """What is to be checked."""

    method: str
    plugins: tuple[str, ...]
    only: tuple[str, ...]
    device: str


class Found(Message):
    """Base of what the child finds."""


class FoundOne(Found):
    """One finding."""

    finding: dict[str, Any]


class FoundAll(Found):
    """There are no more; how many there were."""

    count: int


def check(
    method: str,
    *,
    plugins: Sequence[Path] = (),
    only: Sequence[str] = (),
    device: str = "auto",
    time_limit: float = 600.0,
    threads: int = 1,
) -> Report:
    """Check one method in a process of its own.

    Args:
        method: name of an installed method, or of one in `plugins`.
        plugins: files of methods that are not installed.
        only: names of checks; () is all.
        device: auto (the CPU, then the first GPU if there is one), cpu, cuda or cuda:N.
        time_limit: seconds for all checks together.
        threads: CPU threads of the process.

    Raises:
        CompbenchError: no such check, or no such device.
    """
    for name in only:
        if name not in CHECKS:
            raise CompbenchError(f"no check named '{name}'. Known: {', '.join(CHECKS)}.")
    start = time.monotonic()
    findings: list[Finding] = []
    order = Order(method=method, plugins=tuple(str(file.resolve()) for file in plugins), only=tuple(only), device=device)
    with tempfile.TemporaryDirectory(prefix="compbench-check-") as room:
        process = Process("method", ("compbench.check.examine",), threads=threads, log=Path(room) / "output.log")
        try:
            _listen(process, order, findings, time_limit)
        finally:
            process.stop(gracefully=False)
    return Report(method, tuple(findings), time.monotonic() - start)


def check_all(methods: Sequence[str], *, jobs: int, **options: Any) -> Iterator[Report]:
    """Check several methods, `jobs` of them at a time; reports come in the order of the names, as soon as they can."""
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        yield from pool.map(lambda name: check(name, **options), methods)


def _listen(process: Process, order: Order, findings: list[Finding], time_limit: float) -> None:
    """Take findings down until the child says how many they were, or ends otherwise."""
    at = "loads/"

    def note(stage: str, done: int, total: int) -> None:
        nonlocal at
        at = stage[:200]

    deadline = time.monotonic() + time_limit
    try:
        order.send(process.control)
        while isinstance(found := process.expect(Found, deadline=deadline, progress=note), FoundOne):
            findings.append(Finding.of_json(found.finding))
        if isinstance(found, FoundAll) and found.count != len(findings):
            findings.append(failed("process", "", f"{len(findings)} findings came of {found.count}"))
    except (Ended, Closed) as end:
        check, _, problem = at.partition("/")
        during = f"during '{check}'"
        if isinstance(end, Ended) and end.usage:
            raise CompbenchError(end.reason) from end
        if isinstance(end, Ended) and end.status == "timeout":
            findings.append(failed("time", problem, f"not done within {time_limit:g} s, {during}"))
        else:
            said = last_line(end.traceback, 200) if isinstance(end, Ended) else ""
            how = f"{end.reason if isinstance(end, Ended) else end}, {during}" + (f"; its last line: {said}" if said else "")
            findings.append(failed("process", problem, how))
        findings.append(Finding("process", "", "skipped", f"all that would have come after '{check}'"))
