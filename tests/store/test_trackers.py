"""Records for trackers: what is written can be read back by the tracker's own reader, or by the Hub's rules."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from support.sample_records import record, score

from compbench.api.schemas import CurvePoint, LossCurve, Profile, Record, Stage
from compbench.cli.main import main
from compbench.cli.store import _comparable
from compbench.store.hub import to_hub
from compbench.store.records import Store, read_record
from compbench.store.trackers import config, points, to_tensorboard, to_wandb
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


def png(width: int, height: int) -> bytes:
    """The beginning of a picture."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


def made() -> list[Record]:
    profile = Profile(train_steps_per_second=22.5, stages=(Stage(name="fit", seconds=3.0),))
    curve = LossCurve(name="fit.left", steps=(50, 80), loss=(2.5, 0.5), examples_per_second=(900.0, 1000.0))
    along = (CurvePoint(step=500, scores={"heldout_accuracy": 0.125}),)
    more = {"profile": profile, "notes": {"ess": (4.0, 2.0), "counted train_steps": 80.0}, "losses": (curve,), "curve": along}
    good = record(score(value=0.25), more=more)
    return [good, record(status="failed", seed=1, more={"reason": "no"})]


def test_points_are_scores_costs_and_curves() -> None:
    found = {(point.name, point.step): point.value for point in points(made()[0])}
    assert found["score/heldout_accuracy", 0] == 0.25
    assert (found["curve/heldout_accuracy", 500], found["curve/heldout_accuracy", 1000]) == (0.125, 0.25)
    assert found["cost/train_steps_per_second", 0] == 22.5
    assert found["seconds/fit", 0] == 3.0
    assert (found["notes/ess", 0], found["notes/ess", 1], found["counted/train_steps", 0]) == (4.0, 2.0, 80.0)
    assert (found["loss/fit.left", 50], found["loss/fit.left", 80]) == (2.5, 0.5)
    assert (found["examples_per_second/fit.left", 50], found["examples_per_second/fit.left", 80]) == (900.0, 1000.0)


