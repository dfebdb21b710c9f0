"""One attempt at a run: prepare, open, fit, evaluate and measure.  Every attempt ends with a record, whatever happens."""

from __future__ import annotations

import contextlib
import re
import signal
import time
import traceback as tracebacks
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from compbench.api.interfaces import Score
from compbench.api.schemas import CurvePoint, Profile, Record, RunRequest, RunSpec, Status
from compbench.registry.checkout import origin_of, plugin_of, scope_of
from compbench.registry.equal_code import equal_code
from compbench.registry.registry import Registry
from compbench.registry.resolve import check_same
from compbench.runner import messages, training_curve
from compbench.runner.audit import Watch, environment_of, profile_of
from compbench.runner.compiled_code import KeptCode
from compbench.runner.fit_cache import SharedFit
from compbench.runner.messages import Evaluated, Failed, Fit, FitCost, Fitted, M, Message, Open, Opened
from compbench.runner.processes import Ended, last_line
from compbench.runner.signals import WORDS, held_back, uninterrupted
from compbench.store.cell_picture import FILM, film_at
from compbench.store.lease import Busy, Lease, take
from compbench.store.records import MAX_PICTURE_BYTES, Store
from compbench.store.samples import SAMPLES_FILE
from compbench.store.validate import check_scores, judged
from compbench.system.errors import CompbenchError, Unwritable, first_of
from compbench.system.files import Json, publish, read_limited, remove_parts, remove_tree
from compbench.system.home import Home
from compbench.system.plugin_folder import PluginFolder, lent_to

CHECKPOINT = re.compile(r"checkpoint[A-Za-z0-9_.-]{0,223}\.safetensors")
"""Pattern of a checkpoint's name, at most 245 characters: a temporary file's name has ten more, and a file system allows 255."""
STATES, ROOM, LEAST_BYTES, MOST_BYTES = 4, 16, 2**30, 2**33
"""Size limit of a run's files: STATES copies of the backbone (weights, average, two moments) for each party and a server, times
ROOM; the limit is at least LEAST_BYTES and at most MOST_BYTES."""
CHECKPOINT_SECONDS = 1.0
"""The parent looks for new checkpoints of the contestant at this interval."""


class Outcome(NamedTuple):
    """A record and its path; `reused` means that the same spec was run before."""

    record: Record
    path: Path
    reused: bool


class Ending(NamedTuple):
    """How an attempt ended: the record's status, one line, and the tail of a traceback or log."""

    status: Status
    reason: str = ""
    traceback: str = ""


class Pair(Protocol):
    """Contestant and referee, in separate processes or in this one.

    `describe` and `ask` raise `Ended` when one of them fails.  `alarm` is called twice a second while they wait, until the
    `deadline` of `time.monotonic()`.  Both are outdated if a source file has changed since they started.
    """

    alarm: Callable[[], None]
    deadline: float
    watch: Watch
    predecessors: int
    contestant_folder: Path
    referee_folder: Path

    def describe(self) -> tuple[messages.ContestantDescribed, messages.RefereeDescribed]: ...
    def ask(self, order: Message, kind: type[M]) -> M: ...
    def is_outdated(self) -> bool: ...
    def stop(self, *, gracefully: bool = False) -> None: ...
    def log(self) -> str: ...


def most_bytes(parameters: int, silos: int) -> int:
    """Largest size of weights or of a checkpoint, in bytes, for a backbone with this many parameters of 4 bytes."""
    return min(MOST_BYTES, max(LEAST_BYTES, ROOM * STATES * 4 * parameters * (silos + 1)))


