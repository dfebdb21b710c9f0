"""Whole runs in real processes, most of them of plugins that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import warnings
from pathlib import Path

import pytest
from support.sample_records import record
from support.seldom import seldom, slow
from support.template import TEMPLATE

from compbench.api.schemas import Record, RunRequest
from compbench.registry.resolve import check_same
from compbench.runner import processes
from compbench.runner.attempt import exclusive
from compbench.runner.one_run import run
from compbench.store.counts import beyond_budget
from compbench.store.records import Store
from compbench.system.errors import CompbenchError


def request(home: Path, **more: object) -> RunRequest:
    facts = {"task": "shapes3d-heavy", "method": "factored", "preset": "smoke", "device": "cpu", "threads": 1}
    return RunRequest(**{**facts, "home": str(home), **more})


def is_running(pid: int) -> bool:
    """Whether a process runs; one that was killed may stay a zombie until someone waits for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False
    return state not in "ZX"


def attempt(home: Path, file: Path, **more: object) -> Record:
    outcome = run(request(home, method="naughty", plugins=(str(file),), **more))
    assert outcome.path.is_file()
    return outcome.record


def test_a_run_ends_with_a_whole_record_and_the_same_spec_returns_it(home: Path) -> None:
    first = run(request(home))
    record = first.record
    assert record.status == "ok"
    assert {score.name for score in record.scores} >= {
        "heldout_accuracy",
        "heldout_accuracy_seen_judge",
        "seen_accuracy",
        "heldout_fd_judge",
        "heldout_kid",
        "heldout_precision",
        "heldout_recall",
        "heldout_fid",
    }
    assert all(score.ceiling is not None for score in record.scores if score.metric == "accuracy")
    assert all(score.floor is not None for score in record.scores if score.metric == "fd_judge")
    assert all(score.value is not None or score.reason for score in record.scores)
    profile = record.profile
    assert profile.parameters > 0
    assert profile.flops_per_train_step > profile.flops_per_sample / profile.evaluations_per_sample > 0
    assert profile.sample_samples_per_second > 0
    assert record.notes["counted optimiser_steps"] == record.notes["counted granted_steps"] == profile.train_steps
    assert beyond_budget(record) == ()
    assert Store(home / "records").picture(record).startswith(b"\x89PNG")
    again = run(request(home))
    assert again.reused
    assert again.record == record


TRAINED = '''"""mono, which fails where the first optimiser of its fit imports something."""

import sys

import torch

from compbench import Method, MethodSettings, hookimpl
from compbench.flow.nets import monolithic_net
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


def fit(settings, problem, ctx):
    before, weight = set(sys.modules), torch.ones(2, requires_grad=True)
    weight.sum().backward()
    torch.optim.AdamW([weight]).step()
    if late := sorted(set(sys.modules) - before):
        raise ValueError(f"late: {late}")
    net = monolithic_net(problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings, net, request, ctx):
    return answer(lambda x, t: net(x, t, request.condition), request, num_steps=net.sample_steps)


@hookimpl
def compbench_methods():
    return (Method(name="trained", settings=MethodSettings, fit=fit, sample=sample),)
'''


@pytest.mark.parametrize("fresh", seldom([False, True], but=[False]))
def test_two_seeds_differ_and_one_repeats_bit_for_bit_in_processes_whose_first_optimiser_imports_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    """They take no module from the working folder either, whatever its name; nor do fresh interpreters."""
    file = tmp_path / "trained.py"
    file.write_text(TRAINED)
    (tmp_path / "statistics.py").write_text("raise SystemExit('not the one you want')")
    monkeypatch.chdir(tmp_path)

    def made(seed: int, *, fresh: bool) -> Record:
        TEMPLATE.fresh = fresh
        made = run(request(home, method="trained", plugins=(str(file),), task="gauss2d-fact-id", seed=seed), force=True).record
        assert made.status == "ok", made.reason
        return made

    one, two, other = made(1, fresh=False), made(1, fresh=fresh), made(2, fresh=False)
    values = [[score.value for score in record.scores] for record in (one, two, other)]
    assert values[0] == values[1]
    assert values[0] != values[2]
    assert (one.attempt, two.attempt) == (1, 2)


