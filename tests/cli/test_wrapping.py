"""On a terminal no sentence is cut in the middle of a word; in a pipe it is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record, score

from compbench.api.schemas import LossCurve, Record
from compbench.board.terminal import aligned
from compbench.cli.main import main
from compbench.cli.result import show_result
from compbench.cli.wrapping import paragraph, refilled
from compbench.store.records import Store

LONG = "word " * 40


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal of 70 columns."""
    monkeypatch.setattr("compbench.cli.wrapping.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))


def much() -> Record:
    """A record with long lines of counts, losses, notes and reasons."""
    names = [f"number_of_particles_{index}" for index in range(9)]
    losses = tuple(LossCurve(name=name, steps=(50, 80), loss=(2.5, 0.5), examples_per_second=(900.0, 1000.0)) for name in names)
    missing = [score(f"heldout_{name}", None, primary=False, reason="a library that is not installed here") for name in names]
    more = {"losses": losses, "notes": {f"notes_of_{name}": 0.25 for name in names}}
    return record(score(value=0.25), *missing, more=more)


def too_wide(text: str) -> list[str]:
    """Lines of more than 70 characters that have more than a label and one word."""
    return [line for line in text.splitlines() if len(line) > 70 and len(line.split()) > 2]


def test_no_line_of_a_record_is_wider_than_the_terminal(narrow: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = much()
    path = Store(tmp_path / "records").write(one)
    whole = CliRunner().invoke(main, ["show", one.name]).output
    assert {"loss", "noted", "missing", "record"} <= {line.split(" ")[0] for line in whole.splitlines()}
    assert too_wide(whole) == []
    show_result(one, path, reused=False)
    shown = capsys.readouterr().out
    assert "result" in shown
    assert too_wide(shown) == []


def test_a_pipe_gets_each_text_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    Store(tmp_path / "records").write(much())
    (noted,) = [line for line in CliRunner().invoke(main, ["show", much().name]).output.splitlines() if line.startswith("noted")]
    assert "number_of_particles_0" in noted
    assert "number_of_particles_8" in noted


def test_later_lines_stand_below_the_text_and_a_path_stays_whole(narrow: None) -> None:
    path = "/a-folder-with-a-long-name/" + "x" * 60
    first, *others = paragraph("label    ", f"{LONG}{path}").splitlines()
    assert first.startswith("label    word")
    assert all(line.startswith("         ") for line in others)
    assert others[-1].strip() == path
    assert refilled(f"  {LONG}\nshort\n{LONG}").splitlines()[:2] == [f"  {LONG}", "short"]


def test_a_table_that_is_too_wide_takes_more_lines_and_loses_no_word() -> None:
    rows = [["question", "methods", ""], ["Plane: target near, independent", "naive-sde, rne, mono and 5 more of 15", ""]]
    assert aligned(rows)[1] == "  ".join(rows[1]).rstrip()
    lines = aligned(rows, 30)
    assert max(map(len, lines)) <= 30
    assert sorted(" ".join(lines).split()) == sorted(" ".join(rows[0] + rows[1]).split())


def test_the_matrix_fits_a_narrow_terminal(narrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(main, ["list", "--matrix"]).output.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert {"image", "plane", "rooms"} <= set(lines[0].split())
