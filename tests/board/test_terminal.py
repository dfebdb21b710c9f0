"""What `compbench board` prints: a ranking, not the paths of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record, score

from compbench.cli.board import board
from compbench.store.records import Store
from compbench.system.errors import CompbenchError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store(tmp_path / "records")
    settings = {"task_settings": {"axis_bins": 10, "judge": "plain"}}
    for method, share in (("factored", 0.8), ("mono", 0.4)):
        for seed in range(3):
            for task in ("shapes3d-light", "shapes3d-heavy"):
                own = score(value=round(share + 0.01 * seed, 2), ceiling=0.99)
                store.write(record(own, method=method, seed=seed, task=task, **settings))
    return store.folder


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(board, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_it_prints_the_ranking_and_one_address(folder: Path) -> None:
    text = printed("--records", str(folder), "--output", str(folder.parent / "board"))
    lines = text.splitlines()
    (answer,) = [line for line in lines if line.startswith("Shapes: ¾ unseen")]
    assert "factored of 2" in answer
    assert "81 % right, real 99 % right" in answer
    assert lines[-1].startswith("file://")
    assert lines[-1].endswith("board/index.html")
    assert (folder.parent / "board" / "index.html").is_file()
    assert max(map(len, lines)) < 200


def test_it_prints_one_task_and_writes_nothing(folder: Path) -> None:
    text = printed("shapes3d-heavy", "--records", str(folder), "--output", str(folder.parent / "board"))
    (first, second) = [line.split() for line in text.splitlines() if "0.99" in line]
    assert (first[:3], second[:3]) == (["1", "factored", "0.810"], ["2", "mono", "0.410"])
    assert "shapes3d-light" not in text
    assert not (folder.parent / "board").exists()


def test_an_unknown_task_suggests_one_that_has_records(folder: Path) -> None:
    with pytest.raises(CompbenchError, match="shapes3d-heavy"):
        CliRunner().invoke(board, ["shapes3d-hevy", "--records", str(folder)], catch_exceptions=False)


def test_an_unranked_method_is_named_with_what_a_rank_needs_and_other_presets_are_listed(tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    settings = {"task_settings": {"axis_bins": 10, "judge": "plain"}}
    for preset, task in (("quick", "shapes3d-light"), ("smoke", "shapes3d-heavy")):
        store.write(record(score(value=0.5, ceiling=0.99), method="mine", seed=0, task=task, preset=preset, **settings))
    said = printed("--records", str(store.folder), "--output", str(tmp_path / "board"))
    assert "mine: 50 % right" in said
    assert "a rank needs two methods with two seeds each" in said
    assert "Also at smoke: shapes3d-heavy (`compbench board TASK` shows all presets; scores at smoke mean nothing)." in said
