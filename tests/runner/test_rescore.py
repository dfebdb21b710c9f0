"""What is kept of a run is scored again without training, and someone's samples by the same evaluation."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner

from compbench.api.schemas import Record, RunRequest
from compbench.cli.main import main
from compbench.registry.meaning import Code as Meaning
from compbench.registry.registry import Registry
from compbench.runner import referee, rescore
from compbench.runner.attempt import Outcome
from compbench.runner.contestant import Contestant
from compbench.runner.in_process import InProcessPair
from compbench.runner.one_run import run
from compbench.runner.reproduce import request_of
from compbench.runner.rescore import SAMPLES_FILE, WEIGHTS_FILE
from compbench.store.format import dump
from compbench.store.records import read_record
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors, save_tensors
from compbench.system.home import Home

TASK = "gauss2d-fact-id"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Outcome]:
    """A home and the record of a short run, whose samples and weights are kept."""
    root = tmp_path_factory.mktemp("home")
    request = RunRequest(
        task=TASK,
        method="mono",
        preset="smoke",
        device="cpu",
        precision="fp32",
        overrides={"budget.train_steps": 3, "budget.sample_steps": 2},
        home=str(root),
        keep_samples=True,
    )
    return root, run(request, in_process=True)


def contestants_in_this_process(monkeypatch) -> None:
    pair = lambda request, own, listener, alarm: InProcessPair(request, own.folder, listener)  # noqa: E731
    monkeypatch.setattr(rescore, "ProcessPair", pair)


@pytest.fixture
def kept(made, tmp_path, monkeypatch) -> Outcome:
    """The same in a home of this test's own; contestants run in this process, and none may fit."""
    import shutil

    root, outcome = made
    shutil.copytree(root, tmp_path / "home")
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    contestants_in_this_process(monkeypatch)
    monkeypatch.setattr(Contestant, "_fit", lambda *_: pytest.fail("it trained"))
    return outcome._replace(path=tmp_path / "home" / "records" / outcome.path.name)


@pytest.fixture
def newer(monkeypatch) -> None:
    a_day_later(monkeypatch)


def a_day_later(monkeypatch) -> None:
    """sw2 has a second version, and a metric was installed."""
    before = referee.metrics_of

    def metrics_of(task, registry, more=()):
        found = before(task, registry, more)
        other = replace(found["sw2"], name="sw2_again")
        return {**found, "sw2": replace(found["sw2"], version=2), "sw2_again": other}

    monkeypatch.setattr(referee, "metrics_of", metrics_of)


def home_of(outcome: Outcome) -> Home:
    return Home(outcome.path.parents[1])


def folder_of(outcome: Outcome) -> Path:
    return home_of(outcome).runs / outcome.record.identity


METRIC_CODE = '''"""One more metric, of points."""
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric


@hookimpl
def compbench_metrics():
    return (Metric("sharpness", "a new one", "", "higher", kinds=("vector",)),)
'''


def test_installing_a_metric_trains_nothing_again_and_imports_it_nowhere(kept, tmp_path, monkeypatch) -> None:
    site = tmp_path / "site"
    described = site / "sharpness-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: sharpness\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[compbench.metrics]\nsharpness = sharpness\n")
    (site / "sharpness.py").write_text(METRIC_CODE)
    monkeypatch.syspath_prepend(site)
    assert "sharpness" in Registry().names("metrics")
    again = run(request_of(kept.record.spec, home_of(kept).root), in_process=True)
    assert (again.reused, again.record) == (True, kept.record)
    assert "sharpness" not in sys.modules


