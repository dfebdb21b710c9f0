"""One run: start contestant and referee, let them work within the time limit, and write the record whatever happens.

This process never imports torch and never runs a plugin's code.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from compbench.errors import CompbenchError, Unwritable
from compbench.files import read_limited
from compbench.home import Home, scratch_folder
from compbench.run.audit import plugin_of, profile_of
from compbench.run.environment import environment_of
from compbench.run.processes import Child, Crew, Ended, log_tail
from compbench.run.signals import uninterrupted
from compbench.schemas import Profile, Record, RunRequest, RunSpec
from compbench.store.lease import Busy, Claim, Lost, take
from compbench.store.records import MAX_PICTURE_BYTES, Store, Taken, parse

DESCRIBE_SECONDS = 300.0
"""A plugin whose import takes longer hangs."""

Listener = Callable[[str, int, int], None]


class Outcome(NamedTuple):
    """A record and where it is.  `reused` if the same spec had been run before."""

    record: Record
    path: Path
    reused: bool


def run(
    request: RunRequest,
    *,
    force: bool = False,
    resume: bool = False,
    in_process: bool = False,
    expected: RunSpec | None = None,
    crew: Crew | None = None,
    listener: Listener = lambda stage, done, total: None,
    alarm: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run one spec, or return its finished record.

    Args:
        request: what was asked for.
        force: run again even if there is a finished record.
        resume: go on from the last checkpoint of the same spec.
        in_process: everything in this process, for debuggers; no time limit, no protection.
        expected: the spec that the request must resolve to here, further metrics apart.
        crew: processes that runs follow each other in; none for processes of its own.
        listener: called with (stage, done, total).
        alarm: called twice a second; may raise KeyboardInterrupt, which ends the run as Ctrl-C does.

    Returns:
        the record of this attempt, whatever its status; it is in the store.

    Raises:
        CompbenchError: the request itself is wrong.
        Busy: the same spec is being run by another process, on this machine or another.
        Unwritable: the store or the run's folder cannot be written.
    """
    home = Home(Path(request.home))
    with _crew(home, crew) as own:
        if in_process:
            from compbench.run.in_process import InProcessPair

            pair: Any = InProcessPair(request, listener)
        else:
            pair = ProcessPair(request, own, listener, alarm)
        try:
            outcome = _Attempt(request, home, pair, force=force, resume=resume, in_process=in_process).run(expected)
        except Busy as busy:
            if isinstance(busy, Lost):
                own.close(gracefully=False)
            else:
                own.release()
            raise
        except BaseException:
            own.close(gracefully=False)
            raise
        if outcome.record.status == "ok":
            own.release()
        else:
            own.close(gracefully=False)
        return outcome


def look_up(request: RunRequest, crew: Crew, *, alarm: Callable[[], None] = lambda: None) -> Outcome | None:
    """The finished record of a request, or None; nothing is run.  `crew` stays for the next: it has only read plugins.

    Raises:
        CompbenchError: the request itself is wrong.
    """
    pair = ProcessPair(request, crew, lambda stage, done, total: None, alarm)
    try:
        found = _Attempt(request, Home(Path(request.home)), pair, force=False, resume=False, in_process=False).find()
    except BaseException:
        crew.close(gracefully=False)
        raise
    crew.release()
    return found


@contextlib.contextmanager
def crew_of(home: Home) -> Iterator[Crew]:
    """Processes for runs that follow each other; they end with the block."""
    with scratch_folder(home.root) as scratch:
        crew = Crew(scratch)
        try:
            yield crew
        finally:
            crew.close(gracefully=False)


@contextlib.contextmanager
def _crew(home: Home, crew: Crew | None) -> Iterator[Crew]:
    if crew is not None:
        yield crew
        return
    with crew_of(home) as own:
        yield own


