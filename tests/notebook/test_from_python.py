"""compbench from Python: lazy names, runs of installed methods and of cells, stored models, views of tasks."""

from __future__ import annotations

import ast
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import Field
from support.sample_records import record, score
from torch import nn

import compbench
from compbench import Method, MethodSettings
from compbench.api.schemas import Record
from compbench.notebook.cell_source import source_of
from compbench.notebook.record_view import show_records
from compbench.registry.registry import Registry
from compbench.runner.attempt import exclusive
from compbench.store.lease import take
from compbench.store.records import Store, read_record
from compbench.store.submission import checked
from compbench.system.errors import CompbenchError

ROOT = Path(__file__).parents[2]
SCALE = 2.0


class Settings(MethodSettings):
    shift: float = Field(0.0, ge=-9, le=9, description="added to each sample")


def scaled(value: torch.Tensor) -> torch.Tensor:
    return SCALE * value


def build(settings: Settings, problem: Any) -> nn.Module:
    return nn.Linear(len(problem.space), problem.event.shape[0])


def fit(settings: Settings, problem: Any, ctx: Any) -> nn.Module:
    ctx.progress(problem.budget.train_steps, problem.budget.train_steps)
    return build(settings, problem)


@torch.no_grad()
def sample(settings: Settings, model: nn.Module, request: Any, ctx: Any) -> torch.Tensor:
    return request.x0 + scaled(model(request.condition.float())) + settings.shift


CELL = Method(name="cell", settings=Settings, fit=fit, sample=sample, build=build, evaluations=lambda settings, problem: 1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("home")
        patch.setenv("COMPBENCH_HOME", str(place))
        yield place


@pytest.fixture(scope="module")
def ran(home: Path) -> Record:
    return compbench.run(CELL, "gauss2d-fact-id", preset="smoke", in_process=True, shift=0.5)


def test_importing_compbench_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import compbench; print(sorted(set(sys.modules) - before))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "['compbench']"
    )


