import subprocess
import sys
from pathlib import Path

import pytest

from compbench.api.interfaces import Budget
from compbench.api.schemas import Profile, RunRequest, Stage
from compbench.registry.checkout import plugin_of
from compbench.registry.registry import Registry
from compbench.runner import audit
from compbench.runner.audit import Watch, profile_of
from compbench.runner.messages import Evaluated, FitCost
from compbench.runner.supervisor import cpu_seconds_below
from compbench.system.profiling import StepMeter

REFEREED = Evaluated(
    scores=(),
    stages=(Stage(name="sample", seconds=8.0), Stage(name="score", seconds=1.0, cpu_seconds=0.9)),
    referee_memory_bytes=7,
    batch=50,
    request_seconds=(9.0, 4.0, 2.0, 2.0),
    num_bytes=1000,
    peak_flops_per_second=1e9,
    energy_joules=30.0,
)
BUDGET = Budget(train_steps=1000, batch_size=32, width=8, learning_rate=1e-3, sample_steps=4)


def measured(**more: object) -> dict:
    stages = [{"name": "data", "seconds": 1.0}, {"name": "fit", "seconds": 59.0}]
    stages.append({"name": "sample", "seconds": 7.0, "cpu_seconds": 6.5})
    return {"train_steps": 1000, "parameters": 3, "stages": stages, **more}


def watch(rate: float = 20.0, *, seconds: int = 50, cpu: tuple[float, ...] = (2.0, 2.0, 60.0, 66.6)) -> Watch:
    """A parent's watch of a fit at `rate` steps/s; `cpu` at: described, opened, fitted, evaluated."""
    now, used = iter([0.0, *(0.5 * k for k in range(1, 2 * seconds))]), iter(cpu)
    found = Watch(lambda stage, done, total: None, lambda: next(used))
    found.meter = StepMeter(lambda: next(now))
    for half in range(2 * seconds):
        found("fit", round(rate * half / 2), 1000)
    found.worked()
    found.waited()
    found.worked()
    found.worked(sampling=True)
    return found


def audited(said: dict, seen: Watch | None = None, *, fit_seconds: float = 62.0, refereed=REFEREED, **more) -> Profile:
    return profile_of(said, refereed, seen or watch(), budget=BUDGET, fit_seconds=fit_seconds, **more)


def test_who_pools_silos_may_take_the_steps_of_all() -> None:
    assert "training steps where" in audited(measured(train_steps=10_000)).distrust
    assert audited(measured(train_steps=10_000), num_silos=10).distrust == ""


def test_speeds_are_those_of_the_parents_and_the_referees_clocks() -> None:
    profile = audited(measured(flops_per_train_step=1e6, flops_per_sample=2e6))
    assert profile.distrust == ""
    assert (profile.train_steps_per_second, profile.train_samples_per_second) == (20.0, 640.0)
    assert (profile.sample_samples_per_second, profile.sample_batch) == (25.0, 50)  # the first request is warm-up
    assert (profile.latency_p50_ms, profile.latency_p95_ms, profile.energy_joules) == (2000.0, 4000.0, 30.0)
    assert (profile.share_of_peak_training, profile.share_of_peak_sampling) == (0.02, 0.05)
    assert (profile.seconds("fit"), profile.seconds("sample"), profile.referee_memory_bytes) == (59.0, 8.0, 7)


FORGED = {
    "train_steps_per_second": 1e9,
    "train_samples_per_second": 1e12,
    "sample_samples_per_second": 1e12,
    "sample_batch": 10**9,
    "latency_p50_ms": 1e-6,
    "latency_p95_ms": 1e-6,
    "latency_batch": 10**9,
    "peak_flops_per_second": 1e30,
    "share_of_peak_training": 0.99,
    "share_of_peak_sampling": 0.99,
    "energy_joules": 1e-9,
}


@pytest.mark.parametrize("field", FORGED)
@pytest.mark.parametrize("missing", [(), ("sample_batch",), ("train_steps",)])
def test_no_figure_of_speed_is_the_contestants(field: str, missing: tuple[str, ...]) -> None:
    said = {name: value for name, value in measured(**{field: FORGED[field]}).items() if name not in missing}
    assert getattr(audited(said), field) == getattr(audited(measured()), field)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"stages": [{"name": "fit", "seconds": 0.1}]}, "0.1 s for a fit that took 62 s"),
        ({"stages": [{"name": "fit", "seconds": 99.0}]}, "99 s for a fit that took 62 s"),
        ({"train_steps": 10**9}, "1000000000 training steps where the budget allows 1000 per silo"),
        ({"flops_per_sample": 1e12}, "a device whose peak is 1e+09"),
        ({"flops_per_train_step": 1e12}, "a device whose peak is 1e+09"),
    ],
)
def test_what_our_clocks_contradict_leaves_no_speed(lie: dict, why: str) -> None:
    profile = audited(measured(**lie))
    assert why in profile.distrust
    assert all(getattr(profile, name) is None for name in FORGED)
    assert profile.seconds("score") == 1.0