def test_tensorboards_own_reader_finds_every_point(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    good = made()[0]
    store = Store(tmp_path)
    good = read_record(store.write(good, {"samples.png": png(3, 2)}))
    records = [good, made()[1]]
    assert to_tensorboard(records, tmp_path / "logs", store=store) == 2
    reader = accumulator.EventAccumulator(str(tmp_path / "logs" / good.name))
    reader.Reload()
    read = {(tag, event.step): event.value for tag in reader.Tags()["scalars"] for event in reader.Scalars(tag)}
    assert read == pytest.approx({(point.name, point.step): point.value for point in points(good)})
    assert [(event.step, event.value) for event in reader.Scalars("loss/fit.left")] == [(50, 2.5), (80, 0.5)]
    with pytest.raises(CompbenchError, match="name another folder"):
        to_tensorboard(records, tmp_path / "logs", store=store)
    (shown,) = reader.Images("samples")
    assert (shown.width, shown.height, shown.encoded_image_string, shown.step) == (3, 2, png(3, 2), 1000)


def test_wandb_gets_a_run_a_record_under_the_same_identifier_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def init(**facts: Any) -> SimpleNamespace:
        asked.append(("init", facts["id"], facts["config"]["seed"]))
        return SimpleNamespace(
            log=lambda values, step: asked.append(("log", step, values)),
            finish=lambda exit_code: asked.append(("end", exit_code)),
        )

    fake = ModuleType("wandb")
    fake.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    assert to_wandb(made(), "mine") == 2
    first = list(asked)
    asked.clear()
    to_wandb(made(), "mine")
    assert asked == first
    assert [entry[1] for entry in asked if entry[0] == "end"] == [0, 1]
    assert any(entry[0] == "log" and entry[1] == 1 and entry[2] == {"notes/ess": 2.0} for entry in asked)
    logged = [entry[1:] for entry in asked if entry[0] == "log" and any(name.startswith("loss/") for name in entry[2])]
    assert logged == [
        (50, {"loss/fit.left": 2.5, "examples_per_second/fit.left": 900.0}),
        (80, {"loss/fit.left": 0.5, "examples_per_second/fit.left": 1000.0}),
    ]


def test_a_tracker_that_is_not_installed_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(CompbenchError, match=r"--wandb needs wandb.*compbench\[trackers\]"):
        to_wandb(made(), "mine")
    with pytest.raises(CompbenchError, match=r"--tensorboard needs tensorboard"):
        to_tensorboard(made(), tmp_path, store=Store(tmp_path))


def test_the_hubs_folder_has_cards_that_parse_and_weights_of_finished_runs(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    home, store = Home(tmp_path / "home"), Store(tmp_path / "home" / "records")
    for one in made():
        store.write(one)
        (home.runs / one.identity).mkdir(parents=True)
        (home.runs / one.identity / "model.safetensors").write_bytes(b"weights")
    assert to_hub(made(), tmp_path / "hub", store=store, home=home) == 1
    good = made()[0]
    place = tmp_path / "hub" / "models" / good.name
    assert sorted(path.name for path in place.iterdir()) == ["README.md", "model.safetensors", "record.json"]
    card = yaml.safe_load((place / "README.md").read_text().split("---")[1])
    assert card["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.25
    data = yaml.safe_load((tmp_path / "hub" / "records" / "README.md").read_text().split("---")[1])
    table = pandas.read_parquet(tmp_path / "hub" / "records" / data["configs"][0]["data_files"])
    assert set(table["record"]) == {one.name for one in made()}


def test_a_folder_for_the_hub_that_cannot_be_made_is_one_line_and_none_is_left_half_made(tmp_path: Path, monkeypatch) -> None:
    home, store = Home(tmp_path / "home"), Store(tmp_path / "records")
    (tmp_path / "file").touch()
    with pytest.raises(CompbenchError, match="could not write"):
        to_hub(made(), tmp_path / "file" / "hub", store=store, home=home)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CompbenchError, match="pyarrow"):
        to_hub(made(), tmp_path / "hub", store=store, home=home)
    assert not (tmp_path / "hub").exists()


def test_the_hubs_community_evaluations_get_a_task_a_board_and_the_ranked_score(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    home, store = Home(tmp_path / "home"), Store(tmp_path / "records")
    own, changed = made()[0], record(score(value=0.9), seed=2, budget={"train_steps": 7}, budget_changed=("train_steps",))
    for one in (own, changed):
        store.write(one)
        (home.runs / one.identity).mkdir(parents=True)
        (home.runs / one.identity / "model.safetensors").write_bytes(b"weights")
    to_hub([own, changed], tmp_path / "hub", store=store, home=home, benchmark="me/records", comparable={own.name})
    benchmark = yaml.safe_load((tmp_path / "hub" / "records" / "eval.yaml").read_text())
    assert benchmark["tasks"] == [{"id": "shapes3d-heavy-quick-embedded", "config": "default", "split": "train"}]
    assert benchmark.keys() == {"name", "description", "evaluation_framework", "tasks"}
    models = tmp_path / "hub" / "models"
    (result,) = yaml.safe_load((models / own.name / ".eval_results" / "compbench.yaml").read_text())
    assert result["dataset"] == {"id": "me/records", "task_id": benchmark["tasks"][0]["id"]}
    assert (result["value"], result["date"]) == (0.25, own.started)
    assert not (models / changed.name / ".eval_results").exists()


def test_no_community_evaluation_has_a_smoke_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    settings = {"task_settings": {"axis_bins": 10, "judge": "plain"}}
    quick, smoke = (record(score(value=0.9), preset=preset, **settings) for preset in ("quick", "smoke"))
    assert _comparable([quick, smoke]) == {quick.name}


def test_config_is_flat_and_has_every_setting() -> None:
    flat = config(made()[0])
    assert flat["settings.hidden"] == 64
    assert all(isinstance(value, str | int | float | bool) for value in flat.values())


@pytest.mark.parametrize("wrong", [("--hub", "."), ("--tensorboard", ".")])
def test_an_export_of_which_one_destination_is_impossible_writes_none(
    wrong: tuple[str, str], tmp_path: Path, monkeypatch
) -> None:
    store = Store(tmp_path / "records")
    for one in made():
        store.write(one)
    (tmp_path / "there" / made()[0].name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "there")
    done = CliRunner().invoke(main, ["export", str(store.folder), "--to", "both.csv", *wrong])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert not Path("both.csv").exists()


def test_export_asks_where_to(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["export", str(tmp_path)])
    assert done.exit_code == 2
    assert "--hub DIR" in done.output