def test_in_process_gives_the_scores_of_two_processes(home: Path) -> None:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cheap = request(home, method="mono", task="blobs-iid")
    apart = run(cheap).record
    together = run(cheap, force=True, in_process=True).record
    torch.set_num_threads(threads)
    assert together.in_process
    assert [score.value for score in together.scores] == [score.value for score in apart.scores]


@pytest.mark.parametrize(("asked", "threads"), [(0, 1), (2, 2)])
def test_in_process_takes_threads_that_do_not_spin(home: Path, monkeypatch: pytest.MonkeyPatch, asked: int, threads: int) -> None:
    import torch

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cheap = request(home, method="naive-ode-oracle", task="gauss2d-fact-id", threads=asked)
        record = run(cheap, force=True, in_process=True).record
        assert (record.environment.threads, torch.get_num_threads()) == (threads, 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"fit": "raise ValueError('no luck')"}, "failed", "ValueError: no luck"),
        ({"fit": "os.kill(os.getpid(), signal.SIGSEGV)"}, "failed", "SIGSEGV"),
        ({"fit": "os._exit(7)"}, "failed", "exit status 7"),
        ({"fit": "raise MemoryError('all gone')"}, "oom", "MemoryError"),
        ({"sample": "return request.x0 * float('nan')"}, "failed", "must be finite, 100.0%"),
        (
            {"sample": "return request.x0[:, :1]"},
            "failed",
            "must have shape (100, 2), got (100, 1). `compbench check --plugin naughty.py` says",
        ),
        ({"sample": "return [1]"}, "failed", "returned a list"),
        ({"sample": "return model(request.x0)"}, "failed", "fit of 'naughty' returned None"),
        ({"sample": "raise RuntimeError('cannot sample')"}, "failed", "cannot sample"),
        ({"sample": "os._exit(9)"}, "failed", "exit status 9"),
    ],
)
def test_a_plugin_that_misbehaves_leaves_a_record_that_says_how(
    home: Path, plugin, body: dict[str, str], status: str, reason: str
) -> None:
    record = attempt(home, plugin(**body), task="blobs-iid")
    if reason not in record.reason and "without a message" in record.reason:  # seen once, in a whole suite; why is not known
        warnings.warn(f"a child was lost: {record.reason}; {record.traceback[-500:]}", stacklevel=1)
        record = attempt(home, plugin(**body), task="blobs-iid")
    assert record.status == status
    assert reason in record.reason, record.traceback
    assert record.scores == ()


def test_a_plugin_that_hangs_is_killed_with_its_children_at_the_time_limit(home: Path, plugin, monkeypatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 1.0)
    body = "import subprocess; print('child', subprocess.Popen(['sleep', '600']).pid)"
    file = plugin(fit=f"{body}; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)")
    for limit in (3.0, 30.0):  # on a busy machine three seconds do not reach the fit, or not even the plugin's import
        try:
            record = attempt(home, file, task="gauss2d-fact-id", time_limit=limit)
        except CompbenchError:
            continue
        assert record.status == "timeout"
        if "child " in record.traceback:
            break
    assert not is_running(int(record.traceback.split("child ")[1].split()[0]))


def test_a_plugin_that_breaks_on_import_is_one_line_and_no_record(home: Path, plugin) -> None:
    before = len(Store(home / "records").paths())
    with pytest.raises(CompbenchError, match="broken: ValueError: no luck"):
        attempt(home, plugin(head="raise ValueError('no luck')"))
    assert len(Store(home / "records").paths()) == before


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"head_widht": 2}, "Did you mean 'head_width'"),
        ({"head_width": -1}, "head_width=-1"),
        ({"budget.train_step": 5}, "budget.train_steps"),
        ({"budget.patch": 99}, "it takes 0 < integer <= 16 "),
        ({"task.judge": "oracle"}, "it takes plain or pooled "),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_runs(home: Path, overrides: dict, message: str) -> None:
    with pytest.raises(CompbenchError, match=message):
        run(request(home, overrides=overrides))


def test_a_method_for_vectors_is_refused_on_images(home: Path, plugin) -> None:
    file = plugin()
    file.write_text(file.read_text().replace("sample=sample)", "sample=sample, kinds=('vector',))"))
    with pytest.raises(CompbenchError, match="makes vectors, and the task asks for images"):
        attempt(home, file)


