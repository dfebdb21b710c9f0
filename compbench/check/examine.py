"""The contract of a method, checked on tiny problems of every kind of event that it claims.

`examine` runs plugin code where it is called.  `compbench check` calls it in a sandboxed process of its own
(`compbench.check.isolated`): what a plugin prints reaches no one.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from compbench import devices
from compbench.check.clauses import SUBJECT_CHECKS, applies, settings
from compbench.check.findings import CHECKS, Finding, Report, failed
from compbench.check.subject import Broken, RefusedProblem, Skipped, Subject
from compbench.check.tiny_problems import PROBLEMS
from compbench.errors import Refused
from compbench.interfaces import Method
from compbench.registry import Registry
from compbench.run.channel import Closed

Listener = Callable[[str, str], None]


def examine(
    method: Method,
    *,
    only: Sequence[str] = (),
    problems: Sequence[str] = (),
    device: str = "auto",
    begin: Listener = lambda check, problem: None,
) -> Iterator[Finding]:
    """Findings about a method, one after the other.

    Args:
        method: whose functions are run, here and now.
        only: names of checks; () is all.  A fit that fails is reported in any case.
        problems: names of tiny problems; () is all that the method claims.
        device: "auto" is the CPU, and then the first GPU if there is one.
        begin: called with check and problem before each.
    """
    wanted = tuple(only) or CHECKS
    if "settings" in wanted:
        begin("settings", "")
        yield _attempt("settings", "", lambda: settings(method))
        try:
            method.settings()
        except Exception as error:
            yield failed("settings", "", f"the settings cannot be made: {_told(error, method)}")
            return
    refused: dict[str, str] = {}
    accepted: set[str] = set()
    for place in _devices(device):
        for tiny in PROBLEMS:
            if (problems and tiny.name not in problems) or not applies(method, tiny, place):
                continue
            kind = tiny.make(place).event.kind
            with tempfile.TemporaryDirectory(prefix="compbench-check-") as room:
                subject = Subject(method, tiny, place, Path(room))
                for finding in _examine_one(subject, wanted, begin):
                    if finding.status == "skipped" and finding.check == "fit":
                        refused[kind] = finding.found
                    yield finding
                if "model" in vars(subject):
                    accepted.add(kind)
    if "kinds" in wanted and not problems:
        begin("kinds", "")
        yield _attempt("kinds", "", lambda: _kinds(method, accepted, refused))


def report_on(method: Method, **options: Any) -> Report:
    """All findings about a method, as a report."""
    start = time.perf_counter()
    findings = tuple(examine(method, **options))
    return Report(method.name, findings, time.perf_counter() - start)


def _examine_one(subject: Subject, wanted: Sequence[str], begin: Listener) -> Iterator[Finding]:
    """The checks on one problem; without a model there is nothing more to say."""
    name = subject.tiny.name if subject.device.type == "cpu" else f"{subject.tiny.name} on {subject.device}"
    begin("fit", name)
    start = time.perf_counter()
    try:
        subject.model  # noqa: B018 - fits
    except RefusedProblem as error:
        yield Finding("fit", name, "skipped", f"the method refuses this problem: {error}")
        return
    except BaseException as error:
        _reraise(error)
        leak = isinstance(error, Refused) and len(subject.fitted_on.federation) > 1
        yield failed("silos" if leak else "fit", name, _told(error, subject.method), seconds=time.perf_counter() - start)
        return
    for check, act in SUBJECT_CHECKS.items():
        if check in wanted:
            begin(check, name)
            finding = _attempt(check, name, partial(act, subject), subject.method)
            if check == "fit":
                finding = finding._replace(seconds=time.perf_counter() - start)
            yield finding


def _attempt(check: str, problem: str, act: Callable[[], str | None], method: Method | None = None) -> Finding:
    """A check's finding, whatever the plugin raises in it."""
    start = time.perf_counter()
    try:
        note = act() or ""
        return Finding(check, problem, "ok", note, "", time.perf_counter() - start)
    except Skipped as reason:
        return Finding(check, problem, "skipped", str(reason), "", time.perf_counter() - start)
    except Broken as broken:
        return failed(check, problem, broken.found, fix=broken.fix, seconds=time.perf_counter() - start)
    except BaseException as error:
        _reraise(error)
        return failed(check, problem, _told(error, method), seconds=time.perf_counter() - start)


def _kinds(method: Method, accepted: set[str], refused: dict[str, str]) -> str | None:
    """Each claimed kind was accepted somewhere; an oracle works where there is analytic truth."""
    if method.oracle:
        if not accepted:
            raise Broken(f"an oracle that refuses the oracle's problem: {'; '.join(refused.values()) or 'no such problem'}")
        return None
    missing = [kind for kind in method.kinds if kind not in accepted]
    if missing:
        raise Broken("; ".join(f"{kind}: {refused.get(kind, 'there is no such problem')}" for kind in missing))
    return None


def _devices(asked: str) -> list[torch.device]:
    if asked != "auto":
        return [devices.resolve(asked)]
    found = [torch.device("cpu")]
    return [*found, torch.device("cuda", 0)] if torch.cuda.is_available() else found


def _reraise(error: BaseException) -> None:
    """Ctrl-C is the user's, and a closed channel the parent's; all else is the plugin's."""
    if isinstance(error, KeyboardInterrupt | Closed):
        raise error


def _told(error: BaseException, method: Method | None) -> str:
    """An exception in a line: its type, its text, and the innermost line of the plugin that it went through."""
    text = " ".join(str(error).split())[:600]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "compbench/check/" not in frame.filename.replace("\\", "/")]
    home = sys.modules.get(getattr(method.fit, "__module__", ""), None) if method is not None else None
    mine = [frame for frame in own if home is not None and frame.filename == getattr(home, "__file__", None)] or own
    where = f" ({Path(mine[-1].filename).name}, line {mine[-1].lineno})" if mine else ""
    return f"{type(error).__name__}: {text}{where}"


def findings(
    progress: Callable[[str, int, int], None], *, method: str, plugins: Sequence[str], only: Sequence[str], device: str
) -> Iterator[Finding]:
    """The findings about a method, and as progress what is being checked; for a process of its own."""
    begin: Listener = lambda check, problem: progress(f"{check}/{problem}", 0, 0)  # noqa: E731
    begin("loads", "")
    registry = Registry(tuple(map(Path, plugins)))
    loaded = registry.attempt(registry.entry("methods", method))
    if loaded.state != "ok":
        yield failed("loads", "", f"it is {loaded.state}: {loaded.reason}")
        return
    yield from examine(loaded.value, only=only, device=device, begin=begin)
