"""One attempt at a run: prepare, open, fit, evaluate, measure; whatever happens ends in a record."""

from __future__ import annotations

import contextlib
import os
import re
import time
import traceback as tracebacks
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from compbench.errors import CompbenchError, Unwritable
from compbench.files import Json, publish, read_limited, remove_tree
from compbench.home import FROM_DATA, Home
from compbench.identity.checkout import origin_of
from compbench.interfaces import Score
from compbench.registry import Registry
from compbench.run import training_curve
from compbench.run.audit import plugin_of, profile_of, scope_of
from compbench.run.environment import environment_of
from compbench.run.fit_cache import FIT_FILE, SharedFit
from compbench.run.kept_samples import SAMPLES_FILE
from compbench.run.messages import (
    Evaluated,
    Failed,
    Fit,
    FitCost,
    Open,
    Opened,
)
from compbench.run.pair import Pair
from compbench.run.processes import Ended, last_line
from compbench.run.resolve import check_same
from compbench.run.signals import uninterrupted
from compbench.schemas import Code, CurvePoint, Plugin, Profile, Record, RunRequest, RunSpec, Status
from compbench.store.lease import Busy, Lease, take
from compbench.store.records import MAX_PICTURE_BYTES, Store, Taken, read_record
from compbench.store.validate import check_scores

CHECKPOINT = re.compile(r"checkpoint[A-Za-z0-9_.-]{0,120}\.safetensors")
CHECKPOINT_SECONDS = 1.0
"""Between two looks for new checkpoints of the contestant."""
MOST_FILES = 1000
"""Entries of the contestant's folder that are looked at."""


class Outcome(NamedTuple):
    """A record and where it is.  `reused` if the same spec had been run before."""

    record: Record
    path: Path
    reused: bool


class Ending(NamedTuple):
    """How an attempt ended: the record's status, one line, and the tail of a traceback or log."""

    status: Status
    reason: str = ""
    traceback: str = ""