class Attempt:
    """One attempt and what is known about it so far, which is enough to write a record at any moment."""

    plugin_of, origin_of = staticmethod(plugin_of), staticmethod(origin_of)
    """Functions that find the origin of the record's code."""

    def __init__(
        self,
        request: RunRequest,
        home: Home,
        pair: Pair,
        *,
        force: bool = False,
        resume: bool = False,
        in_process: bool = False,
        registry: Registry | None = None,
    ) -> None:
        self.request, self.home, self.pair, self.store = request, home, pair, Store(home.records)
        self.force, self.resume, self.in_process = force, resume, in_process
        self.registry = registry or Registry(tuple(map(Path, request.plugins)))
        self.plugin = self.plugin_of(request, self.registry)
        self.started, self.clock = datetime.now(UTC), time.monotonic()
        self.facts: dict[str, Json] = {}
        self.profile = Profile()
        self.scores: tuple[Score, ...] = ()
        self.curve: tuple[CurvePoint, ...] = ()
        self.artifacts: dict[str, bytes] = {}
        self._superseded: list[Path] = []  # checkpoints that a record makes useless
        self._published: dict[str, tuple[int, int]] = {}
        self._own = PluginFolder(pair.contestant_folder, "run")
        self._looked = 0.0
        self._most_bytes, self._not_kept = LEAST_BYTES, ""
        self._went_on = False  # the run has checkpoints of an earlier process, whatever the contestant reports
        self._fitted = False
        self._waited_seconds = 0.0  # for another run's fit

    def find(self, expected: RunSpec | None = None) -> Outcome | None:
        """Resolve the request into a spec, and return its finished record, if there is one and `force` is not set."""
        try:
            self.contestant, self.referee = self.pair.describe()
            self.spec = self._spec()
        except Ended as end:
            raise CompbenchError(end.reason if end.usage else f"{end.reason}. {last_line(end.traceback)}".strip()) from end
        except ValidationError as error:
            raise CompbenchError(f"'{self.request.method}' describes itself wrongly: {first_of(error)}.") from error
        if expected is not None:
            check_same(self.spec, expected)
        return self._finished()

    def run(self, expected: RunSpec | None = None, begins: Callable[[], None] = lambda: None) -> Outcome:
        """The finished record of the request, or one of this attempt.  `begins` is called before the first stage.

        Raises:
            CompbenchError: the request itself is wrong; Unwritable: the store cannot be written.
            Busy: another process runs the same spec.
        """
        if (finished := self.find(expected)) is not None:
            return finished
        identity, stop = self.spec.identity, self.pair.alarm
        self.folder = self.home.runs / identity
        with exclusive(self.home.leases / f"{identity}.lease", self.spec, alarm=stop) as lease:
            if (finished := self._finished()) is not None:  # another process finished it while this one waited for the lease
                return finished
            self.store.sweep_up(self.spec, identity)
            self.store.check_writable()
            remove_parts(self.folder)

            def alarm() -> None:
                stop()
                lease.check()
                if time.monotonic() - self._looked >= CHECKPOINT_SECONDS:
                    self._publish_checkpoints()

            self.pair.alarm = alarm
            begins()
            ending = self._course()
            lease.check()
            return self._record(ending)

    def _finished(self) -> Outcome | None:
        record = None if self.force else self.store.finished(self.spec, equal_code().identities(self.spec))
        if record is None or (self.request.curve and not record.curve):
            return None
        if record.plugin.version == "file" != self.plugin.version:
            return None  # only a record of the installed method can be submitted
        return Outcome(record, self.store.path_of(record), reused=True)

    def _course(self) -> Ending:
        """Run the stages and return how they ended."""
        try:
            self._stages()
            return Ending("ok")
        except Ended as end:
            if end.stopped and (why := self._asked_to_stop()):
                return self._killed(why)
            self.pair.stop(gracefully=end.status == "timeout")
            self._publish_checkpoints()
            status = "failed" if end.status == "killed" or (end.status == "refused" and self._fitted) else end.status
            return Ending(status, end.reason, end.traceback or (self.pair.log() if status != "refused" else ""))
        except KeyboardInterrupt as stop:
            return self._killed(str(stop))
        except (Busy, Unwritable):
            raise
        except CompbenchError as error:
            self.pair.stop()
            return Ending("failed", str(error))
        except Exception as error:
            if self.in_process:  # a debugger should see it
                raise
            self.pair.stop()
            text = f"compbench itself failed: {type(error).__name__}: {error}"
            return Ending("failed", text, "".join(tracebacks.format_exception(error)))

    def _killed(self, why: str) -> Ending:
        with uninterrupted():
            self.pair.stop(gracefully=True)
            self._publish_checkpoints()
        again = "run the command again" if self.request.curve else self._not_kept or "continue with --resume"
        return Ending("killed", f"{why or WORDS[signal.SIGINT]}; {again}")

    def _asked_to_stop(self) -> str:
        """Why the run has to stop; "" if it may continue.  A scheduler's signal may reach a child before this process."""
        for _ in range(5):
            try:
                self.pair.alarm()
                time.sleep(0.1)
            except KeyboardInterrupt as stop:
                return str(stop) or WORDS[signal.SIGINT]
        return ""

    def _stages(self) -> None:
        """Prepare, open, fit, evaluate, measure, publish."""
        watch = self.pair.watch
        watch.worked()
        self._prepare()
        watch.waited()
        start = time.monotonic()
        stops = training_curve.stops(self.spec.budget.train_steps, self.request.curve)
        cost = self._fit(self._open(), stops)
        fit_seconds = time.monotonic() - start - self._waited_seconds
        self._fitted = True
        watch.worked()
        found = self._evaluate()
        watch.worked(sampling=True)
        measured = self.pair.ask(messages.Measure(), messages.Measured)
        self.facts = measured.facts
        self.profile = profile_of(
            measured.profile,
            found,
            watch,
            budget=self.spec.budget,
            fit_seconds=fit_seconds,
            shared=cost,
            num_silos=self.referee.num_silos,
        )
        self._publish()
        self.curve = tuple(map(self._scored_at, stops))

    def _prepare(self) -> None:
        """Let the referee prepare, then give the contestant checkpoints to resume from, compiled code and data."""
        prepared = self.pair.ask(messages.Prepare(), messages.Prepared)
        self._most_bytes = most_bytes(prepared.parameters, self.referee.num_silos)
        remove_tree(self._lent)
        for path in self._kept_checkpoints() if self.resume else ():
            with contextlib.suppress(CompbenchError):
                publish(path, self._lent / path.name)
                self._went_on = True
        if self._compiles:
            self._kept_code.lend(self._lent)
        for _ in self.home.shared_data():
            self.pair.alarm()

    def _open(self) -> Opened:
        referee = self.referee
        order = Open(source=referee.source, precision=self.spec.precision, device=referee.device, resume=self.resume)
        return self.pair.ask(order, Opened)

    def _fit(self, opened: Opened, stops: tuple[int, ...]) -> FitCost | None:
        """Fit, or give the contestant a shared fit; return the original cost of a shared fit."""
        if stops or opened.fit is None:
            self.pair.ask(Fit(stops=stops), Fitted)
            return None

        def waiting() -> None:
            self.pair.alarm()
            if time.monotonic() >= self.pair.deadline:
                raise Ended("timeout", "the run waited for another run's fit until its time limit")

        place = SharedFit(self.home, opened.fit, scope_of(self.request, self.registry, self.spec.device_class), waiting)
        asked = time.monotonic()
        with place.lock:
            self._waited_seconds = time.monotonic() - asked
            cost, start = place.cost(), time.monotonic()
            fitted = self.pair.ask(Fit(shared=str(place.path) if cost else "", cost=cost), Fitted)
            if fitted.shared:
                return cost
            made = fitted.cost.model_copy(update={"seconds": time.monotonic() - start})
            if not self._went_on:  # an earlier process paid for a part of the fit
                place.keep(self._own, made, limit=self._most_bytes)
        return None

    def _evaluate(self) -> Evaluated:
        """Collect the scores, the referee's pictures, and the samples if they are to be kept."""
        found, folder = self.pair.ask(messages.Evaluate(), Evaluated), self.pair.referee_folder
        end = film_at(self.spec.budget.train_steps)
        kept = {name: end if name == FILM else f"{name}.png" for name in found.pictures}
        self.artifacts = {own: read_limited(folder / f"{name}.png", MAX_PICTURE_BYTES) for name, own in kept.items()}
        self.scores = found.scores
        if self.request.keep_samples:
            with _failing_this_run():
                publish(folder / SAMPLES_FILE, self.folder / SAMPLES_FILE)
        return found

    def _scored_at(self, step: int) -> CurvePoint:
        """The ranking score, and the same score on seen cells, of the weights that the fit saved at a step."""
        weights = training_curve.path_of(self.pair.contestant_folder / "run", step)
        self.pair.ask(Fit(kept=str(weights)), Fitted)
        answer = self.pair.ask(messages.Evaluate(), Evaluated)
        if FILM in answer.pictures:
            self.artifacts[film_at(step)] = read_limited(self.pair.referee_folder / f"{FILM}.png", MAX_PICTURE_BYTES)
        found = answer.scores
        ranks = {name for score in found if score.primary for name in (score.name, score.name.replace("heldout", "seen"))}
        scores = {score.name: score.value for score in found if score.name in ranks and score.value is not None}
        return CurvePoint(step=step, scores=scores)

    @property
    def _lent(self) -> Path:
        return lent_to(self.pair.contestant_folder)

    @property
    def _compiles(self) -> bool:
        """Whether runs here compile; if not, a file of "compiled code" could only smuggle weights into the method's next run."""
        return self.spec.device_class != "cpu"

    @property
    def _kept_code(self) -> KeptCode:
        return KeptCode(self.home.cache, self.spec, self.plugin)

    def _publish(self) -> None:
        """Copy weights and trace into the run's folder, and compiled code into the cache; an irregular file fails the run."""
        if self._compiles:
            self._kept_code.keep(self._own)
        for name in ("model.safetensors", "trace.json"):
            if self._own.holds(name):
                with _failing_this_run():
                    self._own.publish(name, self.folder / name, limit=self._most_bytes)
        self._superseded = self._kept_checkpoints()

    def _publish_checkpoints(self) -> None:
        """Copy new checkpoints into the run's folder, so that a killed run can be resumed."""
        for name, status in self._own.files().items():
            found = status.st_mtime_ns, status.st_ino
            if CHECKPOINT.fullmatch(name) and self._published.get(name) != found:
                try:
                    self._own.publish(name, self.folder / name, limit=self._most_bytes)
                    self._published[name] = found
                except (OSError, CompbenchError) as error:
                    self._not_kept = error.reason if isinstance(error, Unwritable) else str(error)
        self._looked = time.monotonic()

    def _kept_checkpoints(self) -> list[Path]:
        """All checkpoints in the run's folder."""
        return [path for path in self.folder.glob("checkpoint*") if CHECKPOINT.fullmatch(path.name)]

    def _record(self, ending: Ending) -> Outcome:
        """Write the record; an impossible record becomes that of a failed run."""
        with uninterrupted() if ending.status == "killed" else held_back():
            try:
                record = judged(self._written_down(ending))
                check_scores(record)
            except CompbenchError as error:
                record = self._written_down(Ending("failed", f"the task returned an impossible score: it {error}"))
            except (TypeError, ValueError) as error:  # the contestant's self-report does not fit a record
                self.facts, self.profile = {}, Profile()
                why = f"the contestant's self-report is invalid: {str(error)[:500]}"
                record = self._written_down(Ending("failed", why, self.pair.log()))
            found = self.store.commit(record, self.artifacts if record.status == "ok" else {})
            for path in self._superseded if found.status == "ok" else ():
                path.unlink(missing_ok=True)
            return Outcome(found, self.store.path_of(found), reused=False)

    def _written_down(self, ending: Ending) -> Record:
        failure = Failed(reason=ending.reason, traceback=ending.traceback)  # shortened, and without control characters
        card = self.request.card and self.request.card.number
        known = {"device": self.spec.device_class, "card": card, "slots": self.request.slots}
        known["predecessors"] = self.pair.predecessors
        own = {name: getattr(self, name) for name in ("spec", "profile", "plugin", "code", "in_process")}
        own |= {name: bool(self.facts.get(name, False)) for name in ("pooled_silos", "resumed")}
        own["resumed"] |= self._went_on
        own |= {"scores": self.scores, "curve": self.curve} if ending.status == "ok" else {}
        return Record(
            **own,
            identity=self.spec.identity,
            attempt=1,  # `commit` sets the number
            status=ending.status,
            reason=failure.reason,
            traceback=failure.traceback,
            environment=environment_of(self.facts, sandboxed=not self.in_process, **known),
            oracle=self.contestant.oracle,
            notes=self.facts.get("notes", {}),
            losses=self.facts.get("losses", ()),
            tuning=self.request.tuning,
            given=tuple(sorted(self.request.overrides)),
            sealed=self.request.sealed,
            shots=self.referee.shots,
            structure=self.facts.get("structure"),
            started=self.started.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self.clock,
        )

    def _spec(self) -> RunSpec:
        """Make the spec from the facts of parent and referee; only settings and version come from the contestant's answer."""
        contestant, referee, request = self.contestant, self.referee, self.request
        if contestant.file_sha256 != self.plugin.file_sha256:
            raise CompbenchError(f"the file of '{request.method}' was changed while it was being loaded; run it again.")
        if (contestant.budget, contestant.task_settings) != (referee.budget, referee.task_settings):
            raise CompbenchError(f"'{request.method}' and the referee disagree about the task's settings or budget.")
        digest, self.code = self.origin_of(request, self.registry, referee.metrics, referee.device_class)
        if self.pair.is_outdated():
            raise CompbenchError(
                f"a source file was changed while '{request.method}' and '{request.task}' were loaded; run it again."
            )
        asked = {name: getattr(request, name) for name in ("task", "method", "preset", "seed")}
        names = ("task_version", "task_settings", "budget", "budget_changed", "device_class", "precision", "metrics")
        found = {name: getattr(referee, name) for name in names}
        found |= {"source": referee.source.kind, "fingerprint": referee.source.fingerprint}
        own = {"method_version": contestant.method_version, "settings": contestant.settings}
        return RunSpec(**asked, **found, **own, code=digest)


@contextlib.contextmanager
def _failing_this_run() -> Iterator[None]:
    """Turn an unwritable folder of this run into a failure of this run only; the next run may succeed."""
    try:
        yield
    except Unwritable as error:
        raise CompbenchError(error.reason) from error


@contextlib.contextmanager
def exclusive(path: Path, spec: RunSpec, *, alarm: Callable[[], None] = lambda: None) -> Iterator[Lease]:
    """Hold the lease of a run.  Raises Busy if another process is running the same spec."""
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
