import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from compbench.api.interfaces import NEEDS, all_anchored
from compbench.api.schemas import RunRequest, name_of
from compbench.board.site import MATRIX
from compbench.registry.equal_code import equal_code
from compbench.registry.meaning import code_of
from compbench.registry.registry import Registry
from compbench.registry.resolve import why_not
from compbench.runner.attempt import Attempt
from compbench.runner.in_process import InProcessPair
from compbench.runner.processes import Ended
from compbench.sweep.grid import grids
from compbench.sweep.matrix import Resolver, RunFacts, reasons, run_facts
from compbench.sweep.parse import names, parse_seeds
from compbench.system.home import Home

REGISTRY = Registry()


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[RunFacts]:
    with run_facts(Home(tmp_path)) as found:
        yield found


def why(method: str, task: str) -> str:
    return why_not(REGISTRY.load("methods", method), REGISTRY.load("tasks", task))


@pytest.mark.parametrize(
    ("method", "good", "bad", "need"),
    [
        ("fkc-oracle", "gmm-id", "blobs-noniid", "scores"),
        ("stripes", "bump-corner", "rotation", "singles"),
        ("equivariant-decoder", "rotation", "two-sprites", "symmetry"),
        ("cfg-plus", "blobs-noniid", "gmm-id", "null"),
        ("coind", "bump-corner", "rotation", "pairs"),
        ("soup", "blobs-noniid", "gmm-id", "silos"),
        ("dcfm-b", "cmnist-iid", "bump-corner", "silos"),  # does not pool, so it is for silos without saying so
        ("centralised", "planning-iid", "shapes3d-heavy", "silos"),
        ("anchored", "gmm-id", "shapes3d-heavy", "anchors"),
    ],
)
def test_a_method_works_where_its_need_is_met(method: str, good: str, bad: str, need: str) -> None:
    assert why(method, good) == ""
    assert why(method, bad) == f"method '{method}' cannot work on task '{bad}': {NEEDS[need]}."


def test_the_kind_of_samples_is_told_first() -> None:
    assert why("stripes", "blobs-iid").endswith("it makes images, and the task asks for vectors.")


def test_a_decentralised_method_may_say_that_it_is_for_one_silo_too() -> None:
    method, task = REGISTRY.load("methods", "ddm"), REGISTRY.load("tasks", "gmm-id")
    assert why_not(method, task)
    assert why_not(replace(method, one_silo=True), task) == ""


def test_a_not_that_no_one_asks_for_adds_no_row() -> None:
    assert why("slice-not", "cmnist-not") == ""
    assert why("slice-not", "cmnist-iid").endswith("excludes no value, and without a NOT the method is its plain form.")
    assert why("slice-cfg", "cmnist-not").endswith("the method has no such NOT.")


def test_the_matrix_has_every_pair_and_only_real_reasons() -> None:
    (found,) = reasons(None, plugins=())
    assert set(found) == set(REGISTRY.names("methods"))
    assert all(set(row) == set(REGISTRY.names("tasks")) for row in found.values())
    works = {name for name in REGISTRY.names("tasks") if not REGISTRY.load("tasks", name).negates}
    assert {name for name, reason in found["mono"].items() if not reason} == works
    assert found["fkc-oracle"]["gmm-id"] == ""


def test_the_published_matrix_is_todays() -> None:
    """Repair: compbench list --matrix --json > leaderboards/matrix.json.  Plugins of this machine's user do not matter."""
    published = json.loads((Path(__file__).parents[2] / "leaderboards" / MATRIX).read_text())
    (found,) = reasons(None, plugins=())
    assert {method: {task: why for task, why in found[method].items() if why} for method in published} == published
    assert {entry.name for entry in REGISTRY.entries("methods") if entry.distribution == "compbench-methods"} <= set(published)


@pytest.mark.parametrize("file", ["core", "extended"])
def test_some_method_can_be_ranked_on_each_task_of_a_suite(file: str) -> None:
    tasks = {task for grid in grids(file, "standard") for task in names("tasks", grid.tasks, ())}
    assert all(why("slice-not" if task == "cmnist-not" else "mono", task) == "" for task in tasks)


@pytest.mark.parametrize("file", ["core", "extended"])
def test_a_suite_asks_for_no_run_twice(file: str) -> None:
    asked = [
        (*run, str(grid.set))
        for grid in grids(file, "standard")
        for run in product(names("methods", grid.methods, ()), names("tasks", grid.tasks, ()), parse_seeds(grid.seeds))
    ]
    assert len(asked) == len(set(asked))


