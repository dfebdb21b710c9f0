"""A planted fault of each kind is found, named and distinguished from the others; a sound store has none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record, score
from support.stored import store

from compbench.api.schemas import RECORD_FORMAT, Profile, Stage
from compbench.cli.main import main
from compbench.store.format import dump, parse
from compbench.store.records import Store, finished_among
from compbench.store.verify import verify
from compbench.system.errors import CompbenchError


def record_of(folder: Path) -> Path:
    return next(folder.glob("*.json"))


def picture_of(folder: Path) -> Path:
    return next(folder.glob("*.png"))


def cut(folder: Path) -> None:
    record_of(folder).write_bytes(record_of(folder).read_bytes()[:-20])


def edit(folder: Path) -> None:
    record_of(folder).write_bytes(record_of(folder).read_bytes().replace(b'"value":0.5', b'"value":0.6'))


def rename(folder: Path) -> None:
    picture_of(folder).unlink()
    record_of(folder).rename(folder / "mine.json")


def forge(folder: Path) -> None:
    """Other settings under the old identity, whole and under the right name."""
    path = record_of(folder)
    found = parse(path.read_bytes())
    forged = found.model_copy(update={"spec": found.spec.model_copy(update={"settings": {"hidden": 65}})})
    path.write_bytes(dump(forged))


def link(folder: Path) -> None:
    picture_of(folder).unlink()
    elsewhere = record_of(folder).rename(folder.parent / "elsewhere.json")
    (folder / "link.json").symlink_to(elsewhere)


def change_picture(folder: Path) -> None:
    picture_of(folder).write_bytes(b"another")


def add_picture(folder: Path) -> None:
    (folder / "stray.samples.png").write_bytes(b"picture")


def add_folder(folder: Path) -> None:
    (folder / "more").mkdir()


def leave_unfinished(folder: Path) -> None:
    path = folder / ".task.method.quick.s0.0123456789ab.1.json.x1_y2"
    path.write_bytes(b"{")
    os.utime(path, (0, 0))


FAULTS: list[tuple[Callable[[Path], None], str, str]] = [
    (cut, "record", "not JSON"),
    (edit, "record", "was changed"),
    (rename, "record", "under another name"),
    (forge, "record", "not the hash of its spec"),
    (link, "record", "not a regular file"),
    (change_picture, "artifact", "the hashes differ"),
    (add_picture, "orphan", "belongs to no record"),
    (add_folder, "orphan", "is a folder"),
    (leave_unfinished, "left over", "was killed"),
]


def test_a_sound_store_has_no_findings(tmp_path: Path) -> None:
    report = verify(store(tmp_path, 0.5, 0.25))
    assert [record.attempt for record in report.records] == [1, 2]
    assert report.findings == ()


@pytest.mark.parametrize(("plant", "kind", "problem"), FAULTS, ids=lambda value: getattr(value, "__name__", None))
def test_a_planted_fault_is_the_one_finding_and_says_how_to_mend_it(
    plant: Callable[[Path], None], kind: str, problem: str, tmp_path: Path
) -> None:
    folder = store(tmp_path / "records", 0.5)
    plant(folder)
    before = sorted(folder.iterdir())
    done = CliRunner().invoke(main, ["verify", str(folder)])
    assert done.exit_code == 1
    (line, summary) = done.output.splitlines()
    assert line.startswith(f"{kind}: ")
    assert problem in line
    assert "To fix: " in line
    assert f"problems: 1 {kind}" in summary
    assert sorted(folder.iterdir()) == before


def test_a_record_of_a_newer_format_is_to_be_kept_and_compbench_updated(tmp_path: Path) -> None:
    folder = store(tmp_path / "records", 0.5)
    path = record_of(folder)
    path.write_bytes(dump(parse(path.read_bytes()).model_copy(update={"format": RECORD_FORMAT + 1})))
    (finding,) = verify(folder).findings
    assert (finding.name, finding.fix) == (path.name, "keep the file, and update compbench")


def together(one: Path, other: Path) -> None:
    """What `rsync --ignore-existing other/ one/` does."""
    for path in other.iterdir():
        if not (one / path.name).exists():
            shutil.copy2(path, one)


def test_stores_copied_together_are_one_sound_store(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25, seed=1)
    together(one, other)
    report = verify(one)
    assert (len(report.records), report.findings, report.absent) == (2, (), ())


def test_a_picture_of_another_stores_first_attempt_is_found(tmp_path: Path) -> None:
    one, other = store(tmp_path / "a", 0.5), store(tmp_path / "b", 0.25)
    picture_of(one).unlink()
    together(one, other)
    assert [(finding.kind, "the hashes differ" in finding.problem) for finding in verify(one).findings] == [("artifact", True)]


def test_a_lost_picture_is_told_and_is_a_problem_on_demand(tmp_path: Path) -> None:
    picture = picture_of(store(tmp_path, 0.5))
    picture.unlink()
    assert verify(tmp_path).absent == (picture.name,)
    plain, strict = (CliRunner().invoke(main, ["verify", str(tmp_path), *more]) for more in ([], ["--pictures"]))
    assert (plain.exit_code, strict.exit_code) == (0, 1)
    assert "1 sound records, 1 of their pictures elsewhere; no problems" in plain.output
    assert f"artifact: {picture.name} is missing" in strict.output


def test_a_file_that_is_just_being_written_is_no_finding(tmp_path: Path) -> None:
    folder = store(tmp_path, 0.5)
    (folder / ".task.method.quick.s0.0123456789ab.1.json.x1_y2").write_bytes(b"{")
    (folder / ".gitkeep").touch()
    assert verify(folder).findings == ()


def test_names_with_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (store(tmp_path, 0.5) / "a\x1b[2Jb.png").write_bytes(b"")
    assert "\x1b" not in CliRunner().invoke(main, ["verify", str(tmp_path)]).output


def test_a_folder_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="there is no folder"):
        verify(tmp_path / "nothing")
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "nothing")]).exit_code == 2


FIT = (Stage(name="fit", seconds=20.0),)


@pytest.mark.parametrize(("taken", "sound"), [(200.0, True), (None, True), (4000.0, False)])
def test_of_a_resumed_run_the_seconds_are_those_of_the_steps_that_were_left(
    tmp_path: Path, taken: float | None, sound: bool
) -> None:
    notes = {"counted optimiser_steps": taken} if taken else {}
    change = {"resumed": True, "profile": Profile(train_steps_per_second=10.0, stages=FIT), "notes": notes}
    Store(tmp_path / "records").write(record(speed=None).model_copy(update=change))
    assert (not verify(tmp_path / "records").findings) is sound


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scores": (score(value=0.98765432, n=330),)}, "heldout_accuracy of 0.98765432, which no count of 330 samples gives"),
        ({"scores": (score(value=1.5, n=2),)}, "heldout_accuracy of 1.5, but a share lies between 0 and 1"),
        ({"scores": (score(value=0.5, ceiling=1.01),)}, "ceiling of heldout_accuracy of 1.01"),
        ({"scores": (score("heldout_success_rate", 31.0, n=72, unit="%"),)}, "success_rate of 31, which no count of 72"),
        ({"profile": Profile(share_of_peak_sampling=1.44)}, "share of peak sampling of 1.44"),
        (
            {"profile": Profile(train_steps_per_second=5e3, stages=FIT)},
            "5000 training steps/s, and 1000 steps in a fit of 20 s",
        ),
        (
            {"profile": Profile(train_steps_per_second=1.0, stages=FIT)},
            "1 training steps/s, and 1000 steps in a fit of 20 s",
        ),
        ({"profile": Profile(stages=(*FIT, Stage(name="score", seconds=110.0)))}, "stages of 130 s"),
        ({"spec": record(task_version=10**6).spec, "identity": record(task_version=10**6).identity}, "which is at"),
    ],
)
def test_what_cannot_be_is_found_though_its_digest_is_right(tmp_path: Path, change: dict, problem: str) -> None:
    folder = tmp_path / "records"
    Store(folder).write(record(speed=None).model_copy(update=change))
    (finding,) = verify(folder).findings
    assert problem in finding.problem
    assert "\n" not in finding.problem


def test_a_fit_of_another_run_is_no_part_of_the_whole(tmp_path: Path) -> None:
    stages = Profile(stages=(Stage(name="fit", seconds=500.0), Stage(name="score", seconds=30.0)))
    Store(tmp_path / "records").write(record().model_copy(update={"profile": stages, "notes": {"fit shared": 1.0}}))
    assert verify(tmp_path / "records").findings == ()


def test_a_downgraded_format_is_refused_by_every_reader(tmp_path: Path) -> None:
    folder = store(tmp_path / "records", 0.5)
    raw = json.loads(record_of(folder).read_bytes())
    del raw["digest"]
    raw["environment"]["fence"] = "landlock"
    raw["scores"][0]["value"] = 0.99
    record_of(folder).write_text(json.dumps({**raw, "format": 1}))
    assert "has no digest" in verify(folder).findings[0].problem
    assert Store(folder).read()[0] == []
    assert finished_among(Store(folder).paths(), [raw["identity"]]) is None
    assert "has no digest" in CliRunner().invoke(main, ["export", str(folder), "--to", str(tmp_path / "all.csv")]).output


@pytest.mark.slow  # `.ci/run` verifies them
def test_the_projects_own_records_are_sound() -> None:
    report = verify(Path(__file__).parents[2] / "leaderboards" / "records")
    assert report.findings == ()
    assert len(report.records) > 100
