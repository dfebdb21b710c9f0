"""Profiles on disk: immutable, checked on reading, and found for the records that they are the cost of."""

from pathlib import Path
from typing import Any

import pytest
from support.sample_records import record as make_record

from compbench.api.schemas import Record
from compbench.store.profiles import CostProfile, Costs, Measure, Requests, read_profiles, write_profile
from compbench.system.errors import CompbenchError


def made(record: Record, **more: Any) -> CostProfile:
    facts = {
        "train_step_seconds": Measure.of([0.01, 0.02, 0.04, 0.02, 0.03]),
        "request": Requests.of([[0.5]] * 5),
        "request_rows": 32,
        "single": Requests.of([[0.02, 0.01, 0.03]] * 4 + [[0.02, 0.01, 0.3]]),
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
    assert (profile.train_steps_per_second, profile.samples_per_second) == (50.0, 64.0)
    assert (profile.single.medians.median, profile.single.p95, profile.single.count) == (0.02, 0.3, 15)
    assert write_profile(tmp_path, profile) == path
    assert read_profiles(tmp_path / "none") == ([], [])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"request_rows": 32', '"request_rows": 64', "was changed or renamed"),
        ('"median": 0.02', '"median": 0.001', "median and spread do not match the values"),
        ('"median": 0.5', '"median": NaN', "is not a valid profile"),
        ('"format": 2', '"format": 1', "is not a valid profile: format"),
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


KINDS = {"shapes3d-heavy": "images", "shapes3d-light": "images", "gmm-id": "plane"}


def of_task(record: Record, task: str, **more: Any) -> Record:
    return record.model_copy(update={"spec": record.spec.model_copy(update={"task": task, **more})})


def test_a_record_finds_the_cost_of_its_settings_on_any_seed_and_device_and_of_no_others() -> None:
    record = make_record()
    spec = record.spec
    costs = Costs([made(record)])
    for change in ({"seed": 7, "metrics": {"fd": 2}}, {"device_class": "A GPU"}, {"precision": "bf16"}):
        assert costs.of(record.model_copy(update={"spec": spec.model_copy(update=change)})).of_task == ""
    wider = spec.budget.model_copy(update={"width": spec.budget.width + 1})
    for change in ({"settings": {**spec.settings, "more": 1}}, {"preset": "paper"}, {"budget": wider}):
        assert costs.of(record.model_copy(update={"spec": spec.model_copy(update=change)})) is None


def test_a_task_without_a_measurement_takes_that_of_a_task_of_its_kind_and_names_it() -> None:
    record = of_task(make_record(), "shapes3d-heavy")
    costs = Costs([made(record)], KINDS)
    assert costs.of(of_task(record, "shapes3d-light", task_settings={"coverage": 0.5})).of_task == "shapes3d-heavy"
    assert costs.of(record).of_task == ""
    for task in ("gmm-id", "nobody-knows"):
        assert costs.of(of_task(record, task)) is None
    own = made(of_task(record, "shapes3d-light"), request_rows=64)
    assert Costs([made(record), own], KINDS).of(of_task(record, "shapes3d-light")).profile == own


def test_another_version_s_cost_stands_for_a_row_at_default_settings_alone() -> None:
    record = of_task(make_record(), "shapes3d-heavy")
    newer = made(of_task(record, "shapes3d-heavy", method_version=9, settings={"more": 1}))
    costs = Costs([newer], KINDS)
    assert costs.of(record) is None
    found = costs.of(record, default=True)
    assert (found.of_version, found.of_task) == (9, "")
    found = costs.of(of_task(record, "shapes3d-light"), default=True)
    assert (found.of_version, found.of_task) == (9, "shapes3d-heavy")
    own = made(of_task(record, "shapes3d-light"))
    assert Costs([newer, own], KINDS).of(record, default=True).of_task == "shapes3d-light"


def test_costs_are_of_one_machine_the_most_measured_or_the_one_that_is_named() -> None:
    record = make_record()
    fast = made(record, cpu="fast one")
    slow = [made(record, cpu="slow one", started=f"2026-01-0{day}T00:00:00+00:00") for day in (1, 2)]
    assert Costs([fast, *slow]).of(record).profile == slow[1]
    assert Costs([fast, *slow], hardware="FAST").of(record).profile == fast
    for name, words in (("gpu", "names no measured machine"), ("one", "names 2 measured machines")):
        with pytest.raises(CompbenchError, match=f"--hardware '{name}' {words}; there are: fast one, .*; slow one, "):
            Costs([fast, *slow], hardware=name)


def test_a_measurement_alone_counts_before_a_later_one_beside_others() -> None:
    record = make_record()
    beside = made(record, other_cores=Measure.of([0.0, 0.0, 1.0, 0.0, 0.0]), started="2026-03-01T00:00:00+00:00")
    later = made(record, started="2026-02-01T00:00:00+00:00")
    assert (beside.alone, later.alone, made(record, other_cores=None).alone) == (False, True, False)
    for order in ([beside, later, made(record)], [made(record), later, beside]):
        assert Costs(order).of(record).profile == later
