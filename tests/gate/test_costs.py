"""What `compbench profile` measures, and that two measurements never share a machine."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from store.test_profiles import made
from support.sample_records import record

from compbench.cli.main import main
from compbench.gate import costs, sides
from compbench.gate.sides import CellOptions, Side
from compbench.gate.suite import Cell
from compbench.store.profiles import FEWEST, CostProfile
from compbench.system.errors import CompbenchError

SLEEPER = '''"""Sleeps 20 ms a step and 60 ms a request; its first request takes much longer."""
import time
import torch
from compbench.system.errors import Cancelled
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Method, MethodSettings

answered = []
time.perf_counter = time.process_time = lambda: 0.0  # the probe has bound its clocks before


def fit(settings, problem, ctx):
    for step in range(problem.budget.train_steps):
        if ctx.cancelled():
            raise Cancelled("stopped")
        time.sleep(0.02)
        ctx.progress(step + 1, problem.budget.train_steps)
    return torch.nn.Linear(2, 2)


def sample(settings, layer, request, ctx):
    time.sleep(0.06 if answered else 1.0)
    answered.append(1)
    return request.x0


@hookimpl
def compbench_methods():
    return (Method(name="sleeper", settings=MethodSettings, fit=fit, sample=sample),)
'''
CELL = Cell(method="sleeper", task="gmm-id", preset="quick", seeds="0")


def side_of(folder: Path) -> Side:
    (folder / "sleeper.py").write_text(SLEEPER)
    return Side("head", Path(sys.executable), folder / "home", (folder / "sleeper.py",))


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return side_of(tmp_path)


ASKED = CellOptions(seconds=0.3, threads=1)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What real processes say: what is measured, and the measurements of two of them."""
    side = side_of(tmp_path_factory.mktemp("side"))
    return sides.described(side, CELL, ASKED), sides.costs(side, CELL, ASKED, 2, on_gpu=False)


def test_each_process_finds_the_known_seconds_of_a_step_and_of_requests(said: tuple) -> None:
    what, found = said
    assert (what["rows"], what["threads"], what["spec"]["source"]) == (1024, 1, "embedded")
    for each in found:
        seconds = each["seconds"]
        assert 0.02 <= seconds["train"] < 0.04
        assert 0.06 <= min(seconds["single"]) < 0.12  # the long first one was warm-up: each process is fresh
        assert max(seconds["single"]) < 0.9
        assert 0.06 <= min(seconds["batch"]) < 0.12
        assert each["peak_memory_bytes"] > 2**26


def test_a_process_that_fails_is_named_and_what_others_measured_does_not_count(side: Side) -> None:
    side.plugins[0].write_text(SLEEPER.replace("    answered.append(1)", "    raise ValueError('out of paint')"))
    with pytest.raises(sides.Unable, match="ValueError: out of paint"):
        sides.costs(side, CELL, ASKED, 2, on_gpu=False)


def test_on_a_gpu_each_process_starts_anew_after_one_that_does_not_count(side: Side, monkeypatch) -> None:
    numbers = iter(range(9))
    monkeypatch.setattr(sides, "_probe", lambda *_: next(numbers))
    assert sides.costs(side, CELL, ASKED, 5, on_gpu=True) == [1, 2, 3, 4, 5]


def patched(monkeypatch, what: dict[str, Any], answers: list[dict[str, Any]]) -> list[int]:
    """`sides` says these; returns a list that receives how many processes were asked to measure."""
    counts: list[int] = []
    monkeypatch.setattr(costs.sides, "described", lambda *_: what)
    monkeypatch.setattr(costs.sides, "costs", lambda side, cell, asked, count, on_gpu: counts.append(count) or answers)
    return counts