def test_steps_that_were_only_reported_are_bounded_by_the_budget() -> None:
    assert "training steps where the budget allows 1000" in audited(measured(), watch(1e9)).distrust
    silos = [{"name": str(k), "size": 1} for k in range(4)]
    assert audited(measured(train_steps=5000, silos=silos)).distrust == ""  # four silos and a server
    assert audited(measured(train_steps=10**6, silos=silos * 200)).distrust != ""


def test_a_share_of_peak_is_at_most_one() -> None:
    profile = audited(measured(flops_per_sample=1.2e9 / 25))
    assert (profile.share_of_peak_sampling, profile.peak_flops_per_second) == (1.0, pytest.approx(1.2e9))


@pytest.mark.parametrize(
    ("cpu", "idle"),
    [
        ((2.0, 2.0, 60.0, 66.6), 0.1),  # what sampling used beside its stage: messages
        ((2.0, 40.0, 60.0, 66.5), 38.0),  # while the referee prepared
        ((2.0, 2.0, 60.0, 90.0), 23.5),  # while the referee scored
    ],
)
def test_work_outside_of_every_stage_is_shown_and_distrusted(cpu: tuple[float, ...], idle: float) -> None:
    profile = audited(measured(), watch(cpu=cpu))
    outside = [stage.cpu_seconds for stage in profile.stages if stage.name == "outside"]
    assert outside == [pytest.approx(idle)]
    assert profile.distrust == ("" if idle < 1 else f"it used {idle:g} CPU seconds while it had nothing to do")
    assert (profile.train_steps_per_second is None) is (idle > 1)


def test_compilers_that_work_while_a_request_warms_up_are_not_work_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "num_cores", lambda: 4)
    stages = (Stage(name="warm_up", seconds=5.0), *REFEREED.stages)
    said = measured()
    said["stages"] = [*said["stages"], {"name": "warm_up", "seconds": 3.0, "cpu_seconds": 2.5}]
    for used, distrusted in ((66.5 + 19, False), (66.5 + 35, True)):
        profile = audited(said, watch(cpu=(2.0, 2.0, 60.0, used)), refereed=REFEREED.model_copy(update={"stages": stages}))
        assert [(s.seconds, s.cpu_seconds) for s in profile.stages if s.name == "warm_up"] == [(5.0, 2.5)]
        assert bool(profile.distrust) is distrusted
    assert "warm_up" not in {stage.name for stage in audited(said).stages}  # the referee saw none


def test_sampling_has_the_contestants_cpu_time_and_the_referees_wall_clock() -> None:
    assert [(s.name, s.seconds, s.cpu_seconds) for s in audited(measured()).stages][2:4] == [
        ("sample", 8.0, 6.5),
        ("score", 1.0, 0.9),
    ]


def test_without_a_table_of_processes_nothing_is_held_against_a_method() -> None:
    profile = audited(measured(), watch(cpu=(None,) * 4))
    assert (profile.distrust, profile.train_steps_per_second) == ("", 20.0)


def test_a_shared_fit_costs_what_it_took_when_it_was_made_and_has_no_rate() -> None:
    profile = audited(measured(), Watch(lambda *_: None), fit_seconds=1.5, shared=FitCost(seconds=500.0, cpu_seconds=900.0))
    assert (profile.seconds("fit"), profile.seconds("data"), profile.distrust) == (500.0, 1.0, "")
    assert (profile.train_steps_per_second, profile.energy_joules, profile.sample_samples_per_second) == (None, None, 25.0)


@pytest.mark.parametrize(
    "nonsense",
    [{"parameters": "many"}, {"parameters": 1e300}, {"flops_per_sample": "nan"}, {"surprise": 1}, {"stages": 3}],
)
def test_what_is_no_profile_is_none_and_says_so(nonsense: dict) -> None:
    profile = audited(measured(**nonsense))
    assert profile.distrust.startswith("the contestant sent no profile")
    assert (profile.parameters, profile.referee_memory_bytes) == (None, 7)


def test_cpu_time_is_that_of_all_below_a_process() -> None:
    work = "import time\nwhile time.process_time() < 0.4: pass\n"
    code = f"import os, sys\nif os.fork() == 0:\n exec({work!r}); os._exit(0)\nos.wait(); print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert 0.3 <= cpu_seconds_below(child.pid) < 2  # in hundredths
    child.communicate()
    assert cpu_seconds_below(child.pid) is None


def test_a_plugin_is_known_before_its_code_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('run')\n")
    request = RunRequest(task="blobs-iid", method="mine", plugins=(str(tmp_path / "mine.py"),), home=str(tmp_path))
    plugin = plugin_of(request, Registry((tmp_path / "mine.py",)))
    assert (plugin.distribution, plugin.version, plugin.module) == ("mine.py", "file", "mine.py")
    assert len(plugin.file_sha256) == 64
