"""The coverage ladder's curve, from records whose shares are known."""

from pathlib import Path

import pytest
from coverage_ladder import Line, curves, draw, table
from support.sample_records import record, score

from compbench.registry import Registry
from compbench.schemas import Record
from compbench.sweep.grid import read
from compbench.sweep.parse import names, parse_seeds
from compbench.tasks.coverage import rungs

TASK = Registry().load("tasks", "cmnist-diagonal")


def run(coverage: float, value: float, *, seed: int = 0, design: str = "orthotopic", method: str = "mono", **facts) -> Record:
    settings = {**TASK.settings.model_dump(mode="json"), "coverage": coverage, "design": design}
    own = score(value=value, ceiling=0.91)
    return record(own, task=TASK.name, task_settings=settings, method=method, seed=seed, **facts)


def test_a_point_is_the_share_of_the_way_from_a_random_cell_to_the_ceiling() -> None:
    found = curves([run(0.19, 0.01), run(0.36, 0.46), run(0.51, 0.91)], TASK, "quick")
    assert found == {Line("mono", "orthotopic"): {0.19: {(0, 0): 0.0}, 0.36: {(0, 0): pytest.approx(0.5)}, 0.51: {(0, 0): 1.0}}}


def test_a_coverage_between_two_rungs_stands_where_its_cells_are() -> None:
    assert list(curves([run(0.5, 0.3)], TASK, "quick")[Line("mono", "orthotopic")]) == [0.51]


def test_seeds_gather_and_designs_and_methods_are_lines_of_their_own() -> None:
    records = [run(0.36, 0.4, seed=seed) for seed in range(3)]
    records += [run(0.36, 0.2, design="random"), run(0.36, 0.6, method="factored")]
    found = curves(records, TASK, "quick")
    assert {line: len(curve[0.36]) for line, curve in found.items()} == {
        Line("mono", "orthotopic"): 3,
        Line("mono", "random"): 1,
        Line("factored", "orthotopic"): 1,
    }


def test_the_newest_attempt_counts_and_other_runs_do_not() -> None:
    again = run(0.36, 0.91, attempt=2)
    others = [run(0.36, 0.5, preset="paper"), run(0.0, 0.5), run(0.36, 0.5, status="failed", seed=1), record()]
    assert curves([again, run(0.36, 0.01), *others], TASK, "quick") == {Line("mono", "orthotopic"): {0.36: {(0, 0): 1.0}}}


def test_the_table_and_the_picture_show_every_line(tmp_path: Path) -> None:
    found = curves([run(0.19, 0.1), run(0.36, 0.4), run(0.36, 0.3, design="random")], TASK, "quick")
    lines = table(found).splitlines()
    assert lines[0] == "| method | design | 0.19 | 0.36 |"
    assert lines[3] == "| mono | random |  | 0.32 (1) |"
    draw(found, TASK, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("preset", "name"), [("quick", "bump-center"), ("standard", "cmnist-diagonal")])
def test_the_sweep_has_six_rungs_five_methods_and_three_seeds(preset: str, name: str) -> None:
    (grid,) = getattr(read("coverage-ladder"), preset)
    assert grid.tasks == name
    assert len(names("methods", grid.methods, ())) >= 5
    assert len(parse_seeds(grid.seeds)) >= 3
    task = Registry().load("tasks", name)
    own = {key.removeprefix("task."): value for key, value in grid.set.items() if key.startswith("task.")}
    fixed = {key: value for key, value in own.items() if not isinstance(value, list)}
    space = task.configure(type(task.settings)(**fixed)).holdout.pattern_space
    exact = {rung.num_seen / space.num_combinations for rung in rungs(space.sizes)}
    assert len(own["coverage"]) >= 6
    assert set(own["coverage"]) <= exact
    assert set(own["design"]) == {"orthotopic", "random"}
