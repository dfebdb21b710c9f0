"""What missing runs may take, by finished ones: a method's own, else the task's, else unknown."""

from __future__ import annotations

from support.sample_records import record

from compbench.schemas import RunRequest
from compbench.sweep.estimate import expected_seconds


def request(method: str, task: str = "gmm-id", preset: str = "quick") -> RunRequest:
    return RunRequest(method=method, task=task, preset=preset, seed=9, home="home")


def run(method: str, seconds: float, **facts):
    return record(method=method, task="gmm-id", more={"seconds": seconds}, **facts)


def test_a_median_of_the_method_then_of_the_task_then_nothing() -> None:
    records = [run("mono", 10.0), run("mono", 20.0), run("mono", 90.0), run("fkc", 100.0)]
    asked = [
        request("mono"),
        request("fkc"),
        request("factored"),
        request("mono", task="gmm-ood"),
        request("mono", preset="smoke"),
    ]
    assert expected_seconds(asked, records) == [20.0, 100.0, 55.0, None, None]


def test_failed_and_resumed_runs_say_nothing() -> None:
    records = [run("mono", 10.0, status="failed"), record(method="mono", task="gmm-id", more={"seconds": 5.0, "resumed": True})]
    assert expected_seconds([request("mono")], records) == [None]
