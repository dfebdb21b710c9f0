"""The table of claims: what holds, what is reversed, what is open, and a fresh document."""

from __future__ import annotations

import claims
import pytest
from support.sample_records import record, score

from compbench.api.interfaces import Budget
from compbench.api.schemas import Record
from compbench.board.ranking import p_values
from compbench.registry.registry import Registry

TASK = "shapes3d-heavy"


def runs(method: str, values: tuple[float, ...], *, seen: float = 0.99, task: str = TASK, **facts) -> list[Record]:
    return [
        record(
            score(value=value, ceiling=1.0),
            score(name="seen_accuracy", split="seen", value=seen, ceiling=1.0, primary=False),
            method=method,
            task=task,
            seed=seed,
            **facts,
        )
        for seed, value in enumerate(values)
    ]


def verdicts(*records: Record) -> dict[tuple[str, str], str]:
    found = claims.examine(records, "quick")
    return {
        (each.claim.better.method, each.claim.worse.method): verdict
        for each, verdict in zip(found, claims.verdicts(found), strict=True)
    }


def test_a_clear_order_holds_and_its_opposite_is_reversed() -> None:
    good, poor = runs("factored", (0.80, 0.82, 0.81)), runs("mono", (0.50, 0.51, 0.52))
    assert verdicts(*good, *poor) == {("factored", "mono"): "**holds**"}
    good, poor = runs("mono", (0.80, 0.82, 0.81)), runs("factored", (0.50, 0.51, 0.52))
    assert verdicts(*good, *poor) == {("factored", "mono"): "**reversed**"}


def test_rows_of_few_examples_say_what_share_of_the_papers_they_had() -> None:
    rows = [*runs("factored", (0.80, 0.82)), *runs("mono", (0.50, 0.51))]
    said = claims.shares_of_examples(claims.examine(rows, "quick"), Registry())
    assert said.endswith(f": 1/400 (64,000 of 25,600,000) on {TASK}.")
    many = [run.model_copy(update={"spec": run.spec.model_copy(update={"budget": paper_budget()})}) for run in rows]
    assert claims.shares_of_examples(claims.examine(many, "quick"), Registry()) == ""


def paper_budget() -> Budget:
    return Registry().load("tasks", TASK).budgets["paper"]


def test_no_order_is_claimed_that_its_paper_does_not_compare() -> None:
    forced = [claim for claim in claims.claims() if claim.paper == "Forced rendering"]
    assert {side.method for claim in forced for side in (claim.better, claim.worse)} == {"low-rank"}
    assert len(forced) == 6
    plans = [claim.worse for claim in claims.claims() if claim.task == "planning-noniid"]
    assert plans == 2 * [claims.Side(method, {"local_ci": True}) for method in ("fedflow", "ddm", "dfd")]  # DCFM, table 2


def test_noise_and_one_seed_are_open() -> None:
    assert verdicts(*runs("factored", (0.8, 0.4, 0.6)), *runs("mono", (0.5, 0.6, 0.5)))["factored", "mono"] == "open"
    assert verdicts(*runs("factored", (0.8,)), *runs("mono", (0.1,)))["factored", "mono"] == "open"


def test_an_order_does_not_hold_because_other_claims_of_its_paper_have_not_been_run() -> None:
    near = [*runs("factored", (0.80, 0.65, 0.72)), *runs("mono", (0.50, 0.50, 0.50))]
    found = claims.examine(near, "quick")
    assert [0.01 < (each.p or 0) < 0.05 for each in found] == [True]  # significant alone, but not as one of six
    assert claims.verdicts(found) == ["open"]
    clear = [*runs("factored", (0.80, 0.80, 0.81)), *runs("mono", (0.50, 0.50, 0.50))]
    assert verdicts(*clear)["factored", "mono"] == "**holds**"
    assert verdicts(*clear, *runs("slice-cfg", (0.40,))) == {("factored", "mono"): "**holds**", ("mono", "slice-cfg"): "open"}


def test_claims_are_corrected_within_their_paper_and_not_for_those_of_others() -> None:
    own = [*runs("factored", (0.80, 0.74, 0.79)), *runs("mono", (0.50, 0.50, 0.50))]
    alone = claims.examine(own, "quick")[0].p or 0
    assert 0.05 / 18 < alone < 0.05 / 6  # it would be open among the claims of two papers
    others = [
        *runs("dcfm-a", (0.5, 0.6), task="cmnist-noniid"),
        *(each for other in ("fedflow", "ddm", "dfd") for each in runs(other, (0.5, 0.5), task="cmnist-noniid")),
    ]
    assert verdicts(*own, *others)["factored", "mono"] == "**holds**"