def test_every_lazy_name_is_there_and_type_checkers_know_the_same() -> None:
    stub = ast.parse((ROOT / "compbench" / "__init__.pyi").read_text())
    typed = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == set(compbench.__all__) - {"__version__"}
    assert all(getattr(compbench, name) is not None for name in compbench.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sampel'"):
        _ = compbench.sampel  # type: ignore[attr-defined]


def test_run_is_the_function_whose_arguments_a_notebook_shows() -> None:
    import inspect

    from compbench.notebook.from_python import run

    assert compbench.run is run
    assert list(inspect.signature(compbench.run).parameters)[:2] == ["method", "task"]


def test_a_method_of_a_cell_runs_and_its_record_says_what_it_is(ran: Record, home: Path) -> None:
    assert (ran.status, ran.in_process, ran.plugin.distribution) == ("ok", True, "notebook")
    assert (ran.spec.method, ran.spec.settings) == ("cell", {"shift": 0.5})
    assert ran.code.parts.keys() >= {"method", "task"}
    with pytest.raises(CompbenchError, match="in_process|in-process"):
        checked(home / "records" / f"{ran.name}.json", Registry())


def test_a_method_of_a_cell_runs_each_time_it_is_asked_for(ran: Record) -> None:
    other = compbench.run(CELL, "gauss2d-fact-id", preset="smoke", in_process=True, shift=0.5)
    assert (other.identity, other.attempt) == (ran.identity, ran.attempt + 1)
    assert {score.name: score.value for score in other.scores} == {score.name: score.value for score in ran.scores}


def test_a_record_of_a_cell_cannot_be_handed_in_as_a_plugin_either(ran: Record, tmp_path: Path) -> None:
    from compbench.store.submission import _check_plugin

    with pytest.raises(CompbenchError, match="from a notebook; make a plugin from it: compbench new cell"):
        _check_plugin(ran.model_copy(update={"in_process": False}), Registry())


def test_a_stored_model_answers_conditions(ran: Record) -> None:
    model = compbench.load(ran, method=CELL)
    asked = [[1, 1], [0, 1], [0, -1]]
    samples = model.sample(asked, seed=3)
    noise = torch.randn((3, 2), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert torch.equal(samples, noise + 2 * model.model(torch.tensor(asked).float()) + 0.5)
    with pytest.raises(CompbenchError, match="first 0-1, second 0-1"):
        model.sample([[2, 0]])
    with pytest.raises(CompbenchError, match=r"\(B, 2\) of first, second"):
        model.sample([[1, 0, 1]])
    with pytest.raises(CompbenchError, match=r"whole numbers \(B, 2\) of first, second"):
        model.sample([[1], [0, 1]])


def test_a_record_of_samples_has_no_model_to_load() -> None:
    with pytest.raises(CompbenchError, match="holds samples only: compbench saw no training"):
        compbench.load(record(method="theirs", more={"samples_only": True}))


def test_files_of_plugins_may_be_named_by_text(ran: Record, tmp_path: Path) -> None:
    file = tmp_path / "another.py"
    file.write_text('"""Another method."""')
    assert compbench.load(ran, method=CELL, plugins=[str(file)]).record == ran


def test_a_stored_model_and_a_task_take_what_runs_made_of_the_data(ran: Record, home: Path) -> None:
    made = home / "references" / "data" / "made-of-data.npz"
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(b"once")
    compbench.load(ran, method=CELL)
    assert compbench.task("gauss2d-fact-id").problem is not None
    for cache in (home / "runs" / ran.identity / "cache", home / "cache" / "notebooks"):
        assert (cache / "data" / made.name).resolve() == (home / "cache" / "data" / made.name).resolve()
        assert (cache / "data" / made.name).read_bytes() == b"once"


def test_the_table_of_records_has_the_runs(ran: Record, home: Path) -> None:
    table = compbench.records()
    assert set(table["record"]) <= {path.stem for path in Store(home / "records").paths()}
    own = table[table["record"] == ran.name]
    assert dict(zip(own["score.name"], own["score.value"], strict=True)) == {s.name: s.value for s in ran.scores}


def test_a_record_is_one_line_and_in_a_notebook_its_scores_with_chance_and_its_picture(home: Path) -> None:
    task, metric = "shapes3d-heavy", {"ceiling": 0.99, "metric_version": 2}
    made = record(score(value=0.5, **metric), score("seen_accuracy", 0.9), task=task)
    show_records()
    assert repr(made) == str(made) == "<Record factored on shapes3d-heavy, quick, seed 0: heldout_accuracy 0.5>"
    assert "<img" not in made._repr_html_()
    store = Store(home / "records")
    kept = read_record(store.write(made, {"samples.png": b"picture"}))
    for part in ("<td>0.5</td><td>0.03333</td><td>0.99</td>", "<td>0.9</td>", "base64,cGljdHVyZQ=="):
        assert part in kept._repr_html_()
    failed = record(status="oom", more={"reason": "no <memory>"})
    assert repr(failed).endswith(": oom no <memory>>")
    assert "<b>oom</b>: no &lt;memory&gt;" in failed._repr_html_()


def test_a_method_object_is_refused_where_it_cannot_be_protected() -> None:
    with pytest.raises(CompbenchError, match="in_process=True"):
        compbench.run(CELL, "gauss2d-fact-id")
    with pytest.raises(CompbenchError, match="name of an installed method"):
        compbench.run(replace(CELL, name="mono"), "gauss2d-fact-id", in_process=True)
    with pytest.raises(CompbenchError, match="no task named"):
        compbench.run("mono", "gauss3d")
    with pytest.raises(CompbenchError, match="seed of the run"):
        compbench.run("mono", "gauss2d-fact-id", seed=-1)


def test_the_source_of_a_cell_holds_all_that_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    text = source_of(CELL)
    ast.parse(text)
    assert all(part in text for part in ("def scaled", "SCALE = '2.0'", "class Settings", "import torch as torch"))
    assert " at 0x" not in text
    assert source_of(CELL) == text
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert source_of(CELL) != text


def test_a_task_renders_exactly_where_it_has_a_closed_form() -> None:
    view = compbench.task("bump-center")
    (image,) = view.render([[3, 4]])
    truth = Registry().load("tasks", "bump-center").truth
    assert truth is not None
    assert torch.equal(image, truth(torch.tensor([[3, 4]]))[0])


def test_a_task_is_one_short_line() -> None:
    said = "<task bump-center, quick, seed 0: 289 of 784 cells held out, image 1 x 28 x 28>"
    assert repr(compbench.task("bump-center")) == said


@pytest.mark.parametrize("conditions", [[[3], [4, 5]], [["a", "b"]], [[10**30, 4]]])
def test_conditions_that_are_no_whole_numbers_are_refused_in_one_line(conditions: list) -> None:
    with pytest.raises(CompbenchError, match="conditions are whole numbers"):
        compbench.task("bump-center").render(conditions)


def test_conditions_of_the_right_shape_are_said_to_be_of_the_wrong_type() -> None:
    with pytest.raises(CompbenchError, match=r"got floating-point numbers \(1, 2\)"):
        compbench.task("bump-center").render([[1.5, 2]])


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"device": "cpu"}, "'device' is not a setting of the method but an option: options={'device': ...}"),
        ({"options": {"devise": "cpu"}}, "no option of a run named 'devise'. Did you mean 'device'"),
        ({"options": {"nothing": 1}}, "no option of a run named 'nothing'. Known: curve, device"),
    ],
)
def test_an_option_in_the_wrong_place_or_misspelt_is_named(facts: dict, message: str, home: Path) -> None:
    with pytest.raises(CompbenchError, match=message):
        compbench.run("naive-ode", "gauss2d-fact-id", preset="smoke", **facts)