def test_a_profile_has_the_median_of_each_process_and_the_percentile_of_all_requests(
    side: Side, said: tuple, monkeypatch
) -> None:
    what, (first, _) = said
    answers = [{**first, "seconds": {"single": [0.1, 0.1, 0.2], "batch": [t, t, t + 1]}} for t in (5.0, 1.0, 4.0, 2.0, 3.0)]
    patched(monkeypatch, what, answers)
    lines: list[str] = []
    found = costs.measure(side, CELL, ASKED, repetitions=5, listener=lines.append)
    batch = found.request
    assert batch.medians.values == (5.0, 1.0, 4.0, 2.0, 3.0)
    assert (batch.medians.median, batch.medians.low, batch.medians.high, batch.p95, batch.count) == (3.0, 1.0, 5.0, 6.0, 15)
    assert (found.single.medians.median, found.single.p95) == (0.1, 0.2)
    assert found.train_step_seconds is None  # a fit without steps
    assert (len(lines), found.spec.seed, found.spec.method) == (2, 0, "sleeper")
    assert not found.model_copy(update={"other_cores": None}).alone  # unknown is not alone


def test_what_was_measured_alone_is_not_measured_again_and_other_code_is(side: Side, said: tuple, monkeypatch) -> None:
    what, (first, _) = said
    counts = patched(monkeypatch, what, [{**first, "other_cores": 0.0}] * FEWEST)
    found = costs.measure(side, CELL, ASKED, repetitions=FEWEST)
    assert found.alone
    assert costs.measure(side, CELL, ASKED, repetitions=FEWEST, known=[found]) == found
    assert counts == [FEWEST]
    side.plugins[0].write_text(SLEEPER.replace("0.06", "0.07"))
    assert costs.measure(side, CELL, ASKED, repetitions=FEWEST, known=[found]) is not found
    assert counts == [FEWEST, FEWEST]


def test_a_profile_takes_what_runs_made_of_the_data(tmp_path: Path, monkeypatch) -> None:
    made = tmp_path / "references" / "data" / "made-of-data.npz"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"once")
    found = []

    def look(side: Side, cell: Cell, *_: object, **__: object) -> None:
        found.append((sides.folder_of(side, cell) / "cache" / "data" / made.name).read_bytes())
        raise sides.Unable("seen enough")

    monkeypatch.setattr(costs, "measure", look)
    monkeypatch.setattr(costs.alone.__wrapped__, "__defaults__", (tmp_path,))
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    assert CliRunner().invoke(main, ["profile", "--method", "mono", "--task", "gmm-id"]).exit_code == 1
    assert found == [b"once"]


def test_a_measurement_that_cannot_be_written_is_printed(tmp_path: Path, monkeypatch) -> None:
    found = made(record())
    (tmp_path / "profiles").touch()  # a file where the folder should be
    monkeypatch.setattr(costs, "measure", lambda *_, **__: found)
    monkeypatch.setattr(costs.alone.__wrapped__, "__defaults__", (tmp_path,))
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["profile", "--method", "mono", "--task", "gmm-id", "--json"])
    assert result.exit_code == 2
    assert CostProfile.model_validate_json(result.stdout) == found
    assert "could not write" in result.stderr


HOLDER = """
import sys, pathlib
from compbench.gate.costs import alone
with alone(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_profiles_at_once_on_one_machine_are_refused_in_one_line(tmp_path: Path, monkeypatch) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(CompbenchError, match="another `compbench profile` is measuring"), costs.alone(tmp_path):
        pass
    monkeypatch.setattr(costs.alone.__wrapped__, "__defaults__", (tmp_path,))
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(main, ["profile", "--method", "mono", "--task", "gmm-id"])
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    other.kill()  # however it ends, the lock ends with it
    other.communicate()
    with costs.alone(tmp_path):
        pass


def test_a_method_that_fails_is_said_and_ends_with_status_1(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('planted')")
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(costs.alone.__wrapped__, "__defaults__", (tmp_path,))
    words = ["profile", "--method", "broken", "--plugin", str(tmp_path / "broken.py"), "--task", "gmm-id", "--quiet"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "broken on gmm-id could not be measured: " in result.output
    assert not (tmp_path / "home" / "profiles").exists()


def test_a_pair_that_cannot_work_is_said_and_not_measured(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(costs.alone.__wrapped__, "__defaults__", (tmp_path,))
    result = CliRunner().invoke(main, ["profile", "--method", "dcfm-a", "--task", "gmm-id", "--preset", "smoke", "--quiet"])
    assert result.exit_code == 1
    assert "dcfm-a on gmm-id could not be measured: " in result.output
    assert "the task has one silo" in result.output
    assert not (tmp_path / "home" / "profiles").exists()
