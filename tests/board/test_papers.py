"""The papers' figures: read whole or refused with the line, shown but never ranked."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sample_boards import whole
from support.sample_records import record, score

from compbench.board.aggregate import rows
from compbench.board.papers import COLUMNS, read
from compbench.board.render_csv import scores_csv
from compbench.board.render_markdown import to_markdown
from compbench.system.errors import CompbenchError

PAPERS = Path(__file__).parents[2] / "leaderboards" / "papers.csv"
HEADER = ",".join(COLUMNS)


def figure(task: str, method: str, metric: str) -> tuple[str, float, float | None]:
    (found,) = [f for f in read(PAPERS) if (f.task, f.method, f.metric) == (task, method, metric)]
    return found.score, found.mean, found.std


def test_accuracies_compare_with_the_seen_splits_judge() -> None:
    found = figure("shapes3d-medium", "factored", "heldout_accuracy")
    assert found == ("heldout_accuracy_seen_judge", 0.987, 0.018)


@pytest.mark.parametrize(("metric", "name", "mean"), [("accuracy", "all_accuracy", 0.954), ("fid", "all_fid", 2.83)])
def test_extension_figures_compare_with_scores_of_all_combinations(metric: str, name: str, mean: float) -> None:
    assert figure("mpi3d-extend", "factored", metric) == (name, mean, None)


def test_papers_are_shown_and_never_ranked() -> None:
    board = rows([record(score(), score("heldout_accuracy_seen_judge", 0.1), seed=seed) for seed in range(2)])
    text = to_markdown(whole(board), read(PAPERS))
    (ours,) = [line for line in text.splitlines() if "| **yes** |" in line]
    papers = [line for line in text.splitlines() if "| *paper* |" in line]
    assert "0.500" in ours
    assert len(papers) == 3
    (own,) = [line for line in papers if "*0.282 ± 0.130*" in line]
    assert own.endswith("compare it with our heldout\\_accuracy\\_seen\\_judge |")
    kinds = [line.split(",")[0] for line in scores_csv(board, read(PAPERS)).splitlines()[1:]]
    assert kinds.count("paper") == len(read(PAPERS))


def test_no_file_is_no_figures() -> None:
    assert read(None) == ()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("paper,task\n", "must have the columns"),
        (f"{HEADER}\np,1,t,m,x,x,much,,\n", "line 2: 'much' is not a number"),
        (f"{HEADER}\np,1,t,m,x,x,1,,\np,1,t,m,x,x,nan,,\n", "line 3: 'nan' is not a number"),
        (f"{HEADER}\np,1,t,m,x\n", "line 2: must have 9 cells"),
        (f"{HEADER}\np,1,t,m,x,x,1,,note,more\n", "line 2: must have 9 cells"),
        (f"{HEADER}\np,1,,m,x,x,1,,\n", "line 2: task is empty"),
    ],
)
def test_a_wrong_figure_is_named_by_its_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "papers.csv"
    path.write_text(content)
    with pytest.raises(CompbenchError, match=says):
        read(path)


def test_an_unreadable_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "papers.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CompbenchError, match="cannot be read"):
        read(path)
