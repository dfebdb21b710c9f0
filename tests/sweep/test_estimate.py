"""What missing runs may take, by finished ones: a method's own, else the same on other tasks, else the task's, else unknown."""

from __future__ import annotations

from support.sample_records import record

from compbench.api.schemas import RunRequest
from compbench.sweep.estimate import expected_seconds


def request(method: str, task: str = "gmm-id", preset: str = "quick") -> RunRequest:
    return RunRequest(method=method, task=task, preset=preset, seed=9, home="home")


def run(method: str, seconds: float, task: str = "gmm-id", **facts):
    return record(method=method, task=task, more={"seconds": seconds}, **facts)


def test_a_median_of_the_method_then_of_the_task_then_nothing() -> None:
    records = [run("mono", 10.0), run("mono", 20.0), run("mono", 90.0), run("fkc", 100.0)]
    asked = [
        request("mono"),
        request("fkc"),
        request("factored"),
        request("mono", task="gmm-ood"),
        request("mono", preset="smoke"),
    ]
    assert expected_seconds(asked, records) == [20.0, 100.0, 60.0, None, None]


def test_a_method_that_is_new_on_a_task_takes_there_what_the_methods_in_common_say() -> None:
    records = [
        *(run("mono", 10.0), run("fkc", 100.0), run("mono-oracle", 1.0), run("factored", 30.0)),
        *(run("mono", 20.0, "gmm-ood"), run("fkc", 300.0, "gmm-ood"), run("mono-oracle", 4.0, "gmm-ood")),
        *(run("mono", 1000.0, "bump-center"), run("factored", 700.0, "bump-center")),
        run("factored", 5.0, "gmm-ood", preset="smoke"),
    ]
    here, of_one_task, alone = request("factored", task="gmm-ood"), request("fkc", task="bump-center"), request("dit")
    by_gmm_id, by_bumps = 30 * 3, 700 * 20 / 1000
    assert expected_seconds([here], records) == [(by_gmm_id + by_bumps) / 2]
    assert expected_seconds([of_one_task, alone], records) == [(100 * (100 + 70 / 3) / 2 + 300 * 50) / 2, 20.0]


def test_failed_and_resumed_runs_say_nothing() -> None:
    records = [run("mono", 10.0, status="failed"), record(method="mono", task="gmm-id", more={"seconds": 5.0, "resumed": True})]
    assert expected_seconds([request("mono")], records) == [None]
