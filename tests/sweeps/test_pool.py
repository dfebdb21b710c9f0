from pathlib import Path

from compbench.records import Store
from compbench.schemas import RunRequest
from compbench.sweeps.pool import work_through


def requests(home: Path, plugin_file: Path) -> list[RunRequest]:
    facts = {"task": "shapes3d-heavy", "preset": "smoke", "device": "cpu", "home": str(home)}
    good = [RunRequest(method="mono", seed=seed, **facts) for seed in (0, 1)]
    return [*good, RunRequest(method="naughty", plugins=(str(plugin_file),), **facts)]


def test_a_sweep_runs_what_is_missing_and_goes_on_past_a_failure(home: Path, plugin) -> None:
    asked = requests(home, plugin(fit="raise ValueError('no luck')"))
    first = work_through(asked, slots=2, force=False, resume=False)
    assert [result.status for result in first] == ["ok", "ok", "failed"]
    assert "no luck" in first[2].reason
    before = set(Store(home / "records").paths())
    again = work_through(asked[:2], slots=2, force=False, resume=False)
    assert [result.reused for result in again] == [True, True]
    assert set(Store(home / "records").paths()) == before


def test_runs_side_by_side_share_the_cores_and_say_so(home: Path, plugin) -> None:
    (result,) = work_through(requests(home, plugin())[:1], slots=2, force=True, resume=False)
    record = next(r for r in Store(home / "records").read()[0] if result.path.endswith(f"{r.name}.json"))
    assert record.environment.slots == 2
    assert record.environment.threads >= 1
