from pathlib import Path

from compbench.run.processes import Child
from compbench.schemas import RunRequest
from compbench.store.records import Store
from compbench.sweep.pool import SweepOptions, work_through


def requests(home: Path, plugin_file: Path) -> list[RunRequest]:
    facts = {"task": "blobs-iid", "preset": "smoke", "device": "cpu", "threads": 1, "home": str(home)}
    good = [RunRequest(method="mono", seed=seed, **facts) for seed in (0, 1)]
    return [*good, RunRequest(method="naughty", plugins=(str(plugin_file),), **facts)]


def test_a_sweep_runs_what_is_missing_and_goes_on_past_a_failure(home: Path, plugin, monkeypatch) -> None:
    asked = requests(home, plugin(fit="raise ValueError('no luck')"))
    first = work_through(asked, SweepOptions(slots=2))
    assert [result.status for result in first] == ["ok", "ok", "failed"]
    assert "no luck" in first[2].reason
    before = set(Store(home / "records").paths())
    started = []
    begin = Child.__init__
    monkeypatch.setattr(Child, "__init__", lambda child, role, *rest: (started.append(role), begin(child, role, *rest))[1])
    again = work_through(asked[:2], SweepOptions(slots=1))
    assert [result.reused for result in again] == [True, True]
    assert started == ["contestant", "referee"]
    assert set(Store(home / "records").paths()) == before


def test_runs_side_by_side_share_the_cores_and_say_so(home: Path, plugin) -> None:
    asked = [request.model_copy(update={"threads": 0}) for request in requests(home, plugin())[:1]]
    (result,) = work_through(asked, SweepOptions(slots=2, force=True))
    record = next(r for r in Store(home / "records").read()[0] if result.path.endswith(f"{r.name}.json"))
    assert record.environment.slots == 2
    assert record.environment.threads >= 1


def test_chained_runs_score_as_runs_with_processes_of_their_own(tmp_path: Path) -> None:
    facts = {"task": "gauss2d-nonfact-id", "preset": "smoke", "device": "cpu", "threads": 1, "home": str(tmp_path)}
    asked = [RunRequest(method="fkc", seed=seed, overrides={"num_particles": 2}, **facts) for seed in (0, 1)]
    asked.append(RunRequest(method="naive-ode", seed=1, **facts))
    chained = work_through(asked, SweepOptions(slots=1, chain=True))
    assert [result.status for result in chained] == ["ok"] * 3
    alone = work_through(asked, SweepOptions(slots=1, force=True))
    records = {record.name: record for record in Store(tmp_path / "records").read()[0]}
    for before, after in zip(chained, alone, strict=True):
        one, two = (records[Path(result.path).stem] for result in (before, after))
        assert [score.value for score in one.scores] == [score.value for score in two.scores]
        assert two.environment.predecessors == 0
    assert [records[Path(result.path).stem].environment.predecessors for result in chained] == [0, 1, 0]


def test_a_failure_in_a_chain_takes_its_processes_with_it(home: Path, plugin) -> None:
    """The next run of the method starts afresh."""
    file = plugin(fit="if ctx.generator.initial_seed() % 3 == 1: raise ValueError('no luck')")
    facts = {"task": "gauss2d-fact-id", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1, "home": str(home)}
    asked = [RunRequest(seed=seed, plugins=(str(file),), **facts) for seed in range(4)]
    results = work_through(asked, SweepOptions(slots=1, chain=True))
    assert {result.status for result in results} == {"ok", "failed"}, [result.reason for result in results]
    records = {record.name: record for record in Store(home / "records").read()[0]}
    expected, count = [], 0
    for result in results:
        expected.append(count)
        count = count + 1 if result.status == "ok" else 0
    assert [records[Path(result.path).stem].environment.predecessors for result in results] == expected
