"""The page of sealed holdouts, shots, tuning and structure: what it says of records whose answer is known."""

from __future__ import annotations

import pytest
from results_unasked import FIGURE, PAGE, unasked
from structure import FEWEST
from support.sample_records import record, score

from compbench.api.schemas import Record, Structure, Tuning
from compbench.board.aggregate import aggregate


def page(records: list[Record]) -> dict[str, str]:
    board = aggregate(records, method_defaults={(method, ""): (1, {"hidden": 64}) for method in ("mono", "factored")})
    return unasked(board.rows, records, "<!-- by a command -->", board.verdicts)


def sealed_and_public(hidden: list[float]) -> list[Record]:
    made = [record(score(value=value), seed=seed) for seed, value in enumerate([0.9, 0.8, 0.85])]
    for seed, value in enumerate(hidden):
        own = {"coverage": 0.0, "design": "permuted", "split_seed": 7 + seed}
        made.append(record(score(value=value), seed=seed, task_settings=own, more={"sealed": True}))
    return made


def test_without_a_record_that_speaks_there_is_no_page() -> None:
    assert page([record(score(value=0.5), seed=seed) for seed in range(3)]) == {}


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        ([0.2, 0.1, 0.15], "contains zero for 0 of 1 pairs of method and task; `factored` on shapes3d-heavy loses 0.70."),
        ([0.9, 0.8, 0.85], "contains zero for 1 of 1 pairs of method and task."),
        ([0.98, 0.99, 1.0], "contains zero for 0 of 1 pairs of method and task; `factored` on shapes3d-heavy gains 0.14."),
    ],
)
def test_a_drop_is_said_with_its_sign_and_in_the_table(hidden: list[float], said: str) -> None:
    text = page(sealed_and_public(hidden))[PAGE]
    assert said in text
    assert "| `factored` | 0.850 |" in text
    assert "| 3, 3 |" in text


def test_runs_of_an_older_version_of_their_task_are_named() -> None:
    newer = [record(score(value=0.5), seed=seed, task_version=9) for seed in range(2)]
    said = "Some of these runs have an older version of their task: shapes3d-heavy (version "
    assert said not in page(sealed_and_public([0.9, 0.8, 0.85]))[PAGE]
    assert said in page([*sealed_and_public([0.9, 0.8, 0.85]), *newer])[PAGE]


def test_shots_are_tabled_and_converted_to_examples() -> None:
    made = [record(score(value=0.4 + 0.01 * seed), method="mono", seed=seed) for seed in range(3)]
    made += [record(score(value=0.6 + 0.01 * seed), method="factored", seed=seed) for seed in range(3)]
    for method in ("mono", "factored"):
        made += [
            record(score(value=0.8 + 0.01 * seed), method=method, seed=seed, task_settings={"shots": 1}) for seed in range(3)
        ]
    text = page(made)[PAGE]
    assert "| `mono` | 0.410 (3) | 0.810 (3) |" in text
    assert "is worth 0.4" in text  # half of the way in log2(1 + n)


@pytest.mark.parametrize(("seen", "is_said"), [(0.2, True), (0.95, False)])
def test_shots_of_a_task_that_was_not_learnt_are_said_to_measure_the_fits_too(seen: float, is_said: bool) -> None:
    made = [
        record(
            score(value=0.1, ceiling=1.0), score("seen_accuracy", seen, ceiling=1.0), method="mono", seed=seed, task_settings=own
        )
        for seed in range(3)
        for own in ({}, {"shots": 1})
    ]
    text = page(made)[PAGE]
    assert ("(at best 20 %), so these scores also measure how far the fits got" in text) == is_said
    assert f"| `mono`, seen cells | {seen:.3f} (3) | {seen:.3f} (3) |" in text


def test_tuned_rows_stand_beside_default_ones_and_the_order_is_compared() -> None:
    study = {"task": "shapes3d-heavy", "preset": "quick", "trials": 10, "objective": "energy score", "num_cells": 20}
    more = {"tuning": Tuning(**study, value=0.1, default_value=0.2, train_flops=2e12, cpu_seconds=123)}

    def made(scores: dict[str, tuple[float, float]]) -> list[Record]:
        found = []
        for method, (default, tuned) in scores.items():
            for seed in range(3):
                own = {"method": method, "seed": seed}
                found.append(record(score(value=default + 0.01 * seed), settings={"hidden": 64}, **own))
                found.append(record(score(value=tuned + 0.01 * seed), settings={"hidden": 32}, more=more, **own))
        return found

    text = page(made({"mono": (0.5, 0.8), "factored": (0.6, 0.65)}))[PAGE]
    assert "### shapes3d-heavy, quick: heldout_accuracy, higher is better" in text
    assert "| `mono` | 0.510 | 0.810 | +0.300 to +0.300 | 3 | 10 | 123 |" in text
    assert "1 of 1 pairs of methods change places when both are tuned (`mono` and `factored`); in 1 of these pairs both" in text
    assert "The order of the means is the same" in page(made({"mono": (0.5, 0.6), "factored": (0.6, 0.65)}))[PAGE]
    near = page(made({"mono": (0.599, 0.66), "factored": (0.6, 0.65)}))[PAGE]
    assert "in none of these pairs is the order significant" in near


def test_structure_that_follows_the_share_is_said_to_tell_and_drawn() -> None:
    made = []
    for number in range(FEWEST):
        share = 0.1 + 0.08 * number
        own = Structure(layer="leave", num_cells=10, num_units=5, num_effects=3, r2=share, cosine=0.5 + 0.01 * (number % 3))
        made.append(record(score(value=share, ceiling=1.0), method=f"method-{number}", more={"structure": own}))
    texts = page(made)
    assert "Within tasks, a larger R2 goes with a larger share." in texts[PAGE]
    assert "| R2 | within tasks | +1.00 | +1.00 to +1.00 |" in texts[PAGE]
    assert texts[FIGURE].startswith("<svg")
