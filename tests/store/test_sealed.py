"""Sealed holdouts: which pattern code gets, what a record must show, and what becomes of a method that knows the public one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record, spec

from compbench.api.factors import identifiability
from compbench.api.schemas import Record
from compbench.cli.main import main
from compbench.registry.meaning import code_of
from compbench.registry.registry import Registry
from compbench.store import sealed
from compbench.store.sealed import pattern, split_seed
from compbench.system.errors import CompbenchError

CHEAT = '''"""lookup: draws true bumps where the public square holds them out, and grey elsewhere."""

import torch

from compbench import Method, MethodSettings, hookimpl
from compbench.tasks.bump import SQUARES, images

LOW, HIGH = 6, 22


class Settings(MethodSettings):
    pass


def fit(settings, problem, ctx):
    return problem.federation.pooled().batch(2, ctx.generator).x1 * 0


def sample(settings, model, request, ctx):
    known = ((request.condition >= LOW) & (request.condition <= HIGH)).all(1)
    drawn = images(request.condition, SQUARES["bump-center"])
    return torch.where(known[:, None, None, None], drawn, torch.zeros_like(drawn)).float()


@hookimpl
def compbench_methods():
    return (Method(name="lookup", settings=Settings, fit=fit, sample=sample),)
'''


def method_code(file: Path) -> str:
    registry = Registry((file,))
    return code_of(registry, method="lookup", task="bump-center", metrics=()).parts["method"]


def test_a_comment_changes_no_pattern_and_a_constant_another_setting_or_task_does(tmp_path: Path) -> None:
    file = tmp_path / "lookup.py"
    file.write_text(CHEAT)
    own, run = method_code(file), spec(task="bump-center", method="lookup")
    file.write_text(CHEAT.replace("LOW, HIGH = 6, 22", "LOW, HIGH = 6, 22  # the public square"))
    assert method_code(file) == own
    file.write_text(CHEAT.replace("LOW, HIGH = 6, 22", "LOW, HIGH = 6, 21"))
    changed = method_code(file)
    seeds = {
        split_seed(run, own),
        split_seed(run, changed),
        split_seed(run.model_copy(update={"settings": {"hidden": 3}}), own),
        split_seed(run.model_copy(update={"task": "bump-corner"}), own),
        split_seed(run.model_copy(update={"seed": 4}), own),
    }
    assert len(seeds) == 5
    assert split_seed(run.model_copy(update={"task_settings": {"split_seed": 5}}), own) in seeds


@pytest.mark.parametrize("name", ["bump-center", "shapes3d-medium", "shapes3d-heavy", "emoji-medium", "concept-space"])
def test_a_sealed_pattern_is_as_hard_as_the_public_one_and_another(name: str) -> None:
    task = Registry().load("tasks", name)
    made = pattern(task, spec(task=name), "a" * 64)
    assert task.configure is not None
    own = {key.removeprefix("task."): value for key, value in made.items()}
    changed = task.configure(task.settings.model_copy(update=own)).holdout
    assert set(changed.seen_cells) != set(task.holdout.seen_cells)
    hardness = [identifiability(one.pattern_space.sizes, one.seen_cells) for one in (changed, task.holdout)]
    assert hardness[0] == hardness[1]
    for column, size in enumerate(changed.pattern_space.sizes):
        assert {cell[column] for cell in changed.seen_cells} == set(range(size))


def test_a_record_with_another_pattern_than_its_own_code_s_is_refused() -> None:
    settings = {"coverage": 0.0, "design": "permuted", "split_seed": 0}
    plain = record(more={"code": {"parts": {"method": "b" * 64}}, "sealed": True}, task_settings=settings)
    with pytest.raises(CompbenchError, match="pattern of seed 0; its code and settings give"):
        sealed.check(plain)
    right = {**settings, "split_seed": split_seed(plain.spec, "b" * 64)}
    sealed.check(plain.model_copy(update={"spec": plain.spec.model_copy(update={"task_settings": right})}))
    with pytest.raises(CompbenchError, match="not those of a sealed pattern"):
        sealed.check(plain.model_copy(update={"spec": plain.spec.model_copy(update={"task_settings": {}})}))


def test_a_task_without_a_choice_of_pattern_is_refused_in_one_line() -> None:
    with pytest.raises(CompbenchError, match="'blobs-noniid' holds out cannot be chosen"):
        pattern(Registry().load("tasks", "blobs-noniid"), spec(), "a" * 64)


def test_a_method_that_looks_the_public_holdout_up_falls_by_more_than_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    file = tmp_path / "lookup.py"
    file.write_text(CHEAT)
    words = ["run", "--method", "lookup", "--task", "bump-center", "--preset", "smoke", "--plugin", str(file), "--device", "cpu"]
    scores = []
    patterns = set()
    for more in ([], ["--sealed", "--seed", "0-1"]):
        result = CliRunner().invoke(main, [*words, "--json", "--quiet", *more], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        for line in result.stdout.splitlines():
            made = Record.model_validate(json.loads(line))
            assert made.sealed == bool(more)
            sealed.check(made)
            score = made.score("heldout_shape_accuracy")
            assert score is not None
            assert score.value is not None
            scores.append(score.value)
            patterns.add(made.spec.task_settings.get("split_seed"))
    public, *others = scores
    assert public > 0.99
    assert all(public - other > 0.5 for other in others)
    assert len(patterns) == 3  # the public one, and one of each sealed seed
    chosen = CliRunner().invoke(main, [*words, "--sealed", "--set", "task.split_seed=3"])
    assert chosen.exit_code == 2
    assert "draws the pattern itself" in chosen.stderr