class Attempt:
    """The course of one attempt, and what is known of it so far: enough for a record at any moment."""

    def __init__(
        self,
        request: RunRequest,
        home: Home,
        pair: Pair,
        *,
        force: bool,
        resume: bool,
        in_process: bool,
        registry: Registry | None = None,
    ) -> None:
        self.request, self.home, self.pair = request, home, pair
        self.force, self.resume, self.in_process = force, resume, in_process
        self.store = Store(home.records)
        self.registry = registry or Registry(tuple(Path(file) for file in request.plugins))
        self.plugin = self._plugin()
        self.started, self.clock = datetime.now(UTC), time.monotonic()
        self.facts: dict[str, Json] = {}
        self.profile = Profile()
        self.scores: tuple[Score, ...] = ()
        self.artifacts: dict[str, bytes] = {}
        self._published: dict[str, tuple[int, int]] = {}
        self._looked = 0.0
        self.curve: tuple[CurvePoint, ...] = ()

    @property
    def stops(self) -> tuple[int, ...]:
        """Steps of the fit whose weights are scored too."""
        return training_curve.stops(self.spec.budget.train_steps, self.request.curve)

    def find(self, expected: RunSpec | None = None) -> Outcome | None:
        """Resolve the request into a spec; its finished record, unless forced to run again."""
        try:
            self.contestant, self.referee = self.pair.describe()
        except Ended as end:
            raise CompbenchError(end.reason if end.usage else f"{end.reason}. {last_line(end.traceback)}".strip()) from end
        try:
            self.spec = self._spec()
        except ValidationError as error:
            where, what = ".".join(map(str, error.errors()[0]["loc"])), error.errors()[0]["msg"]
            raise CompbenchError(f"'{self.request.method}' describes itself wrongly: {where}: {what}.") from error
        if expected is not None:
            check_same(self.spec, expected)
        return self._finished()

    def run(self, expected: RunSpec | None = None) -> Outcome:
        """The finished record of the request, or one of this attempt.

        Raises:
            CompbenchError: the request itself is wrong.
            Busy: another process runs the same spec.
            Unwritable: the store cannot be written.
        """
        finished = self.find(expected)
        if finished is not None:
            return finished
        identity = self.spec.identity
        self.folder = self.home.runs / identity
        with exclusive(self.home.leases / f"{identity}.lease", self.spec, alarm=self.pair.alarm) as lease:
            finished = self._finished()
            if finished is not None:  # by whoever had the lease until now
                return finished
            self.store.sweep_up(identity)
            stop = self.pair.alarm

            def alarm() -> None:
                stop()
                lease.check()
                self._publish_checkpoints()

            self.pair.alarm = alarm
            ending = self._course()
            lease.check()
            return self._record(ending)

    def _finished(self) -> Outcome | None:
        record = None if self.force else self.store.finished(self.spec.identity)
        if record is not None and self.request.curve and not record.curve:
            return None
        return None if record is None else Outcome(record, self.store.folder / f"{record.name}.json", reused=True)

    def _course(self) -> Ending:
        """The stages, and how they ended."""
        try:
            self._stages()
            return Ending("ok")
        except Ended as end:
            self.pair.stop(gracefully=end.status == "timeout")
            self._publish_checkpoints(at_once=True)
            return Ending(end.status, end.reason, end.traceback or (self.pair.log() if end.status != "refused" else ""))
        except KeyboardInterrupt:
            with uninterrupted():
                self.pair.stop(gracefully=True)
                self._publish_checkpoints(at_once=True)
            return Ending("killed", "stopped by Ctrl-C; go on with --resume")
        except (Busy, Unwritable):
            raise
        except CompbenchError as error:
            self.pair.stop(gracefully=False)
            return Ending("failed", str(error))
        except Exception as error:
            if self.in_process:  # the debugger's to see
                raise
            self.pair.stop(gracefully=False)
            text = f"compbench itself failed: {type(error).__name__}: {error}"
            return Ending("failed", text, "".join(tracebacks.format_exception(error)))

    def _stages(self) -> None:
        """Prepare, open, fit, evaluate, measure, publish."""
        watch = self.pair.watch
        watch.worked()
        self.pair.prepare()
        self._lay_out()
        watch.waited()
        start = time.monotonic()
        opened = self._open()
        cost = self._fit(opened)
        fit_seconds = time.monotonic() - start
        watch.worked()
        found = self.pair.evaluate()
        watch.worked(sampling=True)
        self._take_scores(found)
        measured = self.pair.measure()
        self.facts = measured.facts
        self.profile = profile_of(measured.profile, found, watch, budget=self.spec.budget, fit_seconds=fit_seconds, shared=cost)
        self._publish()
        self.curve = tuple(training_curve.scored(self.pair, step) for step in self.stops)

    def _open(self) -> Opened:
        """Open the contestant's data."""
        order = Open(source=self.referee.source, precision=self.spec.precision, device=self.referee.device, resume=self.resume)
        return self.pair.open(order)

    def _lay_out(self) -> None:
        """Prepare the contestant's folder: checkpoints of this run if it resumes, and links to what was made of the data."""
        place = self.pair.contestant_folder / "run"
        remove_tree(place)
        if self.resume:
            for path in self._checkpoints(self.folder):
                with contextlib.suppress(CompbenchError):
                    publish(path, place / path.name)
        self.home.share_data(self.pair.contestant_folder / "cache" / FROM_DATA)

    def _fit(self, opened: Opened) -> FitCost | None:
        """Fit, or give the contestant a fit that others share; what that cost when it was made."""
        if self.stops or opened.fit is None:
            self.pair.fit(Fit(stops=self.stops))
            return None
        place = SharedFit(self.home.cache, opened.fit, scope_of(self.request, self.registry), self.pair.alarm)
        with place.lock:
            cost, start = place.cost(), time.monotonic()
            fitted = self.pair.fit(Fit(shared=str(place.path) if cost else "", cost=cost))
            if fitted.shared:
                return cost
            seconds = time.monotonic() - start
            made = FitCost(seconds=seconds, cpu_seconds=fitted.cpu_seconds, train_steps=fitted.train_steps, ledger=fitted.ledger)
            place.keep(self.pair.contestant_folder / "run" / FIT_FILE, made)
        return None

    def _take_scores(self, found: Evaluated) -> None:
        """Scores, the referee's pictures, and the samples where they are to be kept."""
        folder, names = self.pair.referee_folder, [f"{name}.png" for name in found.pictures]
        self.scores, self.artifacts = found.scores, {name: read_limited(folder / name, MAX_PICTURE_BYTES) for name in names}
        if self.request.keep_samples:
            self._take(folder / SAMPLES_FILE)

    def _publish(self) -> None:
        """Take weights and trace into the run's folder.  What is no plain file ends the run as failed."""
        for name in ("model.safetensors", "trace.json"):
            path = self.pair.contestant_folder / "run" / name
            if os.path.lexists(path):
                self._take(path)
        for path in self._checkpoints(self.folder):
            path.unlink(missing_ok=True)

    def _take(self, path: Path) -> None:
        try:
            publish(path, self.folder / path.name)
        except Unwritable as error:  # of this run's folder alone: the next run may do
            raise CompbenchError(str(error)) from error

    def _publish_checkpoints(self, *, at_once: bool = False) -> None:
        """Take new checkpoints into the run's folder, so that a killed run can go on."""
        if not at_once and time.monotonic() - self._looked < CHECKPOINT_SECONDS:
            return
        for path in self._checkpoints(self.pair.contestant_folder / "run"):
            with contextlib.suppress(OSError, CompbenchError):
                status = path.lstat()
                if self._published.get(path.name) != (status.st_mtime_ns, status.st_ino):
                    publish(path, self.folder / path.name)
                    self._published[path.name] = (status.st_mtime_ns, status.st_ino)
        self._looked = time.monotonic()

    @staticmethod
    def _checkpoints(folder: Path) -> Iterator[Path]:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_FILES), entries, strict=False):
                if CHECKPOINT.fullmatch(entry.name):
                    yield folder / entry.name

    def _record(self, ending: Ending) -> Outcome:
        with uninterrupted():
            try:
                record = self._written_down(ending)
            except (ValidationError, TypeError, ValueError) as error:  # what the contestant said of itself fits no record
                self.facts, self.profile = {}, Profile()
                why = str(error)[:500]
                record = self._written_down(
                    Ending("failed", f"the contestant says of itself what fits no record: {why}", self.pair.log())
                )
            try:
                check_scores(record)
            except CompbenchError as error:
                record = self._written_down(Ending("failed", f"the task scored what cannot be: it {error}"))
            path = self._write(record, self.artifacts if record.status == "ok" else {})
            return Outcome(read_record(path), path, reused=False)  # as it stands on disk, artifacts named

    def _written_down(self, ending: Ending) -> Record:
        said = Failed(reason=ending.reason, traceback=ending.traceback)  # cut, and without controls
        return Record(
            identity=self.spec.identity,
            attempt=self.store.next_attempt(self.spec.identity),
            spec=self.spec,
            status=ending.status,
            reason=said.reason,
            traceback=said.traceback,
            scores=self.scores if ending.status == "ok" else (),
            profile=self.profile,
            environment=environment_of(
                self.request,
                self.referee.device_class,
                self.facts,
                predecessors=self.pair.predecessors,
                sandboxed=not self.in_process,
            ),
            plugin=self.plugin,
            code=self.code,
            pooled_silos=bool(self.facts.get("pooled_silos", False)),
            oracle=self.contestant.oracle,
            in_process=self.in_process,
            curve=self.curve if ending.status == "ok" else (),
            resumed=bool(self.facts.get("resumed", False)),
            notes=self.facts.get("notes", {}),
            started=self.started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self.clock,
        )

    def _write(self, record: Record, artifacts: dict[str, bytes]) -> Path:
        """Write it as the next attempt; records of the same run may come in from elsewhere meanwhile."""
        for _ in range(100):
            with contextlib.suppress(Taken):
                return self.store.write(record, artifacts)
            record = record.model_copy(update={"attempt": self.store.next_attempt(record.identity)})
        return self.store.write(record, artifacts)

    def _plugin(self) -> Plugin:
        """The distribution and the file of the method."""
        return plugin_of(self.request, self.registry)

    def _origin(self, metrics: Iterable[str]) -> tuple[str, Code]:
        """The code that the record is of."""
        return origin_of(self.request, self.registry, metrics)

    def _settings(self) -> dict[str, Json]:
        """The method's settings, as the spec has them."""
        return self.contestant.settings

    def _spec(self) -> RunSpec:
        """The spec, of what parent and referee know; of the contestant's answer only settings and version are taken."""
        contestant, referee, request = self.contestant, self.referee, self.request
        if contestant.file_sha256 != self.plugin.file_sha256:
            raise CompbenchError(
                f"'{request.method}' is not what its file says: it was changed while it was loaded; run it again."
            )
        if (contestant.budget, contestant.task_settings) != (referee.budget, referee.task_settings):
            raise CompbenchError(f"'{request.method}' resolves the task or its budget otherwise than the referee does.")
        digest, self.code = self._origin(referee.metrics)
        return RunSpec(
            task=request.task,
            task_version=referee.task_version,
            task_settings=referee.task_settings,
            method=request.method,
            method_version=contestant.method_version,
            code=digest,
            settings=self._settings(),
            budget=referee.budget,
            budget_changed=referee.budget_changed,
            preset=request.preset,
            seed=request.seed,
            device_class=referee.device_class,
            precision=referee.precision,
            source=referee.source.kind,
            fingerprint=referee.source.fingerprint,
            metrics=referee.metrics,
        )


@contextlib.contextmanager
def exclusive(path: Path, spec: RunSpec, *, alarm: Callable[[], None] = lambda: None) -> Iterator[Lease]:
    """Hold the lease of a run.  It ends with this process, however that ends.

    Raises:
        Busy: another process is running the same spec.
    """
    try:
        lease = take(path, alarm=alarm)
    except Busy as busy:
        what = f"'{spec.method}' on '{spec.task}' (seed {spec.seed}, {spec.preset})"
        message = f"{what} is being run by another process ({busy.holder}); wait for it, or change the seed."
        raise Busy(busy.path, busy.holder, message) from busy
    try:
        yield lease
    finally:
        lease.release()
