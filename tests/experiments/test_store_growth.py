"""The stores of `experiments/store_growth.py` are stores: distinct runs, each a record that reads back."""

from pathlib import Path

import store_growth
from support.sample_records import record

from compbench.store.records import Store


def test_a_filled_store_holds_so_many_distinct_runs_that_read_back(tmp_path: Path) -> None:
    own = [record(method=method, seed=seed) for method in ("mono", "coind") for seed in (0, 1)]
    store_growth.fill(tmp_path / "records", own, 7)
    found, problems = Store(tmp_path / "records").read()
    assert problems == []
    assert len({one.identity for one in found}) == len(found) == 7
    assert {one.spec.method for one in found} == {"mono", "coind"}
