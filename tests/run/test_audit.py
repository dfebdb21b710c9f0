from pathlib import Path

import pytest

from compbench.registry import Registry
from compbench.run.audit import plugin_of, profile_of
from compbench.run.messages import Evaluated, FitCost
from compbench.schemas import RunRequest, Stage

REFEREED = Evaluated(
    scores=(),
    stages=(Stage(name="sample", seconds=8.0), Stage(name="score", seconds=1.0)),
    referee_memory_bytes=7,
    num_samples=100,
    seconds=8.0,
    num_bytes=1000,
)


def measured(**more: object) -> dict:
    stages = [{"name": "data", "seconds": 1.0}, {"name": "fit", "seconds": 59.0}]
    facts = {"sample_samples_per_second": 100 / 7.5, "sample_batch": 50, "train_steps_per_second": 20.0, "stages": stages}
    return {**facts, **more}


def test_an_honest_profile_is_kept_with_the_referees_stages() -> None:
    profile = profile_of(measured(), REFEREED, fit_seconds=62.0)
    assert profile.distrust == ""
    assert profile.train_steps_per_second == 20.0
    assert (profile.seconds("fit"), profile.seconds("score"), profile.referee_memory_bytes) == (59.0, 1.0, 7)


@pytest.mark.parametrize(
    ("lie", "fit_seconds", "why"),
    [
        ({"stages": [{"name": "fit", "seconds": 0.1}]}, 62.0, "0.1 s of a fit that took 62 s"),
        ({"sample_samples_per_second": 1e9}, 62.0, "1e-07 s of sampling that took 8 s"),
    ],
)
def test_speeds_that_another_clock_contradicts_are_dropped(lie: dict, fit_seconds: float, why: str) -> None:
    profile = profile_of(measured(**lie), REFEREED, fit_seconds=fit_seconds)
    assert why in profile.distrust
    assert profile.train_steps_per_second is None
    assert profile.sample_samples_per_second is None
    assert profile.seconds("score") == 1.0


def test_a_fit_from_the_cache_may_claim_more_than_it_took() -> None:
    assert profile_of(measured(), REFEREED, fit_seconds=0.5).distrust == ""


def test_a_shared_fit_costs_what_it_took_when_it_was_made() -> None:
    profile = profile_of(measured(), REFEREED, fit_seconds=60.0, shared=FitCost(seconds=500.0, cpu_seconds=900.0))
    assert (profile.seconds("fit"), profile.seconds("data")) == (500.0, 1.0)


def test_many_bytes_on_their_way_are_no_lie() -> None:
    refereed = REFEREED.model_copy(update={"num_bytes": 10**9})
    assert profile_of(measured(sample_samples_per_second=1e4), refereed, fit_seconds=60.0).distrust == ""


@pytest.mark.parametrize(
    "nonsense",
    [{"parameters": "many"}, {"parameters": 1e300}, {"sample_samples_per_second": "nan"}, {"surprise": 1}, {"stages": 3}],
)
def test_what_is_no_profile_is_none_and_says_so(nonsense: dict) -> None:
    profile = profile_of(measured(**nonsense), REFEREED, fit_seconds=60.0)
    assert profile.distrust.startswith("the contestant sent no profile")
    assert (profile.parameters, profile.referee_memory_bytes) == (None, 7)


def test_a_plugin_is_known_before_its_code_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('run')\n")
    request = RunRequest(task="blobs-iid", method="mine", plugins=(str(tmp_path / "mine.py"),), home=str(tmp_path))
    plugin = plugin_of(request, Registry((tmp_path / "mine.py",)))
    assert (plugin.distribution, plugin.version, plugin.module) == ("mine.py", "file", "mine.py")
    assert len(plugin.file_sha256) == 64
