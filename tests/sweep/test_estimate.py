"""What missing runs may take, by finished ones: a method's own, else the same on other tasks, else the task's, else unknown."""

from __future__ import annotations

from pathlib import Path

from support.sample_records import record

from compbench.api.schemas import RunRequest
from compbench.store.listing import Listing
from compbench.store.records import Store
from compbench.sweep.estimate import Took, expected_seconds, longest_first, seconds_taken


def request(method: str, task: str = "gmm-id", preset: str = "quick") -> RunRequest:
    return RunRequest(method=method, task=task, preset=preset, seed=9, home="home")


def run(method: str, seconds: float, task: str = "gmm-id", preset: str = "quick") -> Took:
    return Took(task, method, preset, seconds)


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


def test_failed_and_resumed_runs_and_those_on_gpus_say_nothing(tmp_path: Path) -> None:
    store, facts = Store(tmp_path), {"method": "mono", "task": "gmm-id", "preset": "quick"}
    store.write(record(**facts, status="failed", more={"seconds": 10.0}))
    store.write(record(**facts, seed=1, more={"seconds": 5.0, "resumed": True}))
    store.write(record(**facts, seed=2, device_class="NVIDIA H200", more={"seconds": 2.0}))
    assert list(seconds_taken(Listing(store), {"quick"}, on_gpu=False)) == []
    assert list(seconds_taken(Listing(store), {"quick"}, on_gpu=True)) == [run("mono", 2.0)]
    store.write(record(**facts, seed=3, more={"seconds": 40.0}))
    assert list(seconds_taken(Listing(store), {"quick"}, on_gpu=False)) == [run("mono", 40.0)]
    assert list(seconds_taken(Listing(store), {"smoke"}, on_gpu=False)) == []


def test_the_longest_run_begins_first_and_one_of_unknown_length_before_it() -> None:
    asked = [request("mono"), request("fkc"), request("mono", task="gmm-ood")]
    assert longest_first(asked, [run("mono", 10.0), run("fkc", 100.0)]) == [2, 1, 0]
