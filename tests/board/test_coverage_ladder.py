"""The board's coverage ladder: shares against the cells that are seen, from records whose shares are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.page_data import page_data
from support.sample_records import record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import aggregate
from compbench.board.catalogue import catalogue, lattices
from compbench.board.coverage_ladder import Ladder, Line, ladder_data, ladders
from compbench.board.site import rebuild
from compbench.registry.registry import Registry
from compbench.store.records import Store

TASK = "cmnist-diagonal"
SETTINGS = Registry().load("tasks", TASK).settings.model_dump(mode="json")


def run(coverage: float, value: float, *, seed: int = 0, method: str = "mono", **facts) -> Record:
    changed = {name: facts.pop(name) for name in ("design", "split_seed", "rule") if name in facts}
    settings = {**SETTINGS, "coverage": coverage, **changed}
    own = facts.pop("scores", score(value=value, ceiling=0.91))
    return record(own, task=TASK, task_settings=settings, method=method, seed=seed, **facts)


def found(*records: Record) -> tuple[Ladder, ...]:
    return ladders(aggregate(records, catalogue=catalogue([TASK])).rows, lattices(records))


def test_a_point_is_the_share_of_the_way_from_a_random_cell_to_the_ceiling() -> None:
    (ladder,) = found(run(0.19, 0.01), run(0.36, 0.46), run(0.51, 0.91))
    assert ladder.lines == {
        Line("mono", "orthotopic"): {0.19: {(0, 0): 0.0}, 0.36: {(0, 0): pytest.approx(0.5)}, 0.51: {(0, 0): 1.0}}
    }
    assert ladder.least == pytest.approx(0.19)


def test_a_coverage_between_two_rungs_stands_where_its_cells_are() -> None:
    (ladder,) = found(run(0.5, 0.3))
    assert list(ladder.lines[Line("mono", "orthotopic")]) == [0.51]


def test_seeds_and_splits_gather_and_designs_and_methods_are_lines_of_their_own() -> None:
    records = [run(0.36, 0.4, seed=seed) for seed in range(3)]
    records += [run(0.36, 0.5, split_seed=4), run(0.36, 0.2, design="random"), run(0.36, 0.6, method="factored")]
    (ladder,) = found(*records)
    assert {line: set(curve[0.36]) for line, curve in ladder.lines.items()} == {
        Line("mono", "orthotopic"): {(0, 0), (0, 1), (0, 2), (4, 0)},
        Line("mono", "random"): {(0, 0)},
        Line("factored", "orthotopic"): {(0, 0)},
    }


def test_other_presets_and_settings_are_ladders_of_their_own() -> None:
    made = found(run(0.36, 0.4), run(0.36, 0.5, preset="paper"), run(0.36, 0.5, rule="parity"))
    assert [(ladder.section.preset, ladder.section.changed) for ladder in made] == [
        ("paper", ()),
        ("quick", ()),
        ("quick", ("rule=parity",)),
    ]


def test_what_has_no_coverage_no_ceiling_or_no_score_is_no_point() -> None:
    failed = run(0.36, 0.5, status="failed")
    assert found(run(0.0, 0.5), run(0.36, 0.5, scores=score(value=0.5)), failed) == ()


def test_settings_that_the_installed_task_refuses_have_no_lattice() -> None:
    assert lattices([run(0.05, 0.5)]) == {}


def test_the_pages_points_say_mean_least_most_and_runs() -> None:
    (ladder,) = found(run(0.36, 0.46), run(0.36, 0.91, seed=1))
    assert ladder_data(ladder)["lines"] == [{"method": "mono", "design": "orthotopic", "points": [[0.36, 0.75, 0.5, 1.0, 2]]}]


def test_the_page_holds_the_ladder_the_same_bytes_each_time_and_nothing_that_a_record_could_smuggle_in(tmp_path: Path) -> None:
    store = Store(tmp_path / "records")
    evil = "</script><img src=x onerror=alert(1)>"
    for method in ("mono", "factored"):
        store.write(run(0.36, 0.46, method=method))
    store.write(run(0.51, 0.46, settings={"note": evil}))
    pages = []
    for name in ("one", "two"):
        rebuild(store.folder, tmp_path / name)
        pages.append((tmp_path / name / "index.html").read_bytes())
    assert pages[0] == pages[1]
    page = pages[0].decode()
    assert evil not in page
    (ladder,) = page_data(page)["ladders"]
    assert (ladder["task"], ladder["least"]) == (TASK, 0.19)
    assert {line["method"].split(" ")[0] for line in ladder["lines"]} == {"mono", "factored"}