@pytest.mark.parametrize("source", [SAMPLES_FILE, WEIGHTS_FILE])
@pytest.mark.usefixtures("newer")
def test_new_versions_of_metrics_are_computed_from_what_is_kept(kept, source) -> None:
    if source == WEIGHTS_FILE:
        (folder_of(kept) / SAMPLES_FILE).unlink()
    before = kept.path.read_bytes()
    found = rescore.rescore(kept.path, home_of(kept))
    assert (found.reused, found.record.rescored) == (False, kept.record.name)
    assert found.record.identity != kept.record.identity
    assert found.record.spec.metrics["sw2"] == 2
    assert kept.path.read_bytes() == before
    for score in kept.record.scores:
        again = found.record.score(score.name)
        assert again.value == score.value
        assert (again.metric_version == score.metric_version) == (score.metric != "sw2")
    assert found.record.profile.parameters == kept.record.profile.parameters
    for name in rescore.OF_THE_FIT:
        assert getattr(found.record, name) == getattr(kept.record, name)


@pytest.mark.usefixtures("newer")
def test_a_rescored_record_keeps_what_it_takes_to_be_scored_again(kept) -> None:
    first = rescore.rescore(kept.path, home_of(kept))
    assert rescore.rescore(first.path, home_of(kept)).reused
    assert (home_of(kept).runs / first.record.identity / SAMPLES_FILE).is_file()


def without_a_library(kept: Outcome, score) -> Record:
    """The kept record as a machine writes it that lacks the library of one score."""
    unavailable = score.model_copy(update={"value": None, "reason": "no library: pip install library"})
    scores = tuple(unavailable if one.name == score.name else one for one in kept.record.scores)
    lacking = kept.record.model_copy(update={"scores": scores})
    kept.path.write_bytes(dump(lacking))
    return lacking


def test_a_score_that_lacked_a_library_is_computed_once_it_is_installed(kept) -> None:
    first = kept.record.scores[0]
    without_a_library(kept, first)
    found = rescore.rescore(kept.path, home_of(kept))
    assert (found.reused, found.record.score(first.name).value) == (False, first.value)
    assert (found.record.identity, found.record.attempt) == (kept.record.identity, kept.record.attempt + 1)
    assert rescore.rescore(kept.path, home_of(kept)).path == found.path


def test_a_score_whose_library_is_still_missing_makes_no_new_record(kept, monkeypatch) -> None:
    lacking = without_a_library(kept, kept.record.scores[0])
    monkeypatch.setattr(rescore._Again, "_stages", lambda attempt: setattr(attempt, "scores", lacking.scores))
    found = rescore.rescore(kept.path, home_of(kept))
    assert (found.reused, found.path) == (True, kept.path)


def test_a_record_that_has_all_scores_is_answered_with_itself(kept) -> None:
    found = rescore.rescore(kept.path, home_of(kept))
    assert (found.reused, found.path) == (True, kept.path)
    done = CliRunner().invoke(main, ["rescore", kept.path.stem, "--quiet"])
    assert (done.exit_code, "already has all of today's scores" in done.output) == (0, True), done.output


def refused(kept: Outcome) -> str:
    records = sorted(kept.path.parent.glob("*.json"))
    with pytest.raises(CompbenchError) as error:
        rescore.rescore(kept.path, home_of(kept))
    assert sorted(kept.path.parent.glob("*.json")) == records
    return str(error.value)


@pytest.mark.usefixtures("newer")
def test_weights_that_are_not_the_record_s_are_refused(kept) -> None:
    (folder_of(kept) / SAMPLES_FILE).unlink()
    weights, facts = load_tensors(folder_of(kept) / WEIGHTS_FILE)
    save_tensors(folder_of(kept) / WEIGHTS_FILE, {name: 3 * value for name, value in weights.items()}, facts)
    assert "what is kept does not belong to the record" in refused(kept)


@pytest.mark.usefixtures("newer")
def test_weights_of_another_network_are_one_line(kept) -> None:
    (folder_of(kept) / SAMPLES_FILE).unlink()
    weights, facts = load_tensors(folder_of(kept) / WEIGHTS_FILE)
    save_tensors(folder_of(kept) / WEIGHTS_FILE, dict(list(weights.items())[1:]), facts)
    said = refused(kept)
    assert "the weights do not fit 'mono'" in said
    assert "\n" not in said


