"""The contract of a method, checked on tiny problems of every kind of event that it claims.

`examine` runs plugin code in the calling process.  `compbench check` calls it in a separate sandboxed process
(`compbench.testing.outside`) and does not show a plugin's output.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import torch

from compbench.api.interfaces import Method
from compbench.registry.registry import Registry
from compbench.runner.channel import Closed
from compbench.system import devices
from compbench.system.errors import CompbenchError, Refused
from compbench.testing.clauses import DIVERGED, SUBJECT_CHECKS, applies, settings
from compbench.testing.known_answers import KNOWN
from compbench.testing.learning import LEARNER_CHECKS, Learner
from compbench.testing.metric_clauses import of_metric
from compbench.testing.task_clauses import of_task
from compbench.testing.tiny_problems import OBJECTS, PROBLEMS
from compbench.testing.verdicts import CHECKS, Finding, Report, failed
from compbench.testing.watched import DIFFERENT, Broken, RefusedProblem, Skipped, Subject

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
        method: the method; its functions run in this process.
        only: names of checks; () means all.  A failed fit is reported in any case.
        problems: names of tiny problems; () means all that the method claims.
        device: "auto" means the CPU, and then the first GPU if there is one.
        begin: called with check and problem before each.
    """
    wanted = tuple(only) or CHECKS
    if "settings" in wanted:
        begin("settings", "")
        yield _attempt("settings", "", lambda: settings(method))
        try:
            method.settings()
        except Exception as error:
            yield failed("settings", "", f"the settings cannot be made: {_worded(error, method)}")
            return
    history = History(method)
    for place in _devices(device):
        chosen = [(name, subject_of) for name, subject_of in _problems(method, place) if not problems or name in problems]
        history.known = {name.removesuffix(KNOWN_NAME) for name, _ in chosen if name.endswith(KNOWN_NAME)}
        for _, subject_of in chosen:
            with tempfile.TemporaryDirectory(prefix="compbench-check-") as room:
                yield from history.said_once(_examine_one(subject_of(Path(room)), wanted, begin, history))
    if "kinds" in wanted and not problems:
        begin("kinds", "")
        yield _attempt("kinds", "", lambda: _kinds(method, history))


class History:
    """The course of an examination: kinds that were accepted, refused, or stopped in a fit, and the causes of earlier failures.

    `known` has the names of the tiny problems that also exist with known answers.
    """

    def __init__(self, method: Method) -> None:
        self._file = Path(_file_of(method)).name
        self.accepted: set[str] = set()
        self.stopped: set[str] = set()
        self.refused: dict[str, str] = {}
        self.done: set[str] = set()
        self.known: set[str] = set()
        self._causes: dict[tuple[str, ...], Finding] = {}

    def said_once(self, findings: Iterator[Finding]) -> Iterator[Finding]:
        """The findings; a failure with the same cause as an earlier one becomes a skipped finding that refers to it."""
        for finding in findings:
            cause = _cause(finding, self._file)
            if finding.status == "failed" and cause in self._causes:
                first = self._causes[cause]
                place = f" on {first.problem}" if first.problem else ""
                yield Finding(
                    finding.check,
                    finding.problem,
                    "skipped",
                    f"fails as{place}" if first.check == finding.check else f"fails as '{first.check}'{place}",
                )
                continue
            if finding.status == "failed":
                self._causes[cause] = finding
            yield finding


def _cause(finding: Finding, file: str) -> tuple[str, ...]:
    """A key for the cause of a finding: the error and the plugin's line that raised it, or the check and its text."""
    if (raised := RAISED.search(finding.found)) and raised[2].startswith(f"({file}, "):
        return raised.groups()
    words = re.sub(r"[-+]?\d[\d.e+-]*", "#", finding.found.removesuffix(DIFFERENT))
    return finding.check, re.sub(r"#(, #)*,?", "#", words)  # shapes of any number of dimensions


def _problems(method: Method, place: torch.device) -> Iterator[tuple[str, Callable[[Path], Subject]]]:
    """The problems of the kinds that a method claims, cheap ones first, and then those with known answers."""
    if "objects" in method.needs:
        yield OBJECTS.name, partial(Subject, method, OBJECTS, place)
        return
    for tiny in PROBLEMS:
        if applies(method, tiny, place):
            yield tiny.name, partial(Subject, method, tiny, place)
    for known in KNOWN:
        alone = "silos" in method.needs and len(known.tiny.make(place).federation) < 2  # there is nothing to merge
        if not alone and applies(method, known.tiny, place) and (method.oracle or known.separated):
            yield known.tiny.name, partial(Learner, method, known, place)


