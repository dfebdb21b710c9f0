"""Processes that take turns: what a slice answers, what a pair makes of it, and what remains of a process that fails."""

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.toy_method import TOY, toy

from compbench.gate import turns
from compbench.gate.probe import Turns
from compbench.gate.sides import CellOptions, Side, Unable
from compbench.gate.turns import Racer, Unraced, run_pair, worsening
from compbench.system.errors import Cancelled


class Toy:
    """A subject whose step takes 1 s and whose request takes 2 s by a clock of its own."""

    task, device = SimpleNamespace(event=SimpleNamespace(kind="vector")), torch.device("cpu")

    def __init__(self, reports: bool = True) -> None:
        self.now, self.reports = 0.0, reports

    def fit(self, steps, *, progress=lambda done, total: None, cancelled=lambda: False):
        for done in range(1, min(steps, 50) + 1):
            if cancelled():
                raise Cancelled("stopped")
            self.now += 1.0
            if self.reports:
                progress(done, steps)

    def request(self, rows):
        return None

    def sample(self, model, request):
        self.now += 2.0


def served(subject: Toy, *lines: str, seconds: float = 3.0) -> list[float | None]:
    asked, answers = iter([*lines, ""]), []
    Turns(subject, lambda: subject.now, seconds, lambda: next(asked), answers.append).serve()
    return answers


def test_slices_answer_with_the_seconds_of_a_step_and_of_a_request() -> None:
    assert served(Toy(), "train", "train", "sample", "sample") == [1.0, 1.0, 2.0, 2.0]


def test_waiting_between_slices_is_no_part_of_them() -> None:
    subject = Toy()
    lines = iter(["train", "train", "train", "sample", ""])

    def receive() -> str:
        subject.now += 1000.0  # the other process's turn
        return next(lines)

    answers = []
    Turns(subject, lambda: subject.now, 3.0, receive, answers.append).serve()
    assert answers == [1.0, 1.0, 1.0, 2.0]


def test_a_fit_that_reports_no_steps_is_timed_whole() -> None:
    assert served(Toy(reports=False), "train", "train", "sample") == [50.0, 50.0, 2.0]


def test_a_fit_that_takes_no_time_has_no_slices() -> None:
    instant = Toy()
    instant.fit = lambda steps, **more: None
    assert served(instant, "train") == [None]


def test_a_drift_of_the_machine_cancels_between_neighbours() -> None:
    base = [math.exp(0.1 * k) for k in range(12)]
    assert worsening(base, [1.25 * each for each in base]) == pytest.approx(math.log(1.25))


def test_a_burst_in_some_slices_is_no_slowdown() -> None:
    assert worsening([1.0] * 12, [1.0] * 9 + [9.0] * 3) == 0


def side(folder: Path, label: str, **more: int) -> Side:
    return Side(label, Path(sys.executable), folder / label, (toy(folder / f"plugin-{label}", **more),))


def test_a_pair_of_real_processes_measures_a_planted_slowdown(tmp_path) -> None:
    """Four times the work, and a factor of two either way for what a neighbour does to one pair; no slowdown has a ratio of 1."""
    racers = {"base": (side(tmp_path, "base", products=40), TOY), "head": (side(tmp_path, "head", products=160), TOY)}
    found = run_pair(racers, CellOptions(clock="cpu", seconds=0.3), "head")
    assert set(found.log_ratios) == {"train", "sample"}
    for ratio in found.log_ratios.values():
        assert math.log(2) < ratio < math.log(8)


def test_a_plugin_that_breaks_is_named_with_its_side_and_leaves_no_process(tmp_path, monkeypatch) -> None:
    made = []
    start = turns.subprocess.Popen
    monkeypatch.setattr(turns.subprocess, "Popen", lambda *words, **more: made.append(start(*words, **more)) or made[-1])
    head = side(tmp_path, "head")
    head.plugins[0].write_text("raise RuntimeError('planted')")
    with pytest.raises(Unraced, match="head: .*planted") as stopped:
        run_pair({"base": (side(tmp_path, "base"), TOY), "head": (head, TOY)}, CellOptions(seconds=0.1))
    assert stopped.value.found["base"] is None
    assert [one.poll() is None for one in made] == [False, False]


def test_what_a_plugin_prints_is_no_answer(tmp_path) -> None:
    loud = side(tmp_path, "head")
    path = loud.plugins[0]
    path.write_text(path.read_text().replace("def work():\n", "def work():\n    print(7, flush=True)\n"))
    found = run_pair({"base": (side(tmp_path, "base"), TOY), "head": (loud, TOY)}, CellOptions(clock="cpu", seconds=0.1))
    assert all(seconds < 1 for seconds in found.head.values())
    json.dumps(found)


def test_an_answer_that_is_no_number_of_seconds_is_refused(tmp_path) -> None:
    python = tmp_path / "python"
    python.write_text("""#!/bin/sh\necho '"ready"'\nread row\necho '"fast"'\n""")
    python.chmod(0o755)
    with tempfile.TemporaryFile() as complaints:
        racer = Racer(Side("base", python, tmp_path / "home"), TOY, CellOptions(), complaints, frozenset())
        try:
            racer.ready()
            with pytest.raises(Unable, match="'fast' instead of seconds"):
                racer.slice("train")
        finally:
            racer.end()


@pytest.mark.parametrize(("clock", "count"), [("cpu", 1), ("wall", 0)])
def test_both_processes_of_a_pair_have_one_core_where_cpu_time_counts(clock, count, monkeypatch) -> None:
    given = []

    class Steady:
        def __init__(self, side, cell, asked, complaints, cores) -> None:
            given.append(cores)

        def ready(self) -> None: ...

        def slice(self, row: str) -> float:
            return 1.0

        def end(self) -> None: ...

    monkeypatch.setattr(turns, "Racer", Steady)
    pair = turns.run_pair({"base": (None, TOY), "head": (None, TOY)}, CellOptions(clock=clock, seconds=0.1))
    assert pair.log_ratios == {"train": 0.0, "sample": 0.0}
    assert given[0] == given[1]
    assert len(given[0]) == count
    assert given[0] <= os.sched_getaffinity(0)
