"""What zero-shot is worth: crossings of known curves, their interval, and that shots and zero-shot never share a section."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from xml.etree import ElementTree

import pytest
from scipy.stats import t
from support.sample_records import record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import aggregate
from compbench.board.build import Material, contents
from compbench.board.comparison import compare_methods, compare_records
from compbench.board.render_shots import sentences, shots_csv
from compbench.board.shot_prices import Prices, Worth, prices
from compbench.store.profiles import Costs


def run(method: str, shots: int, value: float, seed: int = 0, **facts: object) -> Record:
    settings = {"shots": shots} if shots else {}
    own = score(value=value, n=7, **facts) if facts else score(value=value, n=7)  # no share of 7: no binomial error
    return record(own, method=method, seed=seed, task_settings=settings)


def found(*records: Record) -> Prices:
    (one,) = prices(aggregate(records).rows)
    return one


def worth_of(method: str, *records: Record) -> Worth:
    return found(*records).worths[method]


CURVE = (run("mono", 0, 0.2), run("mono", 1, 0.4), run("mono", 3, 0.8))


@pytest.mark.parametrize(
    ("value", "shots"),
    [(0.4, 1.0), (0.3, 2**0.5 - 1), (0.6, 2**1.5 - 1), (0.2, 0.0), (0.1, 0.0), (0.8, 3.0), (0.9, None)],
)
def test_a_score_is_worth_the_shots_at_which_the_reference_draws_level_linear_in_log2(value: float, shots: float | None) -> None:
    known = worth_of("factored", *CURVE, run("factored", 0, value))
    assert known.shots == (None if shots is None else pytest.approx(shots))
    assert known.interval is None


def test_of_distances_the_lower_is_the_better() -> None:
    lower = {"name": "heldout_fd_judge", "primary": True}
    runs = [run("mono", count, value, **lower) for count, value in ((0, 8.0), (1, 4.0))]
    assert worth_of("factored", *runs, run("factored", 0, 6.0, **lower)).shots == pytest.approx(2**0.5 - 1)
    assert worth_of("factored", *runs, run("factored", 0, 9.0, **lower)).shots == 0


def test_a_reference_that_was_never_run_without_shots_says_no_worth() -> None:
    assert found(*CURVE[1:], run("factored", 0, 0.1)).worths == {}


def test_the_reference_is_the_row_of_its_own_settings() -> None:
    other = [
        record(score(value=value, n=7), method="mono", settings={"hidden": 512}, task_settings={"shots": shots} if shots else {})
        for shots, value in ((0, 0.5), (1, 0.7), (3, 0.8), (7, 0.9))
    ]
    elsewhere = record(score(value=0.5, n=7), method="mono", task="shapes3d-light")  # most tasks ran under these settings
    known = {one.section.task: one for one in prices(aggregate([*other, *CURVE, run("factored", 0, 0.4), elsewhere]).rows)}
    assert known["shapes3d-heavy"].worths["factored"].shots == pytest.approx(1)


def test_the_interval_is_where_the_paired_interval_of_the_difference_holds_zero() -> None:
    values = [0.31, 0.36, 0.33, 0.35]
    runs = [run("mono", count, 0.1 + 0.2 * math.log2(1 + count), seed) for count in (0, 1, 7) for seed in range(4)]
    known = worth_of("factored", *runs, *(run("factored", 0, value, seed) for seed, value in enumerate(values)))
    half = t.ppf(0.975, 3) * stdev(values) / 2
    ends = [2 ** ((fmean(values) + side * half - 0.1) / 0.2) - 1 for side in (-1, 1)]
    assert known.shots == pytest.approx(2 ** ((fmean(values) - 0.1) / 0.2) - 1)
    assert known.interval == pytest.approx(tuple(ends), rel=1e-3)
    assert known.num_seeds == 4


def test_an_interval_that_the_shots_do_not_end_is_open_and_one_below_all_of_them_is_zero() -> None:
    runs = [run("mono", count, value, seed) for count, value in ((0, 0.1), (3, 0.3)) for seed in range(3)]
    level = worth_of("factored", *runs, *(run("factored", 0, value, seed) for seed, value in enumerate((0.2, 0.4, 0.3))))
    above = worth_of("factored", *runs, *(run("factored", 0, value, seed) for seed, value in enumerate((0.8, 0.81, 0.82))))
    assert level.interval is not None
    assert level.interval[1] is None
    assert level.interval[0] < 3
    assert above == Worth(None, (pytest.approx(3), None), 3)
    below = worth_of("factored", *runs, *(run("factored", 0, value, seed) for seed, value in enumerate((0.01, 0.02, 0.0))))
    assert below == Worth(0, (0, 0), 3)


def test_a_reference_that_is_ahead_without_shots_and_falls_with_them_still_makes_the_lead_worth_nothing() -> None:
    runs = [run("mono", count, value, seed) for count, value in ((0, 0.5), (3, 0.1)) for seed in range(3)]
    known = worth_of("factored", *runs, *(run("factored", 0, value, seed) for seed, value in enumerate((0.2, 0.21, 0.22))))
    assert known == Worth(0, (0, 0), 3)


def test_runs_with_shots_have_a_section_of_their_own_and_are_compared_with_no_others() -> None:
    records = [*CURVE, run("factored", 0, 0.6), run("factored", 3, 0.9)]
    board = aggregate(records)
    assert {row.section.changed for row in board.rows} == {(), ("shots=1",), ("shots=3",)}
    assert all(len({other.section for other in board.rows if other.method == row.method}) > 1 for row in board.rows)
    compared = compare_methods(board, records, "factored", "mono", Costs())
    assert [one.task.partition(" with ")[2] for one in compared] == ["", "shots=3"]
    remarks = compare_records(records[0], records[1], Costs()).remarks
    assert any(remark.startswith("task settings differs: {} and {'shots': 1}") for remark in remarks)


def test_the_board_says_it_in_every_form_and_nothing_without_shots() -> None:
    records = [*CURVE, run("factored", 0, 0.6), run("factored", 3, 0.9), run("cfg", 0, 0.1)]
    files = {name: content.decode() for name, content in contents(Material(records=records)).items()}
    said = "composition without examples is worth 1.8 examples of each held-out cell (one seed in common, so no interval)"
    assert f"factored (heldout accuracy 0.6): {said}" in files["index.html"]
    assert said in files["board.md"].replace("\\", "")
    lines = files["shots.csv"].splitlines()
    assert lines[2].startswith("shapes3d-heavy,quick,factored,heldout_accuracy,0,0.6,,,1,1.828")
    assert len(ElementTree.fromstring(files["shots.svg"]).findall(".//{*}polyline")) == 2  # cfg has a single point
    told = sentences(found(*records))
    assert f"factored (heldout accuracy 0.6): {said}" in told
    assert any(words.startswith("cfg (heldout accuracy 0.1): composition without examples is worth no example") for words in told)
    assert "| cfg | 0.1" in files["board.md"]
    plain = contents(Material(records=[run("mono", 0, 0.2)]))
    assert not {"shots.csv", "shots.svg"} & plain.keys()
    assert b"zero-shot worth" not in plain["index.html"] + plain["board.md"]
    assert shots_csv([]).count("\n") == 1