@pytest.mark.parametrize("facts", [{"preset": "fast"}, {"seed": -1}])
def test_a_task_of_no_preset_or_seed_is_refused_as_a_run_is(facts: dict) -> None:
    with pytest.raises(CompbenchError, match="of the run: Input should be"):
        compbench.task("bump-center", **facts)


def test_a_task_renders_seen_combinations_from_its_training_data_and_no_others(home: Path) -> None:
    view = compbench.task("gauss2d-fact-id", train_points=500)
    own = view.render([[1, 0], [0, 0]])
    silo = view.problem.federation.pooled()
    drawn = [silo.batch(900, torch.Generator().manual_seed(seed)) for seed in range(20)]
    for sample, combination in zip(own, [[1, 0], [0, 0]], strict=True):
        rows = torch.cat([batch.x1[(batch.condition == torch.tensor(combination)).all(1)] for batch in drawn])
        assert (rows == sample).all(1).any()
    with pytest.raises(CompbenchError, match="only the referee"):
        view.render([[1, 1]])
    with pytest.raises(CompbenchError, match="every factor a value"):
        view.render([[-1, 0]])


def test_a_task_renders_the_seen_combinations_of_its_seed_and_no_others(home: Path) -> None:
    view = compbench.task("glyph-light", preset="smoke", seed=1)  # each seed holds out other combinations
    holdouts = [view.task.holdout, view.problem.holdout]
    first, own = (set(holdout.cells) for holdout in holdouts)
    freed, refused = [
        [cell[holdouts[1].factors.index(place)] if place in holdouts[1].factors else 0 for place in range(len(view.task.space))]
        for cell in (min(first - own), min(own - first))
    ]
    assert view.render([freed]).shape == (1, *view.task.event.shape)
    with pytest.raises(CompbenchError, match="only the referee"):
        view.render([refused])


def test_a_run_that_another_session_is_doing_is_one_line_without_frames_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Record
) -> None:
    def busy(*_: object, **__: object) -> None:
        with exclusive(tmp_path / "run.lease", ran.spec):
            pass

    monkeypatch.setattr("compbench.notebook.from_python.run_request", busy)
    lease = take(tmp_path / "run.lease")
    try:
        with pytest.raises(compbench.Busy, match="is being run by another process .*; wait for it, or change the seed") as caught:
            compbench.run("mono", "gmm-id")
    finally:
        lease.release()
    assert [frame.name for frame in caught.traceback] == [
        "test_a_run_that_another_session_is_doing_is_one_line_without_frames_of_ours",
        "call",
    ]
    assert "lease.py" not in "".join(traceback.format_exception(caught.value))
    (line,) = caught.value._render_traceback_()  # what IPython prints
    assert line.startswith("Busy: 'cell' on 'gauss2d-fact-id'")