class ProcessPair:
    """Contestant and referee as child processes; the same four steps as `InProcessPair`."""

    def __init__(self, request: RunRequest, crew: Crew, listener: Listener, alarm: Callable[[], None]) -> None:
        self._listener, self._crew = listener, crew
        self.alarm = alarm
        self._contestant, self._referee = crew.take(request)
        self.predecessors = crew.predecessors
        self.deadline = time.monotonic() + request.time_limit if request.time_limit else float("inf")

    def describe(self) -> tuple[dict[str, Any], dict[str, Any]]:
        limit = min(self.deadline, time.monotonic() + DESCRIBE_SECONDS)
        contestant = self._contestant.expect("described", deadline=limit, alarm=self.alarm)
        return contestant, self._referee.expect("described", deadline=limit, alarm=self.alarm)

    def prepare(self) -> None:
        self._referee.control.send("prepare")
        self._wait(self._referee, "prepared")

    def fit(self, **order: Any) -> dict[str, Any]:
        self._contestant.control.send("fit", **order)
        return _object(self._wait(self._contestant, "fitted"), "facts")

    def evaluate(self, folder: Path) -> dict[str, Any]:
        self._referee.control.send("evaluate", folder=str(folder))
        return self._wait(self._referee, "evaluated")

    def measure(self) -> dict[str, Any]:
        self._contestant.control.send("measure")
        found = self._wait(self._contestant, "measured")
        return {name: _object(found, name) for name in ("profile", "facts")}

    def stop(self, *, gracefully: bool) -> None:
        self._crew.close(gracefully=gracefully)

    def log(self) -> str:
        """What the contestant printed, at its end."""
        return log_tail(self._contestant.log)

    def _wait(self, child: Child, kind: str) -> dict[str, Any]:
        return child.expect(kind, deadline=self.deadline, progress=self._listener, alarm=self.alarm)


class _Attempt:
    """The course of one attempt, and what is known of it so far: enough for a record at any moment."""

    def __init__(self, request: RunRequest, home: Home, pair: Any, *, force: bool, resume: bool, in_process: bool) -> None:
        self.request, self.home, self.pair = request, home, pair
        self.force, self.resume, self.in_process = force, resume, in_process
        self.store = Store(home.records)
        self.started, self.clock = datetime.now(UTC), time.monotonic()
        self.facts: dict[str, Any] = {}
        self.profile = Profile()
        self.plugin = plugin_of(request)
        self.scores: tuple[Any, ...] = ()
        self.artifacts: dict[str, bytes] = {}

    def find(self, expected: RunSpec | None = None) -> Outcome | None:
        """Resolve the request into a spec; its finished record, unless forced to run again."""
        try:
            self.contestant, self.referee = self.pair.describe()
        except Ended as end:
            raise CompbenchError(end.reason if end.usage else f"{end.reason}. {_last_line(end.traceback)}".strip()) from end
        try:
            self.spec = self._spec()
        except ValidationError as error:
            where, what = ".".join(map(str, error.errors()[0]["loc"])), error.errors()[0]["msg"]
            raise CompbenchError(f"'{self.request.method}' describes itself wrongly: {where}: {what}.") from error
        if expected is not None:
            check_same(self.spec, expected)
        return self._finished()

    def run(self, expected: RunSpec | None = None) -> Outcome:
        finished = self.find(expected)
        if finished is not None:
            return finished
        identity = self.spec.identity
        self.folder = self.home.runs / identity
        with exclusive(self.home.claims / identity, self.spec, alarm=self.pair.alarm) as claim:
            finished = self._finished()
            if finished is not None:  # by whoever had the claim until now
                return finished
            self.store.sweep_up(identity)
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Unwritable.of(self.folder, error) from error
            stop = self.pair.alarm
            self.pair.alarm = lambda: (stop(), claim.check())
            ended = self._course()
            claim.check()
            return self._record(*ended)

    def _finished(self) -> Outcome | None:
        record = None if self.force else self.store.finished(self.spec.identity)
        return record and Outcome(record, self.store.folder / f"{record.name}.json", reused=True)

    def _course(self) -> tuple[str, str, str]:
        """(status, reason, traceback) of prepare, fit, evaluate, measure."""
        try:
            self.pair.prepare()
            self.home.share_data()
            start = time.monotonic()
            self.facts = self.pair.fit(
                source=self.referee["source"],
                precision=self.spec.precision,
                device=self.referee["device"],
                folder=str(self.folder),
                resume=self.resume,
            )
            fit_seconds = time.monotonic() - start
            found = self.pair.evaluate(self.folder)
            self.scores = tuple(found["scores"])
            self.artifacts = self._pictures(found["pictures"])
            measured = self.pair.measure()
            self.facts = measured["facts"]
            self.profile = profile_of(measured["profile"], found, fit_seconds=fit_seconds)
            return "ok", "", ""
        except Ended as end:
            self.pair.stop(gracefully=end.status == "timeout")
            return end.status, end.reason, end.traceback or (self.pair.log() if end.status != "refused" else "")
        except KeyboardInterrupt:
            with uninterrupted():
                self.pair.stop(gracefully=True)
            return "killed", "stopped by Ctrl-C; go on with --resume", ""

    def _pictures(self, hashes: dict[str, str]) -> dict[str, bytes]:
        """The referee's pictures, if they are still what it wrote: the contestant can write to the same folder."""
        found = {}
        for name, sha256 in hashes.items():
            with contextlib.suppress(CompbenchError):
                content = read_limited(self.folder / f"{name}.png", MAX_PICTURE_BYTES)
                if hashlib.sha256(content).hexdigest() == sha256:
                    found[f"{name}.png"] = content
        return found

    def _record(self, status: str, reason: str, traceback: str) -> Outcome:
        with uninterrupted():
            try:
                record = self._written_down(status, reason, traceback)
            except (ValidationError, TypeError, ValueError) as error:  # what the contestant said of itself fits no record
                self.facts, self.profile = {}, Profile()
                why = " ".join(str(error).split())[:500]
                record = self._written_down(
                    "failed", f"the contestant says of itself what fits no record: {why}", self.pair.log()
                )
            path = self._write(record, self.artifacts if record.status == "ok" else {})
            return Outcome(parse(path.read_bytes()), path, reused=False)  # as it stands on disk, artifacts named

    def _written_down(self, status: str, reason: str, traceback: str) -> Record:
        return Record(
            identity=self.spec.identity,
            attempt=self.store.next_attempt(self.spec.identity),
            spec=self.spec,
            status=status,
            reason=reason,
            traceback=traceback,
            scores=self.scores if status == "ok" else (),
            profile=self.profile,
            environment=environment_of(
                self.request,
                self.referee["device_class"],
                self.facts,
                predecessors=self.pair.predecessors,
                fenced=not self.in_process,
            ),
            plugin=self.plugin,
            pooled_silos=bool(self.facts.get("pooled_silos", False)),
            oracle=bool(self.contestant.get("oracle")),
            in_process=self.in_process,
            resumed=bool(self.facts.get("resumed", False)),
            notes=self.facts.get("notes", {}),
            started=self.started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self.clock,
        )

    def _write(self, record: Record, artifacts: dict[str, bytes]) -> Path:
        """Write it as the next attempt; records of the same run may come in from elsewhere meanwhile (`merge`)."""
        for _ in range(100):
            with contextlib.suppress(Taken):
                return self.store.write(record, artifacts)
            record = record.model_copy(update={"attempt": self.store.next_attempt(record.identity)})
        return self.store.write(record, artifacts)

    def _spec(self) -> RunSpec:
        """The spec, of what parent and referee know; of the contestant's answer only settings and version are taken."""
        contestant, referee, request = self.contestant, self.referee, self.request
        if _object(contestant, "plugin").get("file_sha256") != self.plugin.file_sha256:
            raise CompbenchError(
                f"'{request.method}' is not what its file says: it was changed while it was loaded; run it again."
            )
        return RunSpec(
            task=request.task,
            task_version=referee["task_version"],
            task_settings=referee["task_settings"],
            method=request.method,
            method_version=contestant.get("method_version"),
            code=self.plugin.file_sha256,
            settings=contestant.get("settings"),
            budget=referee["budget"],
            budget_changed=referee["budget_changed"],
            preset=request.preset,
            seed=request.seed,
            device_class=referee["device_class"],
            precision=referee["precision"],
            source=referee["source"]["kind"],
            fingerprint=referee["source"]["fingerprint"],
            metrics=referee["metrics"],
        )


