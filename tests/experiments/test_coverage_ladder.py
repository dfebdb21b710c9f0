"""The coverage ladder's table and picture, from records whose shares are known, and the shipped sweep."""

import json
from pathlib import Path

import pytest
from coverage_ladder import _bars, draw, gap, read, table
from support.sample_records import record, score

from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.sweep import grid as sweep_files
from compbench.sweep.parse import names, parse_seeds
from compbench.tasks.coverage import rungs

SETTINGS = Registry().load("tasks", "cmnist-diagonal").settings.model_dump(mode="json")


def test_the_table_and_the_picture_show_every_line_of_the_tasks_records(tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    for coverage, value, design in [(0.19, 0.1, "orthotopic"), (0.36, 0.4, "orthotopic"), (0.36, 0.3, "random")]:
        settings = {**SETTINGS, "coverage": coverage, "design": design}
        own = score(value=value, ceiling=0.91)
        for preset in ("quick", "paper"):
            store.write(record(own, task="cmnist-diagonal", task_settings=settings, method="mono", preset=preset))
    ladder = read(store.folder, "cmnist-diagonal", "quick")
    lines = table(ladder).splitlines()
    assert lines[0] == "| method | design | 0.19 | 0.36 |"
    assert lines[2:] == ["| mono | orthotopic | 0.10 (1) | 0.43 (1) |", "| mono | random |  | 0.32 (1) |"]
    draw(ladder, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")


def test_bars_of_equal_values_are_nothing_and_not_less() -> None:
    values = {(0, seed): 0.1 + 0.2 for seed in range(3)}
    assert _bars({0.5: values, 0.7: {**values, (0, 3): 0.0}})[1][0][0] == 0.0
    assert min(map(min, _bars({0.5: values, 0.7: {(0, 0): 0.7, (0, 1): 0.7, (0, 2): 0.7}})[1])) >= 0.0


def test_held_out_cells_of_an_orthotopic_design_lie_farther_from_the_seen_ones() -> None:
    """3 x 3 at C_min: (1, 1), (1, 2), (2, 1) and (2, 2) lie 1, 1, 1 and 2 from the two lines."""
    assert gap((3, 3), 5 / 9, "orthotopic") == pytest.approx(5 / 4)
    assert gap((8, 8), 15 / 64, "random") < gap((8, 8), 15 / 64, "orthotopic") / 2


def test_a_folder_without_a_coverage_has_no_ladder(tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    store.write(record(task="cmnist-diagonal", task_settings=SETTINGS))
    assert read(store.folder, "cmnist-diagonal", "quick") is None


@pytest.mark.parametrize(("preset", "name"), [("quick", "bump-center"), ("standard", "cmnist-diagonal")])
def test_the_sweep_has_six_rungs_five_methods_and_three_seeds(preset: str, name: str) -> None:
    grids = getattr(sweep_files.read("coverage-ladder"), preset)
    assert {grid.tasks for grid in grids} == {name}
    assert sum(len(names("methods", grid.methods, ())) for grid in grids) >= 5
    assert all(len(parse_seeds(grid.seeds)) >= 3 for grid in grids)
    (shared,) = {json.dumps({key: value for key, value in grid.set.items() if "." in key}) for grid in grids}
    task = Registry().load("tasks", name)
    own = {key.removeprefix("task."): value for key, value in json.loads(shared).items() if key.startswith("task.")}
    fixed = {key: value for key, value in own.items() if not isinstance(value, list)}
    space = task.configure(type(task.settings)(**fixed)).holdout.pattern_space
    exact = {rung.num_seen / space.num_combinations for rung in rungs(space.sizes)}
    assert len(own["coverage"]) >= 6
    assert set(own["coverage"]) <= exact
    assert set(own["design"]) == {"orthotopic", "random"}