@pytest.mark.usefixtures("newer")
def test_a_method_that_has_changed_since_is_refused(kept, monkeypatch) -> None:
    changed = lambda record, today: ("method",)  # noqa: E731
    monkeypatch.setattr(rescore, "differing_from", changed)
    assert "the code differs in method; run it again" in refused(kept)
    monkeypatch.setattr(rescore, "differing_from", lambda record, today: ("metrics", "task"))
    assert rescore.rescore(kept.path, home_of(kept)).record.rescored
    assert Meaning  # the type that `differing_from` is given


def test_a_run_of_which_nothing_is_kept_says_what_would_keep_it(kept) -> None:
    for name in (SAMPLES_FILE, WEIGHTS_FILE):
        (folder_of(kept) / name).unlink()
    assert "--keep-samples" in refused(kept)


OWN_METHOD = '''"""Noise, shifted."""

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Method, MethodSettings
from torch import nn

class Settings(MethodSettings): ...

def build(settings, problem):
    return nn.Linear(1, 1)

def fit(settings, problem, ctx):
    return build(settings, problem)

def sample(settings, model, request, ctx):
    return request.x0 + model.bias

@hookimpl
def compbench_methods():
    return (Method(name="own-noise", settings=Settings, fit=fit, sample=sample, build=build),)
'''


@pytest.mark.parametrize("source", [SAMPLES_FILE, WEIGHTS_FILE])
def test_a_method_from_a_file_is_named_by_plugin(tmp_path, monkeypatch, source) -> None:
    contestants_in_this_process(monkeypatch)
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    file = tmp_path / "own_noise.py"
    file.write_text(OWN_METHOD)
    words = ["run", "--method", "own-noise", "--task", TASK, "--preset", "smoke", "--device", "cpu", "--keep-samples", "--quiet"]
    ran = CliRunner().invoke(main, [*words, "--in-process", "--plugin", str(file)])
    assert ran.exit_code == 0, ran.output
    (path,) = (tmp_path / "home" / "records").glob("*.own-noise.*.json")
    if source == WEIGHTS_FILE:
        (tmp_path / "home" / "runs" / read_record(path).identity / SAMPLES_FILE).unlink()
    a_day_later(monkeypatch)
    bare = CliRunner().invoke(main, ["rescore", path.stem, "--quiet"])
    said = "is not installed; it came from the file own_noise.py; name the file with --plugin."
    assert (bare.exit_code, said in bare.output, bare.output.count("\n")) == (2, True, 1), bare.output
    done = CliRunner().invoke(main, ["rescore", path.stem, "--quiet", "--plugin", str(file)])
    assert (done.exit_code, "heldout_sw2_again" in done.output) == (0, True), done.output


def score(*words: str) -> object:
    return CliRunner().invoke(main, ["score", "--task", TASK, "--preset", "smoke", "--quiet", *words])


def test_kept_samples_score_as_someones_what_they_scored_as_a_run_s(kept, tmp_path) -> None:
    done = score(str(folder_of(kept) / SAMPLES_FILE), "--name", "theirs")
    assert done.exit_code == 0, done.output
    assert "samples only: compbench saw no training" in " ".join(done.output.split())
    (path,) = kept.path.parent.glob("*.theirs.*.json")
    found = read_record(path)
    assert (found.samples_only, found.spec.method, found.plugin.distribution) == (True, "theirs", "")
    assert {score.name: score.value for score in found.scores} == {score.name: score.value for score in kept.record.scores}


