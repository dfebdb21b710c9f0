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
    profile = Profile(flops_per_train_step=flops, train_steps=1)
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
        ((0.80, 8e12), (0.76, 2e12), "On images other attains 95 % of best's share with 2.00 TFLOP instead of 8.00 TFLOP"),
        ((0.80, 2e12), (0.76, 8e12), "On images best attains 105 % of other's share with 2.00 TFLOP instead of 8.00 TFLOP"),
        ((0.80, 8e12), (0.60, 2e12), ""),  # not nearly as much
        ((0.80, 8e12), (0.76, 7e12), ""),  # hardly a saving
    ],
)
def test_the_cheapest_of_the_good_is_set_beside_the_dearest(
    best: tuple[float, float], other: tuple[float, float], sentence: str
) -> None:
    found = said(*runs("best", *best), *runs("other", *other), *runs("poor", 0.2, 1e9))
    assert (sentence in found) if sentence else ("attains" not in found)


def test_a_method_far_behind_with_seeds_that_disagree_is_not_called_best() -> None:
    def by_seed(method: str, *values: float) -> list[Record]:
        return [one for seed, value in enumerate(values) for one in runs(method, value, 1e9) if one.spec.seed == seed]

    unsure = by_seed("unsure", 0.05, 0.7)
    found = said(*runs("one", 0.8, 1e12), *by_seed("other", 0.84, 0.78, 0.79), *unsure, *runs("poor", 0.2, 1e9))
    assert "On images other and one are best and not told apart (up to 0.81 of what" in found
    assert "attain), and unsure is not shown to be worse" in found
    alone = said(*runs("one", 0.8, 1e12), *unsure, *runs("poor", 0.2, 1e9))
    assert "On images one leads (0.81 of what real data attain), and unsure is not shown to be worse" in alone


def test_of_many_that_are_not_told_apart_the_first_are_named() -> None:
    alike = [one for number in range(6) for one in runs(f"alike{number}", 0.8, 1e12)]
    assert "On images alike0, alike1, alike2 and 3 more are best and not told apart" in said(*alike, *runs("poor", 0.2, 1e9))
    assert "On images alike0, alike1, alike2 and alike3 are best" in said(*alike[: 4 * len(alike) // 6], *runs("poor", 0.2, 1e9))


def test_where_nothing_is_told_apart_the_leaders_are_named_and_that_is_said() -> None:
    def two_seeds(method: str, first: float, second: float) -> list[Record]:
        return [run for run in runs(method, first, 1e12) if run.spec.seed == 0] + [
            run for run in runs(method, second, 1e12) if run.spec.seed == 1
        ]

    records = [*two_seeds("one", 0.9, 0.71), *two_seeds("other", 0.8, 0.77), *two_seeds("poor", 0.1, 0.4)]
    assert "On images one and other lead (up to 0.81 of what real data attain), and nothing is told apart from them" in said(
        *records
    )
    (contest,) = contests(aggregate(records))
    (family,) = contest.families
    assert {method: found.best for (method, _), found in family.standings.items()} == {"one": True, "other": True, "poor": False}
