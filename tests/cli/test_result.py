"""What `run` prints at its end fits a screen and says what the score means; a zero is a zero and not unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.sample_records import record, score

from compbench.api.interfaces import CellCount
from compbench.api.schemas import Plugin, Profile, Record, RunRequest, Stage
from compbench.board.notation import SMOKE
from compbench.board.scale import zero_of
from compbench.cli import result
from compbench.cli.cell_map import drawn, names_of
from compbench.cli.plan import EXPECTED, plan_of, rescorable
from compbench.cli.result import show_result
from compbench.store.conditions import noted
from compbench.store.records import Store

OURS = Plugin(distribution="compbench-methods")


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")

    def call(one: Record) -> list[str]:
        show_result(one, tmp_path / f"{one.name}.json", reused=False)
        return capsys.readouterr().out.splitlines()

    return call


def many_scores() -> tuple:
    ranked = score(value=0.5303, n=330, ceiling=1.0, by_cell=(CellCount((0, 1), 175, 330),))
    seen = score("seen_accuracy", 0.9875, split="seen", n=320, ceiling=0.9937, primary=False)
    others = [score(f"heldout_accuracy_of_{k}", 0.1, primary=False) for k in range(19)]
    gone = [score(f"{split}_fid", None, primary=False, reason="no Inception weights") for split in ("heldout", "seen")]
    return (ranked, seen, *others, *gone)


def test_the_ranked_score_stands_with_the_best_constant_answer_ceiling_and_its_meaning(shown) -> None:
    lines = shown(record(*many_scores()))
    text = " ".join(" ".join(lines).split())
    assert "result heldout_accuracy 0.5303 (higher is better); best constant answer 0.03333, real data 1" in text
    assert (
        "share of samples in which the judge finds the requested factors; of 330 samples of combinations never trained on" in text
    )
    assert "seen seen_accuracy 0.9875; real data 0.9937" in text
    assert "optional heldout_fid, seen_fid: not computed, and not used for ranks; no Inception weights" in text
    assert "do not determine the held-out ones" in text
    assert len(lines) <= 24
    assert not any("accuracy_of_" in line for line in lines)


@pytest.mark.parametrize(
    ("task", "name", "direction", "better", "worse"),
    [("shapes3d-heavy", "heldout_accuracy", "higher", 0.0334, 0.0333), ("gmm-ood", "heldout_sw2", "lower", 1e-3, 1e3)],
)
def test_a_result_says_when_it_is_worse_than_the_best_constant_answer(
    task: str, name: str, direction: str, better: float, worse: float
) -> None:
    said = []
    for value in (better, worse):
        one = score(name, value, direction=direction, primary=True)
        said.append(dict(result.lines(record(one, task=task)))["result"])
    assert all("best constant answer" in text for text in said)
    assert [text.endswith("; worse than ignoring the request") for text in said] == [False, True]
    constant = record(score(name, worse, direction=direction, primary=True), task=task, method="constant", more={"plugin": OURS})
    assert "worse" not in dict(result.lines(constant))["result"]


def test_the_zero_of_a_task_is_not_that_of_the_task_under_other_settings() -> None:
    one = record(*many_scores())
    spec = one.spec.model_copy(update={"task_settings": {"coverage": 0.5}})
    assert zero_of(one, one.scores[0]) == 0.03333
    assert zero_of(one.model_copy(update={"spec": spec}), one.scores[0]) is None


def test_a_run_warns_of_what_was_asked_and_not_trained_and_keeps_the_counts_for_show() -> None:
    right, wrong = (noted((trained, 0, 4000.0), (20.0, 0, 20.0)) for trained in (400.0, 0.0))
    assert not {"warning", "asked"} & {name for name, _ in result.lines(record(*many_scores(), more={"notes": right}))}
    said = dict(result.lines(record(*many_scores(), more={"notes": wrong})))
    assert said["warning"].endswith("hardly trained on: asked at NULL, trained on 0 of 4,000 examples")


def test_a_smoke_run_says_that_its_scores_mean_nothing_and_no_other_does() -> None:
    assert ("note", SMOKE) in [*result.lines(record(score(), preset="smoke"))]
    assert SMOKE not in [text for _, text in result.lines(record(score()))]


def test_a_zero_is_printed_as_0_and_not_as_unknown() -> None:
    nothing = record(more={"profile": Profile(parameters=0, evaluations_per_sample=0, train_steps=0, flops_per_train_step=5.0)})
    assert "0 evaluations a sample" in result.cost(nothing)
    assert "0 parameters" in result.cost(nothing)
    assert "0 FLOP to train" in result.cost(nothing)
    assert "?" not in result.cost(record(more={"profile": Profile()}))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(27.4, "27.4 s (between stages 15.1 s, setup 5.3 s, fit 4.0 s)"), (13.0, "13.0 s (setup 5.3 s, fit 4.0 s, sample 3.0 s)")],
)
def test_the_cost_names_the_time_between_stages_where_it_is_among_the_longest(seconds: float, said: str) -> None:
    stages = tuple(Stage(name=name, seconds=took) for name, took in (("setup", 5.3), ("fit", 4.0), ("sample", 3.0)))
    assert result.cost(record(more={"profile": Profile(stages=stages), "seconds": seconds})) == said


def test_a_run_that_only_lacks_a_new_metric_is_named_for_rescoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compbench.cli.plan.differing", lambda record, registry: ("metrics",))
    facts = {"task": "gmm-id", "method": "mono", "preset": "smoke", "source": "embedded"}
    own = record(**facts, settings={"w": 2}, metrics={"sw2": 1}, more={"given": ("w",)})
    Store(tmp_path).write(own)
    request = RunRequest(task="gmm-id", method="mono", preset="smoke", overrides={"w": 2}, home=str(tmp_path))
    assert rescorable(request, Store(tmp_path).paths()) == own.name
    assert rescorable(request.model_copy(update={"overrides": {"w": 3}}), Store(tmp_path).paths()) == ""
    monkeypatch.setattr("compbench.cli.plan.differing", lambda record, registry: ("method", "metrics"))
    assert rescorable(request, Store(tmp_path).paths()) == ""


def test_the_lattice_names_the_values_of_our_own_tasks() -> None:
    names = names_of(record())
    assert [name for name, _ in names] == ["shape", "object hue"]
    head, cube = list(drawn((CellCount((0, 1), 1, 2),), (), names))[1:3]
    assert head.split()[:3] == ["shape", "\\", "object"]
    assert cube.split() == ["cube", "50"]


def test_a_failed_run_prints_its_whole_record(shown) -> None:
    lines = shown(record(status="failed"))
    assert any(line.startswith("failed") for line in lines)
    assert any(line.startswith("where ") for line in lines)


def test_the_plan_takes_the_seconds_of_earlier_runs_and_says_when_there_are_none(tmp_path: Path) -> None:
    asked = RunRequest(task="shapes3d-heavy", method="factored", home=str(tmp_path))
    unknown = plan_of(asked.model_copy(update={"task": "of-a-stranger"}), [])
    assert unknown.seconds is None
    assert unknown.words.startswith(
        "The run starts, prepares judges and references, fits the method, draws samples and scores them;"
    )
    assert "minutes on two cores" in unknown.words
    first = plan_of(asked, Store(tmp_path).paths())
    published = json.loads(EXPECTED.read_text())["shapes3d-heavy"]["quick"]["seconds"]
    assert first.seconds == sum(published.values()) > 60
    assert f"fit {published['fit'] / 60:.1f} min" in first.words
    assert "by published runs" in first.words
    assert "are kept for later runs" in first.words
    stages = (Stage(name="prepare", seconds=30.0), Stage(name="fit", seconds=60.0), Stage(name="sample", seconds=5.0))
    more = {"profile": Profile(stages=stages), "seconds": 100.0}
    Store(tmp_path).write(record(method="mono", more=more))
    other = plan_of(asked, Store(tmp_path).paths())
    assert other.seconds == 100.0
    assert "judges and references 30.0 s, fit 1.0 min, samples 5.0 s" in other.words
    assert "by 1 run of other methods here" in other.words
    Store(tmp_path).write(record(more=more | {"seconds": 80.0}))
    assert plan_of(asked, Store(tmp_path).paths()).seconds == 80.0
