"""What names and a few lines of records say, against the records themselves."""

import json
from pathlib import Path

import pytest
from support.sample_records import record

from compbench.api.schemas import RunRequest
from compbench.store.listing import Glimpse, Listing, glimpse
from compbench.store.records import Store, read_record

FIXTURES = Path(__file__).parent / "fixtures" / "records"


def test_a_run_is_found_by_its_names_and_no_other(tmp_path: Path) -> None:
    store = Store(tmp_path)
    own = [store.write(record(method="mono", seed=1, attempt=number)) for number in (1, 3)]
    store.write(record(method="mono", seed=11))
    store.write(record(method="mono-oracle", seed=1))
    spec = record(method="mono", seed=1).spec
    request = RunRequest(task=spec.task, method="mono", preset=spec.preset, seed=1, home="home")
    listing = Listing(store)
    assert listing.of(request) == own
    assert sum(len(paths) for _, paths in listing.runs()) == 4
    assert {run for run, _ in listing.runs()} == {(spec.task, name, spec.preset) for name in ("mono", "mono-oracle")}


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem[:40])
def test_a_glimpse_says_what_the_record_says_in_every_format(path: Path) -> None:
    raw = json.loads(path.read_bytes())
    assert glimpse(path) == Glimpse(raw["status"], raw["spec"]["device_class"], raw.get("resumed", False), raw["seconds"])


def test_of_a_file_that_is_no_record_nothing_is_seen(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{\n "status": "ok",\n "seconds": 1.2.3,\n "x": {"device_class":"cpu"}\n}')
    assert glimpse(tmp_path / "bad.json") is None
    assert glimpse(tmp_path / "absent.json") is None
    path = Store(tmp_path).write(record(more={"seconds": 1e-05}))
    assert glimpse(path) == Glimpse("ok", read_record(path).spec.device_class, False, 1e-05)