def check_same(here: RunSpec, expected: RunSpec) -> None:
    """Raise CompbenchError naming what of an expected spec is not so here; further metrics do not matter."""
    found, wanted = here.model_dump(mode="json"), expected.model_dump(mode="json")
    found["metrics"] = {name: found["metrics"].get(name) for name in wanted["metrics"]}
    for name, value in wanted.items():
        if found[name] != value:
            if name == "code":
                raise CompbenchError(
                    f"this spec cannot be run here: the method's file had SHA-256 {value[:12]}, here it has {found[name][:12]}; "
                    "install the plugin as it was then, or run the method as it is now for a record of its own."
                )
            was, now = str(value)[:100], str(found[name])[:100]
            raise CompbenchError(f"this spec cannot be run here: {name.replace('_', ' ')} was {was}, here it is {now}.")


@contextlib.contextmanager
def exclusive(folder: Path, spec: RunSpec, *, alarm: Callable[[], None] = lambda: None) -> Iterator[Claim]:
    """Hold the claim of a run.  It ends with this process, however that ends.

    Raises:
        Busy: another process is running the same spec.
    """
    try:
        claim = take(folder, alarm=alarm)
    except Busy as busy:
        what = f"'{spec.method}' on '{spec.task}' (seed {spec.seed}, {spec.preset})"
        message = f"{what} is being run by another process ({busy.holder}); wait for it, or change the seed."
        raise Busy(busy.folder, busy.holder, message) from busy
    try:
        yield claim
    finally:
        claim.release()


def _object(header: dict[str, Any], name: str) -> dict[str, Any]:
    """An object of a child's message; empty if it sent something else."""
    value = header.get(name)
    return value if isinstance(value, dict) else {}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
