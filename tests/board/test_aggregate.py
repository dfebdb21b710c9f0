"""Aggregation against means, deviations, intervals and ranks computed by hand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.sample_records import record, score

from compbench.board.aggregate import rows
from compbench.board.ranks import ranks
from compbench.board.statistics import Interval, interval, resamples, sample_std
from compbench.schemas import RECORD_FORMAT
from compbench.store.load import read_records
from compbench.store.records import dump


def test_a_row_has_the_mean_and_sample_deviation_of_its_seeds() -> None:
    values = (0.25, 0.5, 0.75)
    (row,) = rows(record(score(value=v, ceiling=0.9, floor=None), seed=s) for s, v in enumerate(values))
    cell = row.scores["heldout_accuracy"]
    assert (cell.mean, cell.std, cell.num_seeds, cell.ceiling) == (0.5, 0.25, 3, 0.9)
    assert cell.interval == (0.25, 0.75)
    assert row.seeds == (0, 1, 2)


def test_records_may_come_as_json_objects() -> None:
    found = record()
    assert rows([found.model_dump(mode="json")]) == rows([found])


def test_ceilings_and_floors_are_means_too() -> None:
    facts = ((0.8, 1.0), (0.9, 3.0))
    (row,) = rows(record(score(ceiling=c, floor=f), seed=seed) for seed, (c, f) in enumerate(facts))
    cell = row.scores["heldout_accuracy"]
    assert (cell.ceiling, cell.floor) == (pytest.approx(0.85), 2.0)


@pytest.mark.parametrize(
    "change",
    [
        {"preset": "paper"},
        {"source": "official"},
        {"fingerprint": "renderer-2"},
        {"task_version": 2},
        {"task": "shapes3d-light"},
    ],
)
def test_what_must_not_be_compared_is_in_another_section(change: dict) -> None:
    one, two = rows([record(), record(seed=1, **change)])
    assert one.section != two.section
    assert (one.rank.worst, two.rank.worst) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"device_class": "NVIDIA H200"},
        {"method_version": 2},
        {"settings": {"hidden": 128}},
        {"precision": "bf16"},
        {"budget": {"train_steps": 2000}, "budget_changed": ("train_steps",)},
        {"task_settings": {"judge": "pooled"}},
    ],
)
def test_other_settings_and_devices_are_another_row_of_the_section(change: dict) -> None:
    one, two = rows([record(), record(seed=1, **change)])
    assert one.section == two.section
    assert (one.label, one.device) != (two.label, two.device)


def test_a_changed_budget_is_said_even_where_no_row_differs() -> None:
    (row,) = rows([record(budget={"train_steps": 2000}, budget_changed=("train_steps",))])
    assert row.label == "factored (budget.train_steps=2000)"


def test_settings_are_said_only_where_rows_differ() -> None:
    one, two = rows([record(settings={"a": 1, "b": 2}), record(settings={"a": 1, "b": 3}, seed=1)])
    assert {one.variant, two.variant} == {"b=2", "b=3"}


def test_metric_versions_are_never_averaged_and_only_the_newest_ranks() -> None:
    old, new = score(value=0.9, metric_version=1), score(value=0.5, metric_version=2)
    both, stale = rows([record(old), record(new, seed=1), record(old, method="mono")])
    assert both.scores["heldout_accuracy"].mean == 0.5
    assert both.scores["heldout_accuracy@v1"].mean == 0.9
    assert stale.rank is None
    assert both.rank == (1, 1, 1)


def test_the_latest_successful_attempt_counts() -> None:
    first, second = record(score(value=0.1)), record(score(value=0.7), attempt=2)
    (row,) = rows([first, second, record(status="failed", attempt=3)])
    assert row.scores["heldout_accuracy"].mean == 0.7
    assert row.statuses == {"ok": 1}


def test_one_seed_counts_once_although_the_methods_file_changed() -> None:
    later = {"started": "2026-02-01T00:00:00+00:00"}
    (row,) = rows([record(score(value=0.1)), record(score(value=0.7), code="b" * 64, more=later)])
    assert row.seeds == (0,)
    assert row.scores["heldout_accuracy"].mean == 0.7


def test_failed_runs_stay_visible_with_their_reasons_and_seeds() -> None:
    ends = [record(status="timeout", seed=s, more={"reason": "15m are over"}) for s in (1, 2)]
    (row,) = rows([record(), *ends])
    assert row.failures == (("timeout", "15m are over", (1, 2)),)
    assert row.statuses == {"ok": 1, "timeout": 2}
    (alone,) = rows(ends)
    assert (alone.rank, alone.scores, alone.timing) == (None, {}, None)


def test_an_unavailable_score_keeps_its_reason() -> None:
    (row,) = rows([record(score(), score("heldout_fid", None, reason="no weights"))])
    assert row.unavailable == {"heldout_fid": "no weights"}


@pytest.mark.parametrize("mark", ["oracle", "pooled_silos"])
def test_oracles_and_pooled_silos_are_references_and_do_not_rank(mark: str) -> None:
    own, reference = rows([record(score(value=0.2)), record(score(value=0.9), method="best", more={mark: True})])
    assert (own.kind, own.rank) == ("run", (1, 1, 1))
    assert (reference.kind, reference.rank) == ("reference", None)


def test_lower_is_better_where_the_primary_score_says_so() -> None:
    values = {"near": 1.0, "far": 5.0}
    made = [record(score("heldout_fid", v, primary=True), method=m) for m, v in values.items()]
    assert [row.method for row in rows(made)] == ["near", "far"]


def test_ranks_tie_where_intervals_overlap() -> None:
    spans = {"best": (0.9, 0.92), "wide": (0.6, 0.8), "narrow": (0.65, 0.7), "worst": (0.1, 0.12)}
    made = [record(score(value=v), method=m, seed=s) for m, pair in spans.items() for s, v in enumerate(pair)]
    assert {row.method: tuple(row.rank) for row in rows(made)} == {
        "best": (1, 1, 1),
        "wide": (2, 2, 3),
        "narrow": (3, 2, 3),
        "worst": (4, 4, 4),
    }


def test_a_single_seed_leaves_its_rank_open() -> None:
    found = ranks([0.9, 0.5, 0.1], [None, Interval(0.4, 0.6), Interval(0.1, 0.1)], higher=True)
    assert [tuple(rank) for rank in found] == [(1, 1, 3), (2, 1, 2), (3, 2, 3)]


def test_rows_are_the_same_for_any_order_of_the_records() -> None:
    made = [record(score(value=0.1 * s + 0.05 * len(m)), method=m, seed=s) for m in ("mono", "cfg") for s in range(8)]
    made += [record(score(value=0.3), attempt=1), record(score(value=0.4), attempt=1)]  # both claim to be one attempt
    first = rows(made)
    for seed in range(5):
        random.Random(seed).shuffle(made)
        assert rows(made) == first


def test_interval_of_two_values_is_their_span() -> None:
    assert interval([1.0, 0.0]) == (0.0, 1.0)  # means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4
    assert interval([0.3]) is None


def test_interval_of_four_values_drops_the_extreme_resamples() -> None:
    # Of 256 resamples of (0, 0, 0, 4), the mean is k with probability C(4, k) 3^(4-k) / 256: 4 has 1/256, 3 has 12/256.
    assert interval([0.0, 0.0, 0.0, 4.0]) == (0.0, 3.0)


def test_interval_of_many_values_is_seeded_and_near_the_normal_one() -> None:
    values = [random.Random(1).gauss(0, 1) for _ in range(1)] + [i / 50 for i in range(50)]
    assert interval(values) == interval(values[::-1])
    low, high = interval([i / 99 for i in range(100)])
    assert (low, high) == (pytest.approx(0.5 - 1.96 * 0.029, abs=0.01), pytest.approx(0.5 + 1.96 * 0.029, abs=0.01))


@pytest.mark.parametrize("n", [2, 3, 6])
def test_resamples_have_probability_one(n: int) -> None:
    plan = resamples(n)
    assert sum(plan.probability) == pytest.approx(1)
    assert all(sum(counts) == n for counts in plan.counts)


def test_sample_std_divides_by_n_minus_one() -> None:
    assert sample_std([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx((32 / 7) ** 0.5)
    assert sample_std([3.0]) == 0.0


def test_read_records_reports_bad_files_and_keeps_the_good(tmp_path: Path) -> None:
    good = dump(record())
    contents = {
        f"{record().name}.json": good,
        "b.json": good[: len(good) // 2],
        "c.json": b'{"format": 99}',
        "d.json": good.replace(b'"quick"', b'"slow"'),
        "e.json": b"[" * 100_000,
        "f.json": b"\xff\xfe",
        "g.json": good.replace(b'"format": %d,' % RECORD_FORMAT, b""),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found, problems = read_records([*tmp_path.iterdir(), tmp_path / "missing.json"])
    assert found == [record()]
    assert [problem.path.name for problem in problems] == [*sorted(contents)[:-1], "missing.json"]
    assert all(problem.reason and "\n" not in problem.reason for problem in problems)
