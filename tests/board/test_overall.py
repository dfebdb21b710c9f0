"""The overall board against cases computed by hand: what is on one scale, what counts, and what stays open."""

from __future__ import annotations

import csv
import io
import random

import pytest
from support.sample_records import record, score

from compbench.board.aggregate import rows
from compbench.board.overall import Contender, Contest, contests
from compbench.board.render_overall import overall_csv, overall_html, overall_markdown, pairs_csv
from compbench.board.render_svg import profiles
from compbench.schemas import Record

TASKS = ("a", "b", "c", "d")


def accuracies(method: str, *values: float | None, seeds: int = 2, **facts: object) -> list[Record]:
    """Runs with that share of the ceiling on the tasks a, b, c, ...; None leaves the task out."""
    return [
        record(score(value=0.5 * value, ceiling=0.5), task=task, method=method, seed=seed, **facts)
        for task, value in zip(TASKS, values, strict=False)
        if value is not None
        for seed in range(seeds)
    ]


def contest(records: list[Record]) -> Contest:
    (only,) = contests(rows(records))
    return only


def contender(found: Contest, method: str) -> Contender:
    (only,) = (one for one in found.contenders if one.method == method)
    return only


def test_accuracies_are_shares_of_their_ceiling_and_distances_of_their_floor() -> None:
    distance = score("heldout_fid", 8.0, floor=2.0, primary=True)
    below_floor = score("heldout_fid", 1.0, floor=2.0, primary=True)
    found = contest([record(score(value=0.3, ceiling=0.5), task="a"), record(distance, task="b"), record(below_floor, task="c")])
    assert [cell.share for cell in contender(found, "factored").cells] == [pytest.approx(0.6), 0.25, 1.0]


def test_the_total_is_the_interquartile_mean_over_tasks() -> None:
    one = contender(contest(accuracies("mono", 0.1, 0.4, 0.6, 1.0)), "mono")
    assert (one.total, one.own) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (one.bounds.low, one.bounds.high) == (pytest.approx(0.5), pytest.approx(0.5))  # equal seeds have no spread


def test_a_missing_task_counts_nothing_but_leaves_the_bounds_open() -> None:
    found = contest([*accuracies("mono", 0.2, 0.4, 0.8), *accuracies("factored", 0.1, 0.1, 0.1, 0.1)])
    one = contender(found, "mono")
    assert [cell.state for cell in one.cells] == ["ok", "ok", "ok", "missing"]
    assert one.total == pytest.approx((0.2 + 0.4) / 2)  # middle half of 0, 0.2, 0.4, 0.8
    assert (one.bounds.low, one.bounds.high) == (pytest.approx(0.3), pytest.approx((0.4 + 0.8) / 2))
    assert one.own == pytest.approx((0.25 * 0.2 + 0.4 + 0.25 * 0.8) / 1.5)
    assert one.num_counted == 3


@pytest.mark.parametrize(
    ("status", "state", "counts"),
    [("failed", "failed", True), ("oom", "failed", True), ("refused", "refused", True), ("killed", "missing", False)],
)
def test_a_task_that_failed_counts_zero_and_one_that_its_user_stopped_is_missing(status: str, state: str, counts: bool) -> None:
    end = record(task="b", method="mono", status=status, more={"reason": "because"})
    one = contender(contest([*accuracies("mono", 0.8), end, *accuracies("factored", 0.1, 0.1)]), "mono")
    assert [cell.state for cell in one.cells] == ["ok", state]
    assert (one.cells[1].counts, one.cells[1].reason) == (counts, f"{status}: because")
    assert one.own == pytest.approx(0.4 if counts else 0.8)
    assert one.bounds.high == pytest.approx(0.4 if counts else 0.9)


def test_seeds_that_failed_count_zero() -> None:
    end = record(task="a", method="mono", seed=2, status="timeout")
    one = contender(contest([*accuracies("mono", 0.9, 0.9), end]), "mono")
    assert one.cells[0].state == "partly failed"
    assert one.cells[0].share == pytest.approx(0.6)


def test_a_task_with_one_seed_leaves_bounds_and_ranks_open() -> None:
    found = contest([*accuracies("mono", 0.9, 0.9, seeds=1), *accuracies("factored", 0.2, 0.2), *accuracies("cfg", 0.1, 0.1)])
    ranks = {one.method: tuple(one.rank) for one in found.contenders}
    assert ranks == {"mono": (1, 1, 3), "factored": (2, 1, 2), "cfg": (3, 2, 3)}
    assert contender(found, "mono").bounds is None


