"""One fit for all that ask alike: a run that loads it scores as a run that makes it."""

import json
from pathlib import Path

import pytest
import torch

from compbench.api.schemas import RunRequest
from compbench.registry.registry import Registry
from compbench.runner.fit_cache import FIT_FILE, SharedFit, facts_of_fit
from compbench.runner.messages import FitCost, Open
from compbench.runner.one_run import run
from compbench.system.files import save_tensors
from compbench.system.home import Home
from compbench.system.plugin_folder import PluginFolder


def smoke(home: Path, method: str, **overrides: object) -> dict:
    request = RunRequest(
        task="gauss2d-nonfact-id", method=method, preset="smoke", device="cpu", threads=1, home=str(home), overrides=overrides
    )
    record = run(request, in_process=True).record
    assert record.status == "ok", record.reason
    return {"values": [score.value for score in record.scores], "notes": record.notes, "profile": record.profile}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    home = tmp_path_factory.mktemp("fits")
    return home, smoke(home, "fkc", num_particles=2)


def test_another_run_of_the_same_fit_loads_it(first) -> None:
    home, made = first
    assert len(list((home / "cache").glob("fit-*.safetensors"))) == 1
    loaded = smoke(home, "naive-sde")
    assert len(list((home / "cache").glob("fit-*.safetensors"))) == 1
    assert loaded["notes"]["fit shared"] == 1
    assert "fit shared" not in made["notes"]
    conditions = [note for note in made["notes"] if note.startswith("counted trained_")]
    assert 0 < sum(made["notes"][note] for note in conditions) <= made["notes"]["counted examples"]
    assert all(loaded["notes"][note] == made["notes"][note] for note in conditions)
    assert loaded["notes"]["counted asked_whole"] == loaded["profile"].evaluations_per_sample  # sources around a base
    (kept,) = (json.loads(path.read_text()) for path in (home / "cache").glob("fit-*.json"))
    charged = loaded["profile"].seconds("fit")
    assert charged == pytest.approx(kept["cost"]["seconds"])  # what the fit cost when it was made, by the parent's clock
    assert 0 < made["profile"].seconds("fit") <= charged


def test_a_loaded_fit_scores_bit_for_bit_like_one_of_ones_own(first, tmp_path: Path) -> None:
    home, _ = first
    assert smoke(home, "naive-ode")["values"] == smoke(tmp_path, "naive-ode")["values"]


def test_other_points_or_seeds_are_other_fits(first) -> None:
    home, _ = first
    before = len(list((home / "cache").glob("fit-*.safetensors")))
    smoke(home, "naive-ode", **{"task.train_points": 50})
    assert len(list((home / "cache").glob("fit-*.safetensors"))) == before + 1


def test_what_a_fit_depends_on_leaves_out_sampling() -> None:
    task = Registry().load("tasks", "gmm-id")
    request = RunRequest(task="gmm-id", method="fkc", home=".")
    order = Open(source=task.source(Path(), "auto"), precision="fp32", device="cpu", resume=False)
    facts = [
        facts_of_fit({}, request=request, task=task, budget=budget, order=order, device_class="cpu")
        for budget in (task.budgets["smoke"], task.budgets["smoke"].model_copy(update={"sample_steps": 99}))
    ]
    assert facts[0] == facts[1]
    other = task.budgets["smoke"].model_copy(update={"train_steps": 99})
    assert facts[0]["budget"] != {**facts[0], "budget": other.model_dump()}["budget"]


COUNTS = {"optimiser_steps": 30.0, "reported_steps": 30.0, "granted_steps": 30.0, "examples": 960.0, "granted_examples": 2e4}


def kept(place: SharedFit, tmp_path: Path) -> FitCost:
    save_tensors(tmp_path / FIT_FILE, {"a": torch.zeros(2)}, {})
    cost = FitCost(seconds=1.0, cpu_seconds=0.5, ledger={"pooled": True}, counts=COUNTS)
    place.keep(PluginFolder(tmp_path), cost)
    return cost


def test_a_kept_fit_is_found_with_its_cost_until_a_bit_of_it_changes(tmp_path: Path) -> None:
    place = SharedFit(Home(tmp_path), {"a": 1}, "code", lambda: None)
    assert place.cost() is None
    cost = kept(place, tmp_path)
    assert SharedFit(Home(tmp_path), {"a": 1}, "code", lambda: None).cost() == cost
    place.path.write_bytes(place.path.read_bytes()[:-1] + b"x")
    assert place.cost() is None


def test_code_of_another_distribution_finds_no_fit(tmp_path: Path) -> None:
    kept(SharedFit(Home(tmp_path), {"a": 1}, "code", lambda: None), tmp_path)
    assert SharedFit(Home(tmp_path), {"a": 1}, "other code", lambda: None).cost() is None