def test_two_runs_of_one_spec_at_once_are_told_apart(tmp_path: Path) -> None:
    spec = record().spec
    with (
        exclusive(tmp_path / "one.lease", spec),
        pytest.raises(CompbenchError, match="being run by another process"),
        exclusive(tmp_path / "one.lease", spec),
    ):
        pass


def test_what_of_a_spec_is_not_so_here_is_named() -> None:
    wanted = record().spec
    check_same(wanted.model_copy(update={"code": "0" * 64, "task_version": 9, "metrics": {"more": 1}}), wanted)
    check_same(wanted.model_copy(update={"settings": {**wanted.settings, "newer": 1}}), wanted)
    with pytest.raises(CompbenchError, match=r"settings was \{'hidden': 64\}, here it is \{'hidden': 65\}"):
        check_same(wanted.model_copy(update={"settings": {"hidden": 65}}), wanted)
    with pytest.raises(CompbenchError, match="precision was fp32, here it is bf16"):
        check_same(wanted.model_copy(update={"precision": "bf16"}), wanted.model_copy(update={"precision": "fp32"}))


@pytest.mark.parametrize("number", [slow(signal.SIGINT), signal.SIGTERM])
def test_a_stopped_run_leaves_a_killed_record_and_resume_gives_the_undisturbed_result(home: Path, plugin, number: int) -> None:
    head = """
from compbench.flow.train import train
def unhurried(net, batch, generator):
    time.sleep(0.008)
    return (batch.x1 - net(torch.ones(1, 1))).square().mean()
"""
    fit = "return train(torch.nn.Linear(1, 2), unhurried, problem.federation.pooled(), problem.budget, ctx)"
    file = plugin(head=head, fit=fit, sample="return request.x0 + model(torch.ones(1, 1)).detach()")
    steps = {"budget.train_steps": 300 + number, "budget.checkpoint_seconds": 0.05}
    own = request(home, task="gauss2d-fact-id", method="naughty", plugins=(str(file),), seed=7, overrides=steps)
    whole = run(own).record
    command = TEMPLATE.compbench("run", "--plugin", file, "--method", "naughty", "--task", "gauss2d-fact-id")
    command += ["--preset", "smoke", "--seed", "7", "--device", "cpu", "--threads", "1", "--json", "--force"]
    command += [word for name, value in steps.items() for word in ("--set", f"{name}={value}")]
    env = {**os.environ, "COMPBENCH_HOME": str(home)}
    running = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    checkpoint = home / "runs" / whole.identity / "checkpoint.safetensors"
    for _ in range(3000):
        if checkpoint.is_file() or running.poll() is not None:
            break
        time.sleep(0.01)
    running.send_signal(number)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert json.loads(output)["status"] == "killed"
    assert checkpoint.is_file()
    resumed = run(own, force=True, resume=True).record
    assert resumed.resumed
    assert [score.value for score in resumed.scores] == [score.value for score in whole.scores]
    assert [(curve.name, curve.steps) for curve in resumed.losses] == [(curve.name, curve.steps) for curve in whole.losses]


@pytest.mark.parametrize("method", ["factored", "mono"])
def test_an_extension_task_says_what_the_second_stage_cost(home: Path, method: str) -> None:
    record = run(request(home, method=method, task="shapes3d-extend")).record
    assert record.status == "ok", record.reason
    extension = record.profile.extension
    if method == "factored":
        assert (extension.mode, extension.frozen_identical) == ("extended", True)
        assert 0 < extension.new_parameters < record.profile.parameters / 4
    else:
        assert (extension.mode, extension.new_parameters) == ("retrained", record.profile.parameters)
    assert record.score("all_accuracy_floor_hue").primary
    assert [curve.name for curve in record.losses] == ["extend", "fit"]
    assert record.score("all_accuracy_floor_hue").n == record.score("all_accuracy").n


def test_the_method_in_the_readme_runs_as_written(home: Path, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    code = readme.split("```python\n")[1].split("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    (tmp_path / "mine.py").write_text(code)
    record = run(request(home, method="mine", plugins=(str(tmp_path / "mine.py"),))).record
    assert record.status == "ok", record.reason
