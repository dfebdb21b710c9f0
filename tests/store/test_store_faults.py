"""A store under sixteen writers, killed writers, runs that were taken over and a disk that fills up in the middle of a file."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.sample_records import record

from compbench.api.interfaces import Source
from compbench.api.schemas import Profile, Record, RunRequest, RunSpec
from compbench.registry.checkout import scope_of
from compbench.registry.meaning import code_of
from compbench.registry.registry import Registry
from compbench.runner import attempt as attempt_module
from compbench.runner.attempt import Attempt
from compbench.runner.audit import Watch
from compbench.runner.checkpoints import FileCheckpoints
from compbench.runner.fit_cache import SharedFit
from compbench.runner.messages import (
    ContestantDescribed,
    Evaluated,
    Fit,
    FitCost,
    Fitted,
    M,
    Measured,
    Message,
    Opened,
    Prepared,
    RefereeDescribed,
)
from compbench.runner.processes import Ended
from compbench.store.lease import BEAT_SECONDS, Lease, Lost, take
from compbench.store.records import Store, Taken
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.home import Home

TESTS = Path(__file__).parents[1]


def test_of_sixteen_writers_of_one_attempt_one_wins_and_its_picture_is_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outcomes: list[object] = []
    together = threading.Barrier(16)

    def write(number: int) -> None:
        together.wait()
        try:
            store.write(record(), {"samples.png": b"%d" % number})
            outcomes.append(number)
        except Taken as taken:
            outcomes.append(taken)

    with ThreadPoolExecutor(16) as writers:
        list(writers.map(write, range(16)))
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, int)]
    (found,), problems = store.read()
    assert problems == []
    assert found.artifacts[0].sha256 == hashlib.sha256(b"%d" % winner).hexdigest()
    assert (tmp_path / found.artifacts[0].name).read_bytes() == b"%d" % winner
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_writer_left_is_swept_up_and_its_number_used_again(tmp_path: Path) -> None:
    code = "import os, signal, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
    code += "from support.sample_records import record; from compbench.store import records\n"
    code += "records.dump = lambda record: os.kill(os.getpid(), signal.SIGKILL)\n"
    code += "records.Store(Path(sys.argv[1])).write(record(), {'samples.png': b'half'})\n"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(TESTS)], check=False)
    assert killed.returncode == -9
    store, one = Store(tmp_path), record()
    assert store.paths() == []
    assert store.next_attempt(one.spec, one.identity) == 2
    other = record(seed=1)
    store.write(other, {"samples.png": b"whole"})
    store.sweep_up(other.spec, other.identity)
    store.sweep_up(one.spec, one.identity)
    assert store.next_attempt(one.spec, one.identity) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{other.name}.json", f"{other.name}.samples.png"]


def test_a_record_that_the_disk_has_no_room_for_is_absent_and_can_be_written_later(tmp_path: Path) -> None:
    code = "import resource, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
    code += "from support.sample_records import record; from compbench.store.records import Store\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    code += "try: Store(Path(sys.argv[1])).write(record(), {'samples.png': b'small'})\n"
    code += "except Exception as error: print(type(error).__name__, error)\n"
    full = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(TESTS)], capture_output=True, text=True, check=True)
    assert full.stdout.startswith(f"{Unwritable.__name__} could not write {tmp_path}")
    store = Store(tmp_path)
    assert store.read() == ([], [])
    store.write(record(), {"samples.png": b"small"})
    assert len(store.read()[0]) == 1


def ours() -> Record:
    """A record of the method that is installed here."""
    return record(code=code_of(Registry(), method="factored", task="shapes3d-heavy", metrics=()).digest)


class Played:
    """The two sides of a run, played: `during` happens in the middle of the fit, which then fails."""

    predecessors, deadline, fit = 0, float("inf"), None
    outdated = False

    def __init__(self, folder: Path, during: Callable[[], None]) -> None:
        self.contestant_folder, self.referee_folder = folder / "contestant", folder / "referee"
        self.alarm, self._during = lambda: None, during
        self.watch = Watch(lambda stage, done, total: None)

    def describe(self) -> tuple[ContestantDescribed, RefereeDescribed]:
        spec = ours().spec
        same = {"budget": spec.budget, "task_settings": spec.task_settings}
        own = {
            "settings": spec.settings,
            "method_version": 1,
            "oracle": False,
            "file_sha256": Registry().entry("methods", "factored").sha256,
        }
        source = Source(kind=spec.source, name="renderer", fingerprint=spec.fingerprint)
        task = {"task_version": spec.task_version, "budget_changed": spec.budget_changed, "metrics": spec.metrics}
        where = {"device": "cpu", "device_class": spec.device_class, "precision": spec.precision, "source": source}
        return ContestantDescribed(**same, **own), RefereeDescribed(**same, **task, **where)

    def ask(self, order: Message, kind: type[M]) -> M:
        if not isinstance(order, Fit):
            return next(answer for answer in (Prepared(), Opened(fit=self.fit)) if isinstance(answer, kind))
        self._during()
        self.alarm()
        raise Ended("failed", "no luck")

    def is_outdated(self) -> bool:
        return self.outdated

    def stop(self, *, gracefully: bool = False) -> None: ...

    def log(self) -> str:
        return ""


class PlayedToTheEnd(Played):
    """The two sides of a run that goes well."""

    def ask(self, order: Message, kind: type[M]) -> M:
        self.alarm()
        answers = (
            Prepared(),
            Opened(fit=self.fit),
            Fitted(cost=FitCost(counts={"optimiser_steps": 1.0})),
            Evaluated(scores=record().scores, stages=(), referee_memory_bytes=None),
            Measured(profile={}, facts={}),
        )
        return next(answer for answer in answers if isinstance(answer, kind))


def attempt(home: Path, during: Callable[[], None]) -> Attempt:
    asked = RunRequest(task="shapes3d-heavy", method="factored", home=str(home))
    return Attempt(asked, Home(home), Played(home / "scratch", during))


def sound(home: Path, *, resume: bool = False) -> Attempt:
    asked = RunRequest(task="shapes3d-heavy", method="factored", home=str(home))
    return Attempt(asked, Home(home), PlayedToTheEnd(home / "scratch", lambda: None), resume=resume)


def test_a_run_that_another_machine_took_over_writes_no_record(tmp_path: Path) -> None:
    held: list[Lease] = []

    def taken() -> None:
        (path,) = (tmp_path / "leases").glob("*.lease")
        path.unlink()
        held.append(take(path))
        end = time.monotonic() + 10 * BEAT_SECONDS  # the first holder looks at its file once a beat
        while time.monotonic() < end:
            one.pair.alarm()
            time.sleep(0.1)

    one = attempt(tmp_path, taken)
    with pytest.raises(Lost, match="another process took over the run after a long silence"):
        one.run()
    assert Store(tmp_path / "records").paths() == []
    held[0].release()
    assert attempt(tmp_path, lambda: None).run().record.attempt == 1


def test_a_run_whose_code_was_changed_while_it_was_loaded_is_refused(tmp_path: Path) -> None:
    one = attempt(tmp_path, lambda: None)
    one.pair.outdated = True
    with pytest.raises(CompbenchError, match="a source file was changed while 'factored' and 'shapes3d-heavy' were loaded"):
        one.run()
    assert Store(tmp_path / "records").paths() == []


def test_a_bug_of_ours_is_a_failed_record_with_its_traceback(tmp_path: Path) -> None:
    def bug() -> None:
        raise ZeroDivisionError("of ours\x1b[2J")

    found = attempt(tmp_path, bug).run().record
    assert (found.status, found.reason) == ("failed", "compbench itself failed: ZeroDivisionError: of ours [2J")
    assert "in bug" in found.traceback


def test_a_record_that_came_in_meanwhile_only_moves_the_number_of_the_attempt(tmp_path: Path) -> None:
    one = attempt(tmp_path, lambda: None)
    number_of = one.store.next_attempt

    def overtaken(spec: RunSpec, identity: str) -> int:
        """The number, but before it is used someone copies a record of the same run into the store."""
        number = number_of(spec, identity)
        if number == 1:
            Store(tmp_path / "records").write(ours())
        return number

    one.store.next_attempt = overtaken
    assert one.run().record.attempt == 2
    assert len(one.store.read()[0]) == 2


def test_a_store_that_is_a_link_to_nothing_is_refused_before_the_fit(tmp_path: Path) -> None:
    (tmp_path / "records").symlink_to(tmp_path / "unmounted")
    fits: list[str] = []
    with pytest.raises(Unwritable, match="records: it is not a folder, or it is a link that leads to none"):
        attempt(tmp_path, lambda: fits.append("begun")).run()
    assert fits == []


def test_a_store_that_became_a_file_is_not_taken_for_an_attempt_of_another_writer(tmp_path: Path) -> None:
    (tmp_path / "records").touch()
    with pytest.raises(Unwritable, match="records: it is not a folder"):
        Store(tmp_path / "records").write(record())


def test_a_store_that_cannot_be_written_is_refused_before_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("compbench.store.records.tempfile.TemporaryFile", full)
    with pytest.raises(Unwritable, match="records: No space left on device"):
        attempt(tmp_path, lambda: None).run()


def test_the_time_limit_holds_while_another_run_makes_the_fit(tmp_path: Path) -> None:
    one = attempt(tmp_path, lambda: None)
    one.pair.fit, one.pair.deadline = {"a": 1}, time.monotonic() + 0.3
    other = SharedFit(one.home, one.pair.fit, scope_of(one.request, one.registry, ours().spec.device_class), lambda: None)
    with other.lock:
        found = one.run().record
    assert (found.status, found.reason) == ("timeout", "the run waited for another run's fit until its time limit")


def test_the_wait_for_another_run_s_fit_is_no_part_of_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = [0.0], []

    @contextlib.contextmanager
    def waited(path: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
        clock[0] += 1000.0
        yield

    def profile(*_: object, fit_seconds: float, **__: object) -> Profile:
        seen.append(fit_seconds)
        return Profile()

    monkeypatch.setattr(attempt_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(attempt_module, "profile_of", profile)
    monkeypatch.setattr("compbench.runner.fit_cache.held", waited)
    one = sound(tmp_path)
    one.pair.fit = {"a": 1}
    assert one.run().record.status == "ok"
    assert seen == [0.0]


@pytest.mark.parametrize("resume", [False, True])
def test_a_fit_of_which_an_earlier_process_did_a_part_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    kept = []
    monkeypatch.setattr(SharedFit, "keep", lambda *given, **options: kept.append(given))
    checkpoint(tmp_path)
    one = sound(tmp_path, resume=resume)
    one.pair.fit = {"a": 1}
    assert one.run().record.resumed is resume
    assert len(kept) == (not resume)


def checkpoint(home: Path) -> Path:
    """A checkpoint that an earlier process of the run left."""
    path = home / "runs" / ours().identity / "checkpoint.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"steps")
    return path


def test_a_checkpoint_is_deleted_once_its_record_is_written_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint(tmp_path)

    def full(*_: object) -> Record:
        raise Unwritable("full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", full)
        with pytest.raises(Unwritable):
            sound(tmp_path, resume=True).run()
    assert path.exists()
    assert sound(tmp_path, resume=True).run().record.status == "ok"
    assert not path.exists()


def test_a_run_removes_the_parts_of_checkpoints_that_a_killed_one_left(tmp_path: Path) -> None:
    left = tmp_path / "runs" / ours().identity / ".checkpoint.safetensors.0123abcd"
    left.parent.mkdir(parents=True)
    left.touch()
    one = attempt(tmp_path, lambda: None)
    one.run()
    assert one.folder == left.parent
    assert not left.exists()


@pytest.mark.parametrize(("curve", "again"), [(0, "continue with --resume"), (2, "run the command again")])
def test_a_killed_run_says_how_it_goes_on(tmp_path: Path, curve: int, again: str) -> None:
    def stopped() -> None:
        raise KeyboardInterrupt

    one = attempt(tmp_path, stopped)
    one.request = one.request.model_copy(update={"curve": curve})
    assert one.run().record.reason == f"stopped by Ctrl-C; {again}"


def test_the_checkpoint_of_a_part_with_a_long_name_is_kept(tmp_path: Path) -> None:
    one = attempt(tmp_path, lambda: FileCheckpoints(folder / "checkpoint.safetensors", resume=False).part("x" * 222).save({}, {}))
    folder = one.pair.contestant_folder / "run"
    folder.mkdir(parents=True)
    one.run()
    assert [path.name for path in one.folder.iterdir()] == [f"checkpoint.{'x' * 222}.safetensors"]


def test_a_damaged_checkpoint_says_to_run_without_resume(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"damaged")
    with pytest.raises(CompbenchError, match=r"^the run's checkpoint.safetensors is damaged; run it again without --resume.$"):
        FileCheckpoints(tmp_path / "checkpoint.safetensors", resume=True).load()