def test_a_claim_borrows_a_variance_from_its_papers_rows_and_from_none_that_joined_later() -> None:
    values = {"dcfm-b": (0.60, 0.64, 0.66), "fedflow": (0.52, 0.51, 0.56), "ddm": (0.50, 0.58, 0.51), "dfd": (0.3, 0.35, 0.31)}
    rows = [run for method, own in values.items() for run in runs(method, own, task="cmnist-noniid")]
    expected = p_values([dict(enumerate(own)) for own in values.values()], trials=1000)
    joined = [*runs("stranger", (0.1, 0.9, 0.5), task="cmnist-noniid"), *runs("soup", (0.0, 0.1, 0.3), task="cmnist-noniid")]
    for given in (rows, [*rows, *joined]):
        found = {
            each.claim.worse.method: each.p for each in claims.examine(given, "quick") if each.claim.better.method == "dcfm-b"
        }
        assert found == pytest.approx({"fedflow": expected[0, 1], "ddm": expected[0, 2], "dfd": expected[0, 3]})
    alone = {each.claim.worse.method: each.p for each in claims.examine([*rows[:3], *rows[6:9]], "quick")}
    assert alone["ddm"] > expected[0, 2]


def test_what_has_not_learnt_is_said() -> None:
    found = verdicts(*runs("factored", (0.80, 0.82, 0.81), seen=0.2), *runs("mono", (0.50, 0.51, 0.52)))
    assert found["factored", "mono"] == "**holds**; not learnt: 0.20 of real data's score on seen"


def test_an_order_with_a_repaired_method_waits_and_is_not_counted() -> None:
    rows = [*runs("factored", (0.80, 0.82, 0.81)), *runs("mono", (0.50, 0.51, 0.52))]
    found = claims.examine(rows, "quick", {"factored": 1, "mono": 3})
    said = claims.verdicts(found)
    assert said == ["waits: version of mono 1, now 3"]
    assert claims.counted(said) == (
        "of 1 order with records, 0 hold, 0 are reversed, 1 wait for runs of a repaired method or task and 0 are open"
    )
    assert claims.verdicts(claims.examine(rows, "quick", {"factored": 1, "mono": 1})) == ["**holds**"]


def test_an_order_waits_whichever_side_is_older_and_for_its_task() -> None:
    rows = [*runs("factored", (0.80, 0.82, 0.81)), *runs("mono", (0.50, 0.51, 0.52), method_version=2)]
    for versions, said in (
        ({"factored": 2, "mono": 2}, "waits: version of factored 1, now 2"),
        ({"factored": 1, "mono": 3}, "waits: version of mono 2, now 3"),
        ({"factored": 1, "mono": 2, TASK: 2}, f"waits: version of {TASK} 1, now 2"),
        ({"factored": 1, "mono": 2, TASK: 1}, "**holds**"),
    ):
        assert claims.verdicts(claims.examine(rows, "quick", versions)) == [said]
    penalties = [
        {"entropy_weight": e, "variance_weight": v, "hidden": 64} for e, v in ((0.1, 0.01), (0.1, 0.0))
    ]  # both sides of forced rendering's claims are one method
    both = [
        record(
            score("heldout_shape_accuracy", value, primary=True),
            method="low-rank",
            task="bump-corner",
            seed=seed,
            settings=own,
            method_version=version,
        )
        for own, version, values in zip(penalties, (3, 4), ((0.8, 0.82), (0.5, 0.52)), strict=True)
        for seed, value in enumerate(values)
    ]
    assert claims.verdicts(claims.examine(both, "quick", {"low-rank": 4})) == ["waits: version of low-rank 3, now 4"]


def test_of_a_distance_less_is_better() -> None:
    def rows(method: str, values: tuple[float, ...]) -> list[Record]:
        return [
            record(
                score(name="heldout_sw2", metric="sw2", value=value, direction="lower", ceiling=None, primary=True),
                method=method,
                task="gmm-id",
                seed=seed,
            )
            for seed, value in enumerate(values)
        ]

    found = verdicts(*rows("fkc-oracle", (0.1, 0.12, 0.11)), *rows("naive-sde-oracle", (1.0, 1.1, 1.05)))
    assert found == {("fkc-oracle", "naive-sde-oracle"): "**holds**"}


def test_runs_of_two_versions_are_not_one_row() -> None:
    old = runs("factored", (0.1, 0.1, 0.1, 0.1, 0.1), method_version=1)
    new = runs("factored", (0.8, 0.8, 0.8), method_version=2)
    found = claims.by_seed([*old, *new], claims.Side("factored"))
    assert {seed: record.spec.method_version for seed, record in found.items()} == {0: 2, 1: 2, 2: 2}