class ExamineOptions(TypedDict, total=False):
    """The keyword arguments of `examine`."""

    only: Sequence[str]
    problems: Sequence[str]
    device: str
    begin: Listener


def report_on(method: Method, **options: Unpack[ExamineOptions]) -> Report:
    """All findings about a method, as a report."""
    start = time.perf_counter()
    findings = tuple(examine(method, **options))
    return Report(method.name, findings, time.perf_counter() - start)


RAISED = re.compile(r"(\w+): .* (\([^()]+, line \d+\))$", re.DOTALL)
"""Pattern of the text of `_worded`: an exception's type, its text, and the plugin's line."""

RAISES = "look at the line that raised it; request.condition is (B, F), x and request.x0 are (B, *D), and times t are (B,)"

GATES = ("fit", "shape", "dtype", "finite")
"""If one of these checks fails, later checks of the problem are skipped, because they would fail for the same reason."""

AFTER = {
    "x0": ("determinism",),
    "mixed": ("determinism", "x0"),
    "build": ("determinism",),
    "resume": ("determinism", "cancellation"),
    "null": ("conditions", "learns"),
    "learns": ("precision",),
    "counted": ("learns",),
    "asked": ("learns",),
}
"""For each check, the earlier checks that must pass for it to be meaningful."""


def _examine_one(subject: Subject, wanted: Sequence[str], begin: Listener, history: History) -> Iterator[Finding]:
    """The findings on one problem; if the fit gives no model, there are no further checks."""
    name = subject.tiny.name if subject.device.type == "cpu" else f"{subject.tiny.name} on {subject.device}"
    learner = isinstance(subject, Learner)
    checks = {check: act for check, act in _checks_of(subject).items() if check in wanted}
    if not checks and not ("kinds" in wanted and not learner):
        return
    begin("fit", name)
    start = time.perf_counter()
    try:
        subject.model  # noqa: B018 - fits
    except RefusedProblem as error:
        history.refused[subject.fitted_on.event.kind] = str(error)
        yield Finding("fit", name, "skipped", f"the method refuses this problem: {error}")
        return
    except BaseException as error:
        _reraise(error)
        yield _unfitted(subject, name, error)._replace(seconds=time.perf_counter() - start)
        return
    kind = subject.fitted_on.event.kind
    history.accepted.add(kind)
    if not learner:
        subject.fits_as_before = kind in history.stopped and len(subject.fitted_on.federation) == 1
        history.stopped.add(kind)
    failures: set[str] = set()
    for check, act in checks.items():
        cause = next((earlier for earlier in AFTER.get(check, ()) if earlier in failures), "")
        later = KNOWN_ASKS.get(check, {}).get(subject.tiny.name) in history.known
        again = (check in ONCE and check in history.done) or (check in ONCE_A_KIND and subject.fits_as_before)
        if cause or later or again:
            if cause:
                yield Finding(check, name, "skipped", f"see '{cause}'")
            continue
        begin(check, name)
        finding = _attempt(check, name, act, subject.method)
        if subject.fault is not None and finding.status != "failed":
            finding = failed(subject.fault.clause or check, name, subject.fault.found, fix=subject.fault.fix)
        if check == "fit":
            finding = finding._replace(seconds=time.perf_counter() - start)
        yield finding
        history.done.add(check)
        if finding.status == "failed":
            failures.add(finding.check)
            if subject.fault is not None or check in GATES:
                yield Finding(check, name, "skipped", f"all that would come after '{check}' on this problem")
                return


def _checks_of(subject: Subject) -> dict[str, Callable[[], str | None]]:
    """The checks of a subject, in the order in which they run."""
    if isinstance(subject, Learner):
        return {check: partial(act, subject) for check, act in LEARNER_CHECKS.items()}
    return {check: partial(act, subject) for check, act in SUBJECT_CHECKS.items()}


ONCE = ("memory",)
"""Checks that run on one problem only."""

ONCE_A_KIND = ("cancellation", "resume")
"""Checks that run on the first problem of each kind of event, and on the problem with silos, because silos take turns."""

KNOWN_NAME = " known"
"""Ending of the names of problems with known answers."""

KNOWN_ASKS = {
    "mixed": {"vector": "vector", "image": "image", "bumps": "image", "trajectory": "trajectory"},
    "precision": {"vector": "vector", "image": "image", "bumps": "image", "trajectory": "trajectory"},
}
"""For each check, the problems on which it is left out if the named known problem runs it with more rows."""