def test_equal_contenders_share_a_rank() -> None:
    found = contest([*accuracies("mono", 0.5, 0.5), *accuracies("factored", 0.5, 0.5), *accuracies("cfg", 0.1, 0.1)])
    assert {one.method: one.rank.rank for one in found.contenders} == {"factored": 1, "mono": 1, "cfg": 3}


@pytest.mark.parametrize("change", [{"preset": "paper"}, {"source": "official"}])
def test_presets_and_data_sources_have_boards_of_their_own(change: dict) -> None:
    found = contests(rows([*accuracies("mono", 0.5, 0.5), *accuracies("mono", 0.1, 0.1, **change)]))
    assert [[one.total for one in board.contenders] for board in found] in ([[0.5], [0.1]], [[0.1], [0.5]])


def test_one_task_alone_makes_no_overall_board() -> None:
    assert contests(rows(accuracies("mono", 0.5))) == ()


def test_only_the_newest_version_and_the_commonest_data_of_a_task_count_and_the_rest_is_named() -> None:
    old, other = {"task_version": 1}, {"task_version": 2, "fingerprint": "other"}
    records = [
        *accuracies("mono", 0.5, 0.5, task_version=2),
        *accuracies("mono", 0.1, **old),
        *accuracies("mono", 0.2, seeds=1, **other),
    ]
    found = contest(records)
    assert [(s.task, s.task_version, s.fingerprint) for s in found.sections] == [("a", 2, "renderer-1"), ("b", 2, "renderer-1")]
    assert [cell.share for cell in contender(found, "mono").cells] == [0.5, 0.5]
    assert found.left_out == ("a version 2, data other", "a version 1, data renderer-1")


def test_a_score_of_an_older_metric_is_no_score() -> None:
    old = record(score(value=0.9, ceiling=1.0, metric_version=1), task="a", method="old")
    new = [record(score(value=0.5, ceiling=1.0, metric_version=2), task=task, method="new") for task in "ab"]
    assert [cell.state for cell in contender(contest([old, *new]), "old").cells] == ["no score", "missing"]


def test_settings_are_never_mixed_and_never_chosen_by_score() -> None:
    records = [
        *accuracies("mono", 0.9, 0.1, settings={"hidden": 64}),
        *accuracies("mono", 0.1, 0.9, settings={"hidden": 128}),
        *accuracies("mono", 1.0, settings={"hidden": 64}, budget={"train_steps": 2000}, budget_changed=("train_steps",)),
    ]
    found = {one.variant: [round(cell.share, 6) for cell in one.cells if cell.shares] for one in contest(records).contenders}
    assert found == {
        "hidden=64": [0.9, 0.1],
        "hidden=128": [0.1, 0.9],
        "budget.train_steps=2000, hidden=64": [1.0],
    }


def test_other_task_settings_than_the_commonest_are_left_out_and_named() -> None:
    records = [
        *accuracies("mono", 0.5, 0.5),
        *accuracies("factored", 0.4, 0.4),
        *accuracies("cfg", 0.9, task_settings={"judge": "pooled"}),
    ]
    found = contest(records)
    assert [one.method for one in found.contenders] == ["mono", "factored"]
    assert found.left_out == ("a with other task settings than none",)


def test_a_reference_on_one_task_competes_on_the_others_only() -> None:
    pooled = accuracies("mono", 1.0, more={"pooled_silos": True})
    found = contest([*pooled, *accuracies("mono", None, 0.5), *accuracies("oracle", 1.0, 1.0, more={"oracle": True})])
    mono, oracle = contender(found, "mono"), contender(found, "oracle")
    assert [cell.state for cell in mono.cells] == ["reference", "ok"]
    assert (mono.kind, mono.rank.rank, mono.total, mono.own) == ("run", 1, 0.25, 0.5)
    assert (oracle.kind, oracle.rank, oracle.own) == ("reference", None, 1.0)


def test_a_method_that_was_only_stopped_still_competes() -> None:
    stopped = record(task="a", method="mono", status="killed")
    one = contender(contest([stopped, *accuracies("factored", 0.1, 0.1)]), "mono")
    assert (one.kind, one.total, one.own, one.bounds, one.rank) == ("run", 0.0, None, None, (2, 1, 2))