def test_ctrl_c_in_score_stays_ctrl_c(kept) -> None:
    def stopped(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    request = RunRequest(task=TASK, method="theirs", preset="smoke", device="cpu", home=str(kept.path.parents[1]))
    with pytest.raises(KeyboardInterrupt):
        rescore.score_samples(request, folder_of(kept) / SAMPLES_FILE, listener=stopped)


def test_warming_a_gpu_up_uses_up_no_sample(kept, monkeypatch) -> None:
    class Warmed(referee.CheckedSampler):
        """As on a GPU: before the first request and before every larger one."""

        def __init__(self, *given, warm_up: bool, **options) -> None:
            super().__init__(*given, warm_up=True, **options)

    monkeypatch.setattr(referee, "CheckedSampler", Warmed)
    done = score(str(folder_of(kept) / SAMPLES_FILE), "--name", "theirs")
    assert done.exit_code == 0, done.output
    (path,) = kept.path.parent.glob("*.theirs.*.json")
    assert {one.name: one.value for one in read_record(path).scores} == {one.name: one.value for one in kept.record.scores}


def test_someones_weights_are_scored_through_the_method_s_build(kept) -> None:
    words = ["--weights", str(folder_of(kept) / WEIGHTS_FILE), "--method", "mono", "--set", "budget.sample_steps=2"]
    done = score(*words, "--set", "budget.train_steps=3")
    assert done.exit_code == 0, done.output
    found = [read_record(path) for path in kept.path.parent.glob("*.mono.*.json")]
    (theirs,) = [one for one in found if one.samples_only]
    assert "weights_sha256" in theirs.spec.settings
    assert theirs.score("heldout_sw2").value == pytest.approx(kept.record.score("heldout_sw2").value, rel=0.05)


def test_requests_are_what_the_evaluation_asks_and_samples_in_their_order_score(kept, tmp_path) -> None:
    wanted = tmp_path / "wanted.npz"
    assert score("--requests", str(wanted)).exit_code == 0
    with numpy.load(wanted) as asked, numpy.load(folder_of(kept) / SAMPLES_FILE) as mine:
        assert numpy.array_equal(asked["conditions"], mine["conditions"])
        assert set(asked["stream"]) >= {"heldout"}
        more = {"conditions": asked["conditions"][:3], "samples": asked["x0"][:3]}
        noise = {"conditions": asked["conditions"], "samples": asked["x0"]}
        numpy.savez(tmp_path / "noise.npz", **{name: numpy.concatenate([noise[name], more[name]]) for name in noise})
    done = CliRunner().invoke(main, ["score", "--task", TASK, "--preset", "smoke", str(tmp_path / "noise.npz")])
    assert (done.exit_code, "3 of the samples were not requested and not used" in done.output) == (0, True), done.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c, s: (c[:-3], s[:-3]), "too few samples"),
        (lambda c, s: (c[c.sum(1) < 2], s[c.sum(1) < 2]), "samples has it"),
    ],
    ids=["too few rows", "wrong conditions"],
)
def test_samples_that_do_not_answer_the_requests_are_one_line_and_2(kept, tmp_path, change, said) -> None:
    with numpy.load(folder_of(kept) / SAMPLES_FILE) as mine:
        conditions, samples = change(mine["conditions"], mine["samples"])
    numpy.savez(tmp_path / "theirs.npz", conditions=conditions, samples=samples)
    done = score(str(tmp_path / "theirs.npz"))
    assert (done.exit_code, said in done.output, done.output.count("\n")) == (2, True, 1), done.output
    assert list(kept.path.parent.glob("*.theirs.*")) == []


@pytest.mark.parametrize(
    "words",
    [[], ["a.npz", "--requests", "b.npz"], ["--weights", "none"], ["--weights", "none", "--method", "mono"], ["none.npz"]],
)
def test_wrong_usage_of_score_is_one_line_and_2(kept, words) -> None:
    done = score(*words)
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output


def test_weights_that_are_no_safetensors_file_are_named(kept, tmp_path) -> None:
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"no weights")
    done = score("--weights", str(file), "--method", "mono")
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert f"--weights {file}: this is not a whole safetensors file" in done.output
