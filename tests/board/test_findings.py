"""The sentences over the matrix: what a cheap method saves, and when that is worth saying."""

from __future__ import annotations

import pytest
from support.sample_records import record, score

from compbench.api.schemas import Profile, Record
from compbench.board.aggregate import aggregate
from compbench.board.families import contests
from compbench.board.findings import findings

TASKS = ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy")


def runs(method: str, value: float, flops: float) -> list[Record]:
    profile = Profile(flops_per_train_step=flops, train_steps=1, flops_per_sample=0.0)
    return [
        record(score(value=value + 0.01 * seed, ceiling=1.0), method=method, task=task, seed=seed, more={"profile": profile})
        for task in TASKS
        for seed in range(3)
    ]


def said(*records: Record) -> str:
    (contest,) = contests(aggregate(records))
    return " ".join(findings(contest))


@pytest.mark.parametrize(
    ("best", "other", "sentence"),
    [
        ((0.80, 8e12), (0.76, 2e12), "On images other attains 95 % of best's share with 2 TFLOP instead of 8 TFLOP"),
        ((0.80, 2e12), (0.76, 8e12), "On images best attains 106 % of other's share with 2 TFLOP instead of 8 TFLOP"),
        ((0.80, 8e12), (0.60, 2e12), ""),  # not nearly as much
        ((0.80, 8e12), (0.76, 7e12), ""),  # hardly a saving
    ],
)
def test_the_cheapest_of_the_good_is_set_beside_the_dearest(
    best: tuple[float, float], other: tuple[float, float], sentence: str
) -> None:
    found = said(*runs("best", *best), *runs("other", *other), *runs("poor", 0.2, 1e9))
    assert (sentence in found) if sentence else ("share with" not in found)


def test_what_the_seeds_do_not_exclude_may_be_best_and_many_are_counted() -> None:
    alike = [one for number in range(6) for one in runs(f"alike{number}", 0.8, 1e12)]
    assert "On images alike0, alike1, alike2 and 3 more may be best" in said(*alike, *runs("poor", 0.2, 1e9))
    assert "On images alike0 is best: it attains 0.80" in said(*runs("alike0", 0.8, 1e12), *runs("poor", 0.2, 1e9))


def test_what_was_not_run_is_named_where_it_is_the_smaller_part() -> None:
    whole = [*runs("best", 0.8, 1e12), *runs("poor", 0.2, 1e9)]
    assert "No method ran" not in said(*(one for one in whole if one.spec.task == TASKS[0]))
    assert "No method ran" in said(*whole)


def test_no_sentence_is_longer_than_25_words() -> None:
    alike = [one for number in range(6) for one in runs(f"alike{number}", 0.8 + number / 100, 8.0**number)]
    (contest,) = contests(aggregate([*alike, *runs("poor", 0.01, 1e9)]))
    assert findings(contest)
    assert max(len(sentence.split()) for sentence in findings(contest)) <= 25


def test_where_share_and_rank_name_two_methods_the_page_says_so() -> None:
    steady = dict(zip(TASKS, (0.9, 0.9, 0.3), strict=True))
    single = dict(zip(TASKS, (0.8, 0.8, 0.9), strict=True))
    made = [
        record(score(value=own[task] + 0.01 * seed, ceiling=1.0), method=method, task=task, seed=seed)
        for method, own in (("steady", steady), ("single", single))
        for task in TASKS
        for seed in range(3)
    ]
    assert "The first on images depends on the rule: single by mean share, steady by mean rank." in said(*made)
