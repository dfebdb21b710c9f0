"""The half hour's steps end in time, whatever they do, and what was made is packed."""

from __future__ import annotations

import sys
import tarfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "gpu"))
import half_hour

from compbench.cli.main import main


def python(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", body)


def test_steps_are_stopped_at_their_limit_and_none_begins_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_hour, "GRACE_SECONDS", 0.2)
    steps = [
        half_hour.Step(30, python("print('hello')")),
        half_hour.Step(30, python("raise SystemExit(3)")),
        half_hour.Step(30, ("no-such-command",)),
        half_hour.Step(1.0, python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")),
        half_hour.Step(60, python("import time; time.sleep(60)")),
        half_hour.Step(60, python("print('never')")),
    ]
    begin = time.monotonic()
    statuses = half_hour.run_steps(steps, tmp_path / "log.txt", seconds=4)
    assert statuses == [0, 3, 127, None, None, None]
    assert time.monotonic() - begin < 10
    log = (tmp_path / "log.txt").read_text()
    assert "hello" in log
    assert "\nnever" not in log


def test_what_is_made_is_packed_while_a_step_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_hour, "PACK_SECONDS", 0.1)
    times: list[float] = []
    step = half_hour.Step(30, python("import time; time.sleep(1)"))
    assert half_hour.run_steps([step], tmp_path / "log.txt", seconds=60, meanwhile=lambda: times.append(0.0)) == [0]
    assert len(times) > 3


def test_published_records_are_taken_for_done_and_never_over_what_is_there(tmp_path: Path) -> None:
    published, records = tmp_path / "published", tmp_path / "home" / "records"
    published.mkdir()
    (published / "one.json").write_text("published")
    (published / "two.json").write_text("published")
    records.mkdir(parents=True)
    (records / "two.json").write_text("made here")
    assert half_hour.take_published(records, published) == {"one.json", "two.json"}
    assert [(records / name).read_text() for name in ("one.json", "two.json")] == ["published", "made here"]


def test_without_a_driver_the_card_is_not_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with half_hour.shared_card() as shared:
        assert not shared


def test_the_service_is_started_and_asked_to_quit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then echo started; else cat; fi >> {tmp_path}/said\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with half_hour.shared_card() as shared:
        assert shared
    assert (tmp_path / "said").read_text() == "started\nquit\n"


def test_records_are_packed_whole(tmp_path: Path) -> None:
    (tmp_path / "records" / "pictures").mkdir(parents=True)
    (tmp_path / "records" / "one.json").write_text("{}")
    (tmp_path / "records" / "pictures" / "one.png").write_bytes(b"x")
    assert half_hour.pack(tmp_path / "records", tmp_path / "records.tgz") == 2
    with tarfile.open(tmp_path / "records.tgz") as archive:
        assert sorted(archive.getnames()) == ["records/one.json", "records/pictures/one.png"]
    assert half_hour.pack(tmp_path / "records", tmp_path / "new.tgz", frozenset(["one.json"])) == 1
    assert half_hour.pack(tmp_path / "nothing", tmp_path / "empty.tgz") == 0


@pytest.mark.parametrize("stage", ["first", "core", "speed", "paper"])
def test_every_command_of_ours_is_one_that_there_is(stage: str, tmp_path: Path) -> None:
    verbs = [
        step.words[3:] for step in half_hour.steps_of(stage, "cuda", tmp_path) if step.words[1:3] == ("-m", "compbench.cli.main")
    ]
    assert verbs
    for verb, *words in verbs:
        options = {parameter.opts[0] for parameter in main.commands[verb].params} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= options
        assert CliRunner().invoke(main, [verb, "--help"]).exit_code == 0
    for step in half_hour.steps_of(stage, "cuda", tmp_path):
        files = [word for word in step.words if word.endswith(".py")]
        assert all((half_hour.ROOT / file).is_file() for file in files)