def test_many_runs_of_one_method_do_not_choose_the_task_settings() -> None:
    flood = [
        r for hidden in range(5) for r in accuracies("mono", 0.9, task_settings={"judge": "mine"}, settings={"hidden": hidden})
    ]
    found = contest([*flood, *accuracies("factored", 0.4, 0.4), *accuracies("cfg", 0.4, 0.4)])
    assert [one.method for one in found.contenders] == ["cfg", "factored"]


def test_pairs_are_compared_on_the_tasks_and_seeds_that_both_have() -> None:
    one = [
        record(score(value=v, ceiling=1.0), task=t, method="one", seed=s)
        for t, s, v in [("a", 0, 0.6), ("a", 1, 0.2), ("b", 0, 0.9)]
    ]
    other = [
        record(score(value=v, ceiling=1.0), task=t, method="two", seed=s)
        for t, s, v in [("a", 0, 0.5), ("a", 1, 0.3), ("c", 0, 0.9)]
    ]
    (pair,) = contest([*one, *other]).pairs
    flipped = 1 if pair.one == "one" else -1
    assert (pair.num_tasks, pair.num_paired) == (1, 1)
    assert pair.probability == 0.5  # 0.6 beats both, 0.2 neither
    assert pair.difference * flipped == pytest.approx((0.1 - 0.1) / 2)
    assert [flipped * end for end in pair.difference_interval] == [pytest.approx(-0.1 * flipped), pytest.approx(0.1 * flipped)]


def hostile() -> list[Record]:
    name = "<script>alert(1)</script> | `x`"
    end = record(task="b", method="mono", status="failed", more={"reason": name})
    return [*accuracies("mono", 0.8, settings={"mode": name}), *accuracies("mono", 0.1, 0.1), end]


def test_states_reach_all_three_files() -> None:
    failed = record(task="b", method="mono", status="failed", more={"reason": "no memory"})
    refused = record(task="c", method="mono", status="refused", more={"reason": "needs silos"})
    boards = contests(rows([*accuracies("mono", 0.8), failed, refused, *accuracies("factored", 0.1, 0.1, 0.1, 0.1)]))
    lines = [line for line in csv.DictReader(io.StringIO(overall_csv(boards))) if line["method"] == "mono"]
    assert [(line["task"], line["state"], line["share_attained"]) for line in lines] == [
        ("all", "", "0"),
        ("a", "ok", "0.8"),
        ("b", "failed", ""),
        ("c", "refused", ""),
        ("d", "missing", ""),
    ]
    assert "| mono | 3/4 | **0.00** (0.00 to 0.40) | 0.13 | 0.80 | failed | refused | \u2013 |" in overall_markdown(boards)
    page = overall_html(boards)
    assert 'title="0 of 1 runs ok; failed: no memory">failed</td>' in page
    assert 'title="0 of 1 runs ok; refused: needs silos">refused</td>' in page
    assert 'title="nobody ran it">\u2013</td>' in page


def test_text_of_records_stays_text() -> None:
    boards = contests(rows(hostile()))
    for content in (overall_html(boards), overall_markdown(boards), profiles(boards)):
        assert "alert(1)" in content
        assert "<script" not in content


def test_the_profile_steps_down_at_the_shares_that_tasks_attain() -> None:
    boards = contests(rows([*accuracies("mono", 0.5, 1.0), *accuracies("factored", 0.5, 0.5)]))
    # x from 46 over 430, base at 254, height 220: mono is whole up to 0.5, half up to 1, factored gone after 0.5
    assert 'd="M46 34.0H261.0V144.0H476.0V254.0H476"' in profiles(boards)
    assert 'd="M46 34.0H261.0V254.0H476"' in profiles(boards)


def test_the_profile_of_a_method_that_attains_nothing_lies_on_the_axis() -> None:
    assert 'd="M46 254.0H476"' in profiles(contests(rows(accuracies("mono", 0.0, 0.0))))


def test_any_order_of_the_records_gives_the_same_bytes() -> None:
    made = [
        record(score(value=(7 * seed + 3 * len(method) + ord(task)) % 11 / 11, ceiling=0.9), task=task, method=method, seed=seed)
        for task in TASKS
        for method in ("mono", "factored", "slice-cfg")
        for seed in range(3)
    ]
    first = None
    for seed in range(3):
        random.Random(seed).shuffle(made)
        boards = contests(rows(made))
        written = (overall_csv(boards), pairs_csv(boards), overall_markdown(boards), overall_html(boards), profiles(boards))
        first = first or written
        assert written == first
