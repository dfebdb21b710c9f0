"""A run that took more than its budget is marked wherever its row is shown, with what it took."""

import pytest
from click.testing import CliRunner
from support.page_data import page_boards
from support.sample_boards import whole
from support.sample_records import record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import rows
from compbench.board.notation import MARK
from compbench.board.render_csv import rows_csv
from compbench.board.render_html import to_html
from compbench.board.render_markdown import to_markdown
from compbench.board.row import Board
from compbench.board.terminal import task_board
from compbench.cli.main import main
from compbench.store.counts import FIT, beyond_budget
from compbench.store.records import Store

STEPS = "2000 optimiser steps, of 1000 that the budget grants"
EVALUATIONS = "about 80 evaluations of the network for a sample, of which 40 were declared"


SETTINGS = {"axis_bins": 10, "judge": "plain"}
"""Of the task: its defaults."""


def run(seed: int, *, method: str = "greedy", steps: float = 2000.0, **more: float) -> Record:
    """A record of 1000 granted steps with the harness's counts in its notes."""
    counts = {**dict.fromkeys(FIT, 0.0), "optimiser_steps": steps, "granted_steps": 1000.0, "reported_steps": 1000.0, **more}
    counts["beyond_budget"] = float(steps > 1000 or "evaluations" in more)
    notes = {f"counted {name}": value for name, value in counts.items()} | {"fit loss": 0.5}
    own = score(value=(0.4 if method in ("modest", "mono") else 0.8) + 0.01 * seed, ceiling=0.99)
    return record(own, method=method, seed=seed, task_settings=SETTINGS, more={"notes": notes})


@pytest.fixture
def board() -> Board:
    """One method that took twice its steps in two runs of three, and one that kept to its budget."""
    greedy = [run(0), run(1), run(2, steps=1000.0, evaluations=80.0)]
    return whole(rows([*greedy, *(run(seed, method="modest", steps=1000.0) for seed in range(3))]))


def test_each_phrase_is_said_once_with_its_seeds(board) -> None:
    said = {row.method: row.beyond for row in board.rows}
    assert said == {"greedy": (f"{STEPS} (seed 0, 1)", f"{EVALUATIONS} (seed 2)"), "modest": ()}


def test_markdown_marks_the_row_and_says_why(board) -> None:
    (greedy,) = [line for line in to_markdown(board, []).splitlines() if line.startswith("|") and "greedy" in line]
    (modest,) = [line for line in to_markdown(board, []).splitlines() if line.startswith("|") and "modest" in line]
    assert f"beyond its budget: {STEPS}" in greedy
    assert "greedy **(\\!)**" in greedy
    assert "(\\!)" not in modest


def test_the_page_and_the_csv_say_why(board) -> None:
    (section,) = page_boards(to_html(board, [], {}))
    said = {row["method"]: row["beyond"] for row in section["rows"]}
    assert said["greedy"].startswith(f"beyond its budget: {STEPS}")
    assert said["modest"] == ""
    lines = rows_csv(board.rows).splitlines()
    assert all((EVALUATIONS in line) == (",greedy," in line) for line in lines[1:])


def test_the_terminal_marks_the_row_and_says_why_below(board) -> None:
    text = task_board(board, "shapes3d-heavy")
    assert f"greedy {MARK}" in text
    assert f"modest {MARK}" not in text
    assert f"{MARK} greedy went beyond its budget: {STEPS} (seed 0, 1); {EVALUATIONS} (seed 2)" in text


def test_the_ranking_over_families_and_show_say_it_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    store = Store(tmp_path / "records")
    for seed in range(3):
        store.write(run(seed, method="factored"))
        store.write(run(seed, method="mono", steps=1000.0))
    text = CliRunner().invoke(main, ["board"]).output
    assert f"factored {MARK}" in text
    assert f"{MARK} factored on shapes3d-heavy went beyond its budget: {STEPS} (seed 0, 1, 2)" in text
    (path,) = [path for path in store.paths() if "factored" in path.name and ".s0." in path.name]
    shown = CliRunner().invoke(main, ["show", path.stem], catch_exceptions=False).output
    assert f"budget   the run went beyond its budget: {STEPS}" in shown


def test_a_record_that_holds_no_grants_is_marked_by_what_it_took() -> None:
    notes = {"counted optimiser_steps": 30.0, "counted examples": 9.0, "counted beyond_budget": 1.0}
    (phrase,) = beyond_budget(record(more={"notes": notes}))
    assert phrase.startswith("30 optimiser steps and 9 examples, more than")
    assert beyond_budget(record()) == ()
