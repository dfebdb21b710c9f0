"""The contracts of tasks and metrics: honest ones pass, and each planted flaw is the finding that it is for."""

from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from support.sample_records import score

from compbench.api.interfaces import Evaluation, Value
from compbench.cli.main import main
from compbench.registry.registry import Registry
from compbench.testing.metric_clauses import of_metric
from compbench.testing.task_clauses import by_luck, of_task

REGISTRY = Registry()
SW2, BLOBS = REGISTRY.load("metrics", "sw2"), REGISTRY.load("tasks", "blobs-iid")


def failures(findings) -> list[str]:
    return [finding.check for finding in findings if finding.status == "failed"]


@pytest.mark.parametrize("name", ["sw2", "mmd2", "mmd2_fixed"])
def test_an_honest_metric_keeps_the_contract(name) -> None:
    found = list(of_metric(REGISTRY.load("metrics", name)))
    assert [finding.status for finding in found] == ["ok"] * 3


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"direction": "higher"}, ["floor", "monotone"]),
        ({"compute": lambda pair, generator: Value(SW2.compute(pair, generator).value)}, ["floor"]),
        ({"compute": lambda pair, generator: SW2.compute(pair._replace(generated=pair.real), generator)}, ["floor", "monotone"]),
        ({"compute": lambda pair, generator: Value(torch.rand(()).item() - 9, 0.0)}, ["floor", "repeatable", "monotone"]),
        ({"compute": lambda pair, generator: SW2.compute(pair, generator)._replace(floor=5.0)}, ["floor"]),
    ],
    ids=["direction", "no floor", "blind", "chance", "wrong floor"],
)
def test_a_flaw_of_a_metric_is_a_finding(changes, checks) -> None:
    assert failures(of_metric(replace(SW2, **changes))) == checks


def test_an_honest_task_keeps_the_contract() -> None:
    found = list(of_task(BLOBS, REGISTRY))
    assert [finding.status for finding in found] == ["ok"] * 4
    assert "one example per combination" in found[-1].found


@pytest.mark.parametrize("changes", [{"family": "plane"}, {"core": True}, {"files": ("a.npz",)}, {"extra": "digits"}])
def test_a_task_that_says_something_else_than_its_file_is_a_finding(changes) -> None:
    assert failures(of_task(replace(BLOBS, **changes), REGISTRY, only=("declared",))) == ["declared"]


def otherwise(changed):
    """The blobs with every score changed by a function."""

    class Opened:
        def __init__(self, ctx) -> None:
            self.own = BLOBS.open(ctx)
            self.problem, self.prepare = self.own.problem, self.own.prepare

        def evaluate(self, sampler) -> Evaluation:
            return Evaluation(tuple(changed(score) for score in self.own.evaluate(sampler).scores))

    return replace(BLOBS, open=Opened)


def test_a_board_that_collapse_would_win_is_a_finding() -> None:
    ranked = REGISTRY.load("tasks", "blobs-iid").primary.replace("sw2", "mode_share")
    task = replace(otherwise(lambda score: score.model_copy(update={"primary": score.name == ranked})), primary=ranked)
    assert failures(of_task(task, REGISTRY)) == ["collapse"]


def test_a_ceiling_below_chance_and_a_task_without_its_primary_score_are_findings() -> None:
    task = otherwise(lambda score: score.model_copy(update={"floor": 9.0} if score.metric == "sw2" else {}))
    assert failures(of_task(task, REGISTRY)) == ["ceiling"]
    assert failures(of_task(replace(BLOBS, primary="seen_sw2"), REGISTRY)) == ["primary"]


@pytest.mark.parametrize(
    ("known", "noise", "real", "luck"),
    [
        ({"n": 16}, 0.75, 0.5625, True),
        ({"n": 1000}, 0.75, 0.5625, False),
        ({"n": 11}, 0.0909, 0.0909, True),
        ({"n": 16, "primary": True}, 0.75, 0.5625, False),
        ({"n": 16, "direction": "lower"}, 0.5625, 0.75, False),
    ],
)
def test_only_few_samples_of_a_score_that_does_not_rank_may_be_as_good_as_real_ones(known, noise, real, luck) -> None:
    assert by_luck(score(**{"primary": False, **known}), noise, real) == luck


def test_check_takes_names_of_tasks_and_metrics() -> None:
    done = CliRunner().invoke(main, ["check", "sw2", "blobs-iid"])
    assert done.exit_code == 0, done.output
    assert "sw2: 3 ok" in done.output
    assert "blobs-iid: 4 ok" in done.output


def test_only_takes_the_checks_of_what_is_checked() -> None:
    done = CliRunner().invoke(main, ["check", "sw2", "--only", "monotone", "--verbose"])
    assert done.exit_code == 0, done.output
    assert "sw2: 1 ok" in done.output
    assert "floor" not in done.output


@pytest.mark.parametrize(
    ("names", "asked", "said"),
    [
        (["sw2"], "fit", "no check of metrics named 'fit'. Known: floor, repeatable, monotone."),
        (["blobs-iid"], "fit", "no check of tasks named 'fit'. Known: primary, ceiling, collapse, declared."),
        (["mono"], "monotone", "no check of methods named 'monotone'. Known: settings,"),
        (["mono", "sw2"], "fit", "no check of metrics named 'fit'"),
    ],
)
def test_a_check_of_another_kind_is_one_line_before_anything_is_checked(names, asked, said) -> None:
    done = CliRunner().invoke(main, ["check", *names, "--only", asked])
    assert (done.exit_code, said in done.output, done.output.count("\n")) == (2, True, 1), done.output


def test_a_task_is_checked_for_what_is_asked_alone() -> None:
    assert [finding.check for finding in of_task(BLOBS, REGISTRY, only=("ceiling",))] == ["ceiling"]
