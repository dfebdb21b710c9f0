"""Profiles on disk: immutable, checked on reading, and found for the records that they are the cost of."""

from pathlib import Path
from typing import Any

import pytest
from support.sample_records import record as make_record

from compbench.api.schemas import Record
from compbench.store.profiles import CostProfile, Measure, by_cost_key, profile_of_record, read_profiles, write_profile


def made(record: Record, **more: Any) -> CostProfile:
    facts = {
        "train_step_seconds": Measure.of([0.01, 0.02, 0.04, 0.02, 0.03]),
        "request_seconds": Measure.of([0.5] * 5),
        "request_rows": 32,
        "peak_memory_bytes": Measure.of([2**30] * 5),
        "other_cores": Measure.of([0.0, 0.1, 0.0, 0.0, 0.0]),
        "cores": 2,
        "threads": 2,
        "cpu": "a processor",
        "torch": "2",
        "compbench": "0.1",
        "started": "2026-01-01T00:00:00+00:00",
    }
    return CostProfile(spec=record.spec.model_copy(update={"seed": 0, "metrics": {}}), **{**facts, **more})


def test_a_profile_comes_back_as_it_was_written(tmp_path: Path) -> None:
    profile = made(make_record())
    path = write_profile(tmp_path, profile)
    assert read_profiles(tmp_path) == ([profile], [])
    assert (profile.train_steps_per_second, profile.samples_per_second, profile.latency_ms) == (50.0, 64.0, 500.0)
    assert write_profile(tmp_path, profile) == path
    assert read_profiles(tmp_path / "none") == ([], [])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"request_rows": 32', '"request_rows": 64', "was changed or renamed"),
        ('"median": 0.02', '"median": 0.001', "median and spread do not match the values"),
        ('"median": 0.5', '"median": NaN', "is not a valid profile"),
        ('"format": 1', '"format": 2', "is not a valid profile: format"),
        ('"threads": 2', '"threads": 2, "surprise": 1', "is not a valid profile: surprise"),
        ("{", "[" * 400, "is not a valid profile"),
    ],
)
def test_an_edited_or_forged_profile_is_refused(old: str, new: str, why: str, tmp_path: Path) -> None:
    good = write_profile(tmp_path, made(make_record(), torch="3"))
    path = write_profile(tmp_path, made(make_record()))
    path.write_text(path.read_text().replace(old, new, 1))
    found, problems = read_profiles(tmp_path)
    assert [profile.name for profile in found] == [good.name]
    assert (problems[0].path, why in problems[0].reason) == (path, True), problems[0].reason


def test_links_and_fewer_than_five_repetitions_are_refused(tmp_path: Path) -> None:
    path = write_profile(tmp_path, made(make_record()))
    (tmp_path / "a.json").symlink_to(path)
    assert [problem.path.name for problem in read_profiles(tmp_path)[1]] == ["a.json"]
    with pytest.raises(ValueError, match="at least 5"):
        Measure.of([1.0] * 4)


def test_a_record_finds_the_cost_of_its_settings_on_any_seed_and_of_no_others() -> None:
    record = make_record()
    spec = record.spec
    profiles = by_cost_key([made(record)])
    other_seed = record.model_copy(update={"spec": spec.model_copy(update={"seed": 7, "metrics": {"fd": 2}})})
    assert profile_of_record(other_seed, profiles) is not None
    for change in ({"settings": {**spec.settings, "more": 1}}, {"device_class": "A GPU"}, {"preset": "paper"}):
        assert profile_of_record(record.model_copy(update={"spec": spec.model_copy(update=change)}), profiles) is None


def test_a_measurement_alone_counts_before_a_later_one_beside_others() -> None:
    record = make_record()
    beside = made(record, other_cores=Measure.of([0.0, 0.0, 1.0, 0.0, 0.0]), started="2026-03-01T00:00:00+00:00")
    later = made(record, started="2026-02-01T00:00:00+00:00")
    assert (beside.alone, later.alone, made(record, other_cores=None).alone) == (False, True, False)
    for order in ([beside, later, made(record)], [made(record), later, beside]):
        assert profile_of_record(record, by_cost_key(order)) == later