def test_identities_are_those_of_the_runs(tmp_path: Path, facts: RunFacts) -> None:
    asked = [RunRequest(method="mono", task="blobs-iid", preset="smoke", seed=seed, home=str(tmp_path)) for seed in (0, 1)]
    ((first, *_),), ((second, *_),) = facts.identities(asked)
    assert first != second
    assert len(first) == 64
    from compbench.runner.one_run import look_up, processes_of

    with processes_of(Home(tmp_path)) as processes:
        spec, finished = look_up(asked[0], processes)
    assert spec.identity == first
    assert finished is None
    assert name_of(spec, spec.identity, 1).startswith("blobs-iid.mono.smoke.s0.")


def test_the_same_run_on_another_device_has_an_identity_that_needs_no_such_device(tmp_path: Path, facts: RunFacts) -> None:
    request = RunRequest(method="mono", task="blobs-iid", preset="smoke", seed=3, device="cpu", home=str(tmp_path))
    resolver = Resolver(tmp_path)
    ways = [equal_code().identities(spec) for spec in (resolver.spec(request), resolver.spec(request, "NVIDIA H200"))]
    here, there = resolver.spec(request), resolver.spec(request, "NVIDIA H200")
    code = code_of(REGISTRY, method="mono", task="blobs-iid", metrics=here.metrics, device_class="NVIDIA H200")
    assert there == here.model_copy(update={"device_class": "NVIDIA H200", "code": code.digest})
    assert facts.identities([request], elsewhere=[["NVIDIA H200", "cpu"]]) == [ways]


def test_a_request_that_cannot_run_here_has_no_identity_and_the_others_keep_theirs(tmp_path: Path, facts: RunFacts) -> None:
    right = RunRequest(method="mono", task="blobs-iid", preset="smoke", home=str(tmp_path))
    wrong = right.model_copy(update={"overrides": {"nonsense": 3}})
    (alone,) = facts.identities([right])
    assert facts.identities([wrong, right, wrong], pass_over=True) == [[], alone, []]
    with pytest.raises(Ended, match="nonsense"):
        facts.identities([right, wrong])


def test_requests_beyond_one_message_keep_their_identities(
    tmp_path: Path, facts: RunFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = RunRequest(method="mono", task="blobs-iid", preset="smoke", home=str(tmp_path))
    asked = [right.model_copy(update={"overrides": {"budget.train_steps": steps}}) for steps in (1, 2, 3)]
    whole = facts.identities(asked)
    monkeypatch.setattr("compbench.sweep.matrix.AT_A_TIME", 2)
    assert facts.identities(asked) == whole


def test_what_is_shared_between_requests_changes_no_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against attempts that share nothing: over seeds, settings, presets, metrics of several kinds, and a plugin's file."""
    own = tmp_path / "own.py"
    own.write_text(Path(REGISTRY.entry("methods", "mono").file).read_text().replace('"mono"', '"own"'))
    facts = {"preset": "smoke", "home": str(tmp_path), "device": "cpu"}
    asked = [
        RunRequest(**{**facts, "method": method, "task": task, "seed": seed, **more})
        for method, task, more in (
            ("mono", "blobs-iid", {}),
            ("mono", "blobs-iid", {"overrides": {"budget.train_steps": 7}}),
            ("mono", "blobs-iid", {"preset": "quick"}),
            ("own", "blobs-iid", {"plugins": (str(own),)}),
            ("low-rank", "bump-center", {}),
            ("slice-cfg", "shapes3d-heavy", {"overrides": {"task.judge": "pooled"}}),
        )
        for seed in (0, 3)
    ]

    def alone(request: RunRequest) -> str:
        attempt = Attempt(request, Home(tmp_path), InProcessPair(request, tmp_path, lambda *_: None), force=True)
        attempt.find()
        return attempt.spec.identity

    expected = [alone(request) for request in asked]
    hashed = []
    monkeypatch.setattr("compbench.sweep.matrix.code_of", lambda *given, **named: hashed.append(1) or code_of(*given, **named))
    resolver = Resolver(tmp_path)
    assert [resolver.spec(request).identity for request in asked] == expected
    assert len(set(expected)) == len(asked)
    assert len(hashed) == len(asked) / 2  # once for both seeds


def test_one_process_behind_the_border_answers_all_questions(tmp_path: Path, facts: RunFacts) -> None:
    request = RunRequest(method="mono", task="blobs-iid", preset="smoke", home=str(tmp_path))
    assert facts.matrix()["stripes"]["bump-corner"] == ""
    started = facts._process
    assert facts.identities([request])
    assert facts._process is started


@pytest.mark.parametrize("task", ["gmm-id", "shapes3d-heavy", "shapes3d-light", "concept-space", "rooms-fc-ood"])
def test_all_cells_are_anchored_where_each_has_an_anchor(task: str) -> None:
    holdout = REGISTRY.load("tasks", task).holdout
    assert all_anchored(holdout) is all(holdout.anchors(cell) for cell in holdout.cells)
