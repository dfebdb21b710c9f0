"""The quarter hour's steps end in time and go on, whatever they do; the fastest way that did what it says is the best one."""

from __future__ import annotations

import json
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "gpu"))
import faults
import quarter_hour
import steps
import throughput
import torch
from steps import Step, pack, run_steps, shared_card, take_published
from ways import Way

from compbench.cli.main import main


def python(name: str, seconds: float, body: str) -> Step:
    return Step(name, seconds, (sys.executable, "-c", body))


def test_a_step_that_fails_or_hangs_does_not_end_the_others_and_each_leaves_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "GRACE_SECONDS", 0.2)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    plan = [
        python("fails", 30, "print('hello'); raise SystemExit(3)"),
        Step("missing", 30, ("no-such-command",)),
        python("hangs", 0.5, stubborn),
        python("well", 30, "print('here')"),
    ]
    begin = time.monotonic()
    endings = run_steps(plan, tmp_path, 60)
    assert [ending.how for ending in endings] == ["failed", "failed", "too long", "ok"]
    assert time.monotonic() - begin < 10
    assert "hello" in (tmp_path / "fails.log").read_text()
    assert json.loads((tmp_path / "fails.json").read_text())["status"] == 3


def test_a_second_call_goes_on_with_what_was_cut_off_and_repeats_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(steps, "LEAST_SECONDS", 0.1)
    count = "from pathlib import Path; Path({!r}).open('a').write('x')"
    done, cut = (str(tmp_path / name) for name in ("done", "cut"))
    plan = [python("done", 30, count.format(done)), python("cut", 30, count.format(cut) + "; import time; time.sleep(3)")]
    plan += [python("never", 30, "")]
    assert [ending.how for ending in run_steps(plan, tmp_path, 2.0)] == ["ok", "cut off"]
    plan[1] = python("cut", 30, count.format(cut))
    assert [ending.how for ending in run_steps(plan, tmp_path, 30)] == ["ok", "ok", "ok"]
    assert (Path(done).read_text(), Path(cut).read_text()) == ("x", "xx")


def test_published_records_are_taken_for_done_and_never_over_what_is_there(tmp_path: Path) -> None:
    published, records = tmp_path / "published", tmp_path / "home" / "records"
    published.mkdir()
    (published / "one.json").write_text("published")
    (published / "two.json").write_text("published")
    records.mkdir(parents=True)
    (records / "two.json").write_text("made here")
    assert take_published(records, published) == {"one.json", "two.json"}
    assert [(records / name).read_text() for name in ("one.json", "two.json")] == ["published", "made here"]


def test_the_card_is_shared_where_there_is_a_service_and_it_is_asked_to_quit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with shared_card() as shared:
        assert not shared
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(f'#!/bin/sh\nif [ "$1" = -d ]; then echo started; else cat; fi >> {tmp_path}/said\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with shared_card() as shared:
        assert shared
    assert (tmp_path / "said").read_text() == "started\nquit\n"


def test_records_are_packed_whole_without_those_that_were_published(tmp_path: Path) -> None:
    (tmp_path / "records" / "pictures").mkdir(parents=True)
    (tmp_path / "records" / "one.json").write_text("{}")
    (tmp_path / "records" / "pictures" / "one.png").write_bytes(b"x")
    assert pack(tmp_path / "records", tmp_path / "records.tgz") == 2
    with tarfile.open(tmp_path / "records.tgz") as archive:
        assert sorted(archive.getnames()) == ["records/one.json", "records/pictures/one.png"]
    assert pack(tmp_path / "records", tmp_path / "new.tgz", frozenset(["one.json"])) == 1
    assert pack(tmp_path / "nothing", tmp_path / "empty.tgz") == 0


def row(name: str, way: str, ms: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "way": way, "ms_a_step": ms, "compiled": 1.0, **more}


def test_the_best_way_is_the_fastest_that_neither_failed_nor_ran_uncompiled() -> None:
    found = [
        row("factored", "harness", 20.0),
        row("factored", "whole", 15.0),
        row("factored", "autotuned", 3.0, compiled=0.0),
        {"name": "factored", "way": "forced-layout", "error": "RuntimeError: no | such\nthing"},
        row("peers", "harness", 9.0),
    ]
    assert {name: one["way"] for name, one in quarter_hour.best(found).items()} == {"factored": "whole", "peers": "harness"}
    text = quarter_hour.summary([], found)
    assert "| factored | whole | 15 | 0.75 |" in text
    assert text.count("| best |") == 2
    assert text.count("not compiled") == 1
    assert "no \\| such thing" in text


def test_a_row_measured_again_counts_once(tmp_path: Path) -> None:
    lines = [row("peers", "harness", 9.0), row("peers", "harness", 8.0)]
    (tmp_path / "figures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [one["ms_a_step"] for one in quarter_hour.figures(tmp_path / "figures.jsonl")] == [8.0]
    assert quarter_hour.figures(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize("small", [False, True])
def test_every_step_of_the_plan_is_a_command_that_there_is(small: bool, tmp_path: Path) -> None:
    plan = quarter_hour.plan("cuda", tmp_path, small=small)
    names = [step.name for step in plan]
    assert len(set(names)) == len(names)
    verbs = [step.words[3:] for step in plan if step.words[1:3] == ("-m", "compbench.cli.main")]
    for verb, *words in verbs:
        options = {parameter.opts[0] for parameter in main.commands[verb].params} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= options
    assert {verb[0] for verb in verbs} == {"doctor", "profile", "sweep"}
    assert CliRunner().invoke(main, ["profile", "--help"]).exit_code == 0
    assert all((steps.ROOT / word).is_file() for step in plan for word in step.words if word.endswith(".py"))


def test_measurements_and_faults_of_the_plan_are_those_that_the_scripts_know() -> None:
    labels, rows = {way.label for way in Way}, {one.name for one in throughput.ROWS}
    assert quarter_hour.WAYS.keys() <= rows
    for row_name, ways in quarter_hour.WAYS.items():
        assert ways[0] == "harness"
        assert set(ways) <= labels, row_name
    assert set(quarter_hour.FIRST) <= {(row_name, way) for row_name, ways in quarter_hour.WAYS.items() for way in ways}
    assert quarter_hour.FAULTS.keys() == {*faults.STEPS, "stop"}


def test_what_keeps_a_silo_s_data_alive_is_named() -> None:
    from torch.multiprocessing.reductions import StorageWeakRef

    x1 = torch.randn(4, 3)
    lent, hidden = [StorageWeakRef(x1.untyped_storage())], {"cache": [x1]}
    del x1
    lines = faults.keepers(lent)
    assert lines[0] == "1 storages are alive, and 1 tensors of them are known to Python"
    assert any("builtins.list" in line for line in lines)
    assert any("'cache'" in line for line in lines)
    hidden.clear()
    assert faults.keepers(lent) == ["0 storages are alive, and 0 tensors of them are known to Python"]
