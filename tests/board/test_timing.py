"""Cost columns: speeds of profiles and of nothing else, shared fits charged in full, FLOPs over all silos."""

from typing import Any

import pytest
from store.test_profiles import made
from support.sample_records import record

from compbench.api.schemas import Profile, Record, SiloProfile, Stage
from compbench.board.timing import charged_seconds, timing, train_flops
from compbench.store.profiles import Costs, Measure


def with_profile(**facts: Any) -> Record:
    notes = facts.pop("notes", {})
    return record(more={"profile": Profile(**facts), "notes": notes})


def test_the_speed_of_a_run_is_no_cost_and_that_of_a_profile_is() -> None:
    run = record(speed=1e9)
    bare = timing([run])
    assert (bare.sample_samples_per_second, bare.train_steps_per_second, bare.clean, bare.hardware) == (None, None, False, "")
    measured = timing([run, record(seed=1)], Costs([made(run)]))
    assert (measured.sample_samples_per_second, measured.train_steps_per_second) == (64.0, 50.0)
    assert (measured.clean, measured.remark, measured.hardware) == (True, "", "a processor, 2 threads")
    assert (measured.latency_p50_ms, measured.latency_p95_ms, measured.peak_memory_bytes) == (20.0, 300.0, 2**30)


def test_a_profile_beside_others_or_of_other_code_says_so() -> None:
    run = record()
    busy = made(run, other_cores=Measure.of([0.0, 0.0, 0.9, 0.0, 0.0]))
    assert timing([run], Costs([busy])).clean is False
    other = made(run).model_copy(update={"spec": run.spec.model_copy(update={"code": "b" * 64, "seed": 0})})
    assert timing([run], Costs([other])).remark == "of other code"


def test_a_run_that_loaded_a_shared_fit_is_charged_all_of_it() -> None:
    stages = (Stage(name="fit", seconds=80.0), Stage(name="sample", seconds=5.0))
    loaded = with_profile(stages=stages, notes={"fit shared": 1.0})
    fitted = with_profile(stages=stages)
    assert (charged_seconds(loaded), charged_seconds(fitted)) == (200.0, 120.0)
    assert (timing([loaded]).seconds, timing([loaded]).shared, timing([fitted]).shared) == (200.0, True, False)


def test_a_resumed_run_whose_earlier_seconds_no_one_knows_is_left_out_of_the_mean() -> None:
    resumed, whole = record(more={"resumed": True, "seconds": 20.0}), record(seed=1)
    assert (timing([resumed, whole]).seconds, timing([resumed]).seconds) == (120.0, None)


@pytest.mark.parametrize(("silos", "total"), [(0, 1000 * 7.0), (3, 3 * 400 * 7.0)])
def test_training_flops_are_those_of_all_silos(silos: int, total: float) -> None:
    accounts = tuple(SiloProfile(name=f"silo {k}", size=10, steps=400) for k in range(silos))
    assert train_flops(with_profile(flops_per_train_step=7.0, silos=accounts)) == total
    assert train_flops(with_profile()) is None


def test_runs_of_different_machines_are_not_averaged() -> None:
    odd = record(cpu="fast", more={"seconds": 1.0})
    assert timing([odd, record(seed=1), record(seed=2)]).seconds == 120.0


def test_a_row_of_other_devices_or_tasks_has_the_speed_of_the_measured_machine_and_says_of_what() -> None:
    gpu = {"device_class": "NVIDIA H200", "code": "b" * 64}
    runs = [record(), record(seed=1, **gpu), record(seed=2, **gpu)]
    costs = Costs([made(runs[0])], {"shapes3d-heavy": "images", "shapes3d-light": "images"})
    assert (timing(runs, costs).remark, timing(runs[1:], costs).remark) == ("", "")  # whatever code another device has
    light = record(task="shapes3d-light", code="c" * 64)
    assert (timing([light], costs).train_steps_per_second, timing([light], costs).remark) == (50.0, "measured on shapes3d-heavy")


def test_the_time_of_a_cost_is_that_of_its_steps_and_of_its_samples() -> None:
    """100 steps at 50 a second, and 640 samples at 64 a second."""
    run = with_profile(train_steps=100)
    assert timing([run], Costs([made(run)])).wall_seconds(640) == 12.0
    assert timing([run]).wall_seconds(640) is None
    closed, untimed = with_profile(train_steps=0), made(run, train_step_seconds=None)
    assert timing([closed], Costs([untimed])).wall_seconds(640) == 10.0  # a fit in closed form takes no step
    assert timing([run], Costs([untimed])).wall_seconds(640) is None


def test_the_flops_of_a_cost_are_those_of_training_and_of_its_samples() -> None:
    found = timing([with_profile(train_steps=100, flops_per_train_step=7.0, flops_per_sample=3.0)])
    assert found.flops(10) == 730.0
    assert timing([with_profile(train_steps=100, flops_per_train_step=7.0)]).flops(10) is None