def _unfitted(subject: Subject, name: str, error: BaseException) -> Finding:
    """The finding for a fit that raised: a leak of a silo's data, diverged training, a failure in bf16, or the error itself."""
    text = _worded(error, subject.method)
    if isinstance(error, Refused) and len(subject.fitted_on.federation) > 1:
        return failed("silos", name, text)
    if isinstance(error, CompbenchError) and "not finite" in str(error):
        where, fix = "the training diverged", DIVERGED
    else:
        where, fix = "", RAISES
    if isinstance(subject, Learner) and subject.precision != "fp32" and subject.fits_in_fp32():
        return failed("precision", name, f"in {subject.precision}, which published runs take, {where or 'fit raised'}: {text}")
    return failed("fit", name, f"{where}: {text}" if where else text, fix=fix)


def _attempt(check: str, problem: str, act: Callable[[], str | None], method: Method | None = None) -> Finding:
    """Run a check and return its finding, whatever the plugin raises in it."""
    start = time.perf_counter()
    try:
        note = act() or ""
        return Finding(check, problem, "ok", note, "", time.perf_counter() - start)
    except Skipped as reason:
        return Finding(check, problem, "skipped", str(reason), "", time.perf_counter() - start)
    except Broken as broken:
        found = broken.found + (_where(broken.__cause__, method) if broken.__cause__ else "")
        return failed(broken.clause or check, problem, found, fix=broken.fix, seconds=time.perf_counter() - start)
    except BaseException as error:
        _reraise(error)
        return failed(check, problem, _worded(error, method), fix=RAISES, seconds=time.perf_counter() - start)


def _kinds(method: Method, history: History) -> str | None:
    """Check that each claimed kind was accepted somewhere, and that an oracle works on a problem with analytic truth."""
    accepted, refused = history.accepted, history.refused
    if method.oracle:
        if not accepted:
            raise Broken(f"an oracle that refuses the oracle's problem: {'; '.join(refused.values()) or 'no such problem'}")
        return None
    missing = [kind for kind in method.kinds if kind in refused and kind not in accepted]
    if missing:
        raise Broken("; ".join(f"{kind}: {refused[kind]}" for kind in missing))
    return None


def _devices(asked: str) -> list[torch.device]:
    if asked != "auto":
        return [devices.resolve(asked)]
    found = [torch.device("cpu")]
    return [*found, torch.device("cuda", 0)] if torch.cuda.is_available() else found


def _reraise(error: BaseException) -> None:
    """Raise again an error that is not the plugin's: Ctrl-C by the user, or a channel closed by the parent."""
    if isinstance(error, KeyboardInterrupt | Closed):
        raise error


def _worded(error: BaseException, method: Method | None) -> str:
    """An exception in one line: its type, its text, and the innermost plugin line in its traceback."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}{_where(error, method)}"


def _where(error: BaseException, method: Method | None) -> str:
    """The innermost plugin line in an exception's traceback, as in " (mine.py, line 12)"; "" without one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "compbench/testing/" not in frame.filename.replace("\\", "/")]
    mine = [frame for frame in own if method is not None and frame.filename == _file_of(method)] or own
    return f" ({Path(mine[-1].filename).name}, line {mine[-1].lineno})" if mine else ""


def _file_of(method: Method) -> str:
    """The file of the method's fit; "" where it has none."""
    return getattr(sys.modules.get(getattr(method.fit, "__module__", "")), "__file__", None) or ""


def findings(
    progress: Callable[[str, int, int], None], *, method: str, plugins: Sequence[str], only: Sequence[str], device: str
) -> Iterator[Finding]:
    """The findings about a method, with the current check as progress; this runs in a separate process."""
    begin: Listener = lambda check, problem: progress(f"{check}/{problem}", 0, 0)  # noqa: E731
    begin("loads", "")
    registry = Registry(tuple(map(Path, plugins)))
    loaded = registry.attempt(registry.entry("methods", method))
    if loaded.state != "ok":
        yield failed("loads", "", f"it is {loaded.state}: {loaded.reason}")
        return
    yield from examine(loaded.value, only=only, device=device, begin=begin)


def findings_of(
    progress: Callable[[str, int, int], None], *, kind: Literal["tasks", "metrics"], name: str, only: Sequence[str]
) -> Iterator[Finding]:
    """The findings about a task or a metric, by the checks in `only` (() means all); this runs in a separate process."""
    progress("loads/", 0, 0)
    registry = Registry()
    loaded = registry.attempt(registry.entry(kind, name))
    if loaded.state != "ok":
        yield failed("loads", "", f"it is {loaded.state}: {loaded.reason}")
        return
    progress(f"{kind}/", 0, 0)
    yield from of_task(loaded.value, registry, only=only) if kind == "tasks" else of_metric(loaded.value, only=only)