def test_a_link_in_place_of_weights_is_not_kept(tmp_path: Path) -> None:
    place = SharedFit(Home(tmp_path), {"a": 1}, "code", lambda: None)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / FIT_FILE).symlink_to(tmp_path / "secret")
    place.keep(PluginFolder(tmp_path), FitCost(seconds=1.0, cpu_seconds=0.5))
    assert place.cost() is None
    assert not place.path.exists()


def in_silos(home: Path, method: str):
    request = RunRequest(task="blobs-noniid", method=method, preset="smoke", device="cpu", threads=1, home=str(home))
    record = run(request, in_process=True, force=True).record
    assert record.status == "ok", record.reason
    return record


def test_a_loaded_fit_is_of_pooled_silos_if_the_one_that_was_made_is(tmp_path: Path) -> None:
    assert in_silos(tmp_path, "fkc").pooled_silos
    loaded = in_silos(tmp_path, "naive-sde")
    assert loaded.notes["fit shared"] == 1
    assert loaded.pooled_silos
    assert not loaded.profile.silos
    assert loaded.profile.train_steps == loaded.spec.budget.train_steps


def test_a_record_has_the_steps_of_all_silos_and_of_each(tmp_path: Path) -> None:
    record = in_silos(tmp_path, "dcfm-b")
    each = record.spec.budget.train_steps
    assert [silo.steps for silo in record.profile.silos] == [each, each]
    assert record.profile.train_steps == 3 * each  # the student's on the server are there too


@pytest.mark.slow
def test_a_kept_fit_without_its_ledger_is_made_again(tmp_path: Path) -> None:
    in_silos(tmp_path, "naive-ode")
    (path,) = (tmp_path / "cache").glob("fit-*.json")
    facts = json.loads(path.read_text())
    del facts["cost"]["ledger"]["pooled"]
    path.write_text(json.dumps(facts))
    made = in_silos(tmp_path, "naive-sde")
    assert made.pooled_silos
    assert "fit shared" not in made.notes
    assert json.loads(path.read_text())["cost"]["ledger"]["pooled"] is True


@pytest.mark.slow
def test_methods_that_share_a_part_of_a_fit_make_their_own_models_of_it(tmp_path: Path) -> None:
    made, loaded = in_silos(tmp_path / "one", "ddm"), in_silos(tmp_path / "one", "superdiff-or")
    alone = in_silos(tmp_path / "other", "superdiff-or")
    assert loaded.notes["fit shared"] == 1
    assert "fit shared" not in alone.notes
    assert [score.value for score in loaded.scores] == [score.value for score in alone.scores]
    sent = [[silo.model_dump(exclude={"seconds", "cpu_seconds"}) for silo in run.profile.silos] for run in (loaded, alone)]
    assert sent[0] == sent[1] != []
    assert loaded.profile.train_steps == alone.profile.train_steps == made.profile.train_steps
    assert loaded.profile.parameters == alone.profile.parameters


def test_the_lock_of_a_fit_lies_where_no_contestant_reaches_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with SharedFit(home, {"a": 1}, "code", lambda: None).lock:
        locks = [path.parent for path in tmp_path.rglob("*.lock")]
    assert locks == [home.leases]
    assert home.leases in home.closed


@pytest.mark.parametrize("beyond", [{}, {"optimiser_steps": 1200.0}, {"examples": 3e4}, {"early_steps": 1.0}])
def test_a_fit_beyond_its_budget_and_one_without_counts_are_not_shared(tmp_path: Path, beyond: dict[str, float]) -> None:
    place = SharedFit(Home(tmp_path), {"a": 1}, "code", lambda: None)
    save_tensors(tmp_path / FIT_FILE, {"a": torch.zeros(2)}, {})
    place.keep(PluginFolder(tmp_path), FitCost(seconds=1.0, counts={**COUNTS, **beyond} if beyond else {}))
    assert place.cost() is None
    place.keep(PluginFolder(tmp_path), FitCost(seconds=1.0, counts=COUNTS))
    assert place.cost() == FitCost(seconds=1.0, counts=COUNTS)


def test_a_record_of_a_shared_fit_repeats_what_was_counted_of_it(tmp_path: Path) -> None:
    made, loaded = in_silos(tmp_path, "fkc"), in_silos(tmp_path, "naive-sde")
    assert loaded.notes["fit shared"] == 1
    for name in ("optimiser_steps", "examples", "reported_steps", "backward_passes"):
        assert loaded.notes[f"counted {name}"] == made.notes[f"counted {name}"] > 0
