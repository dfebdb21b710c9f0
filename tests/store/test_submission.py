"""What may be handed in.  The record is of the first-party method `mono`, as installed here."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import png, record, score

from compbench.api.schemas import Checkout, Code, Environment, Plugin, Record
from compbench.cli.main import main
from compbench.registry.meaning import code_of
from compbench.registry.registry import Registry
from compbench.runner.reproduce import compare, request_of
from compbench.store.records import Store
from compbench.store.submission import checked, gathered, lay_out, with_other_attempts
from compbench.store.verification import tolerated
from compbench.system.errors import CompbenchError

REGISTRY = Registry()
ENTRY = REGISTRY.entry("methods", "mono")
COMMITTED, EDITED = (Checkout(commit="c" * 40, clean=clean) for clean in (True, False))


def honest(*scores, more: dict | None = None, **facts) -> Record:
    code = code_of(REGISTRY, method="mono", task="shapes3d-heavy", metrics=["accuracy"])
    version = REGISTRY.load("tasks", "shapes3d-heavy").version
    facts = {"method": "mono", "code": code.digest, "metrics": {"accuracy": 1}, "task_version": version, **facts}
    plugin = Plugin(distribution=ENTRY.distribution, version=ENTRY.version, module=ENTRY.module, file_sha256=ENTRY.sha256)
    known = {"plugin": plugin, "code": Code(parts=code.parts, compbench=COMMITTED, plugin=COMMITTED)}
    return record(*scores, more={**known, **(more or {})}, **facts)


def stored(folder: Path, own: Record) -> Path:
    return Store(folder / "records").write(own, {"samples.png": png()})


@pytest.fixture
def leaderboards(tmp_path: Path) -> Path:
    (tmp_path / "leaderboards" / "records").mkdir(parents=True)
    return tmp_path / "leaderboards"


def test_a_submission_lays_out_record_picture_and_declaration(tmp_path: Path, leaderboards: Path) -> None:
    path = stored(tmp_path, honest())
    found = lay_out([checked(path, REGISTRY)], leaderboards, training_data="seen")
    assert sorted(p.name for p in leaderboards.rglob("*.*")) == sorted(p.name for p in found.written)
    assert (leaderboards / "records" / path.name).read_bytes() == path.read_bytes()
    assert {p.name.removeprefix(path.stem) for p in found.written} == {".json", ".samples.png", ".self-reported.json"}
    again = lay_out([checked(path, REGISTRY)], leaderboards, training_data="seen")
    assert len(again.known) == 2


def test_another_record_of_the_same_name_is_refused_and_nothing_is_written(tmp_path: Path, leaderboards: Path) -> None:
    theirs = stored(leaderboards, honest(score(value=0.7))).read_bytes()
    path = stored(tmp_path, honest())
    with pytest.raises(CompbenchError, match="exists already with other content"):
        lay_out([checked(path, REGISTRY)], leaderboards, training_data="seen")
    assert (leaderboards / "records" / path.name).read_bytes() == theirs
    assert not (leaderboards / "levels").exists()


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"more": {"in_process": True}}, "run with --in-process"),
        ({"more": {"environment": Environment(compbench="0.1", python="3.12", sandbox="off")}}, "COMPBENCH_SANDBOX=off"),
        ({"more": {"plugin": Plugin()}}, "compbench new mono"),
        ({"more": {"plugin": Plugin(distribution="mono.py", version="file")}}, "which is installed now: run it again"),
        ({"method": "my-idea", "more": {"plugin": Plugin(distribution="my_idea.py", version="file")}}, "compbench new my-idea"),
        ({"more": {"plugin": Plugin(distribution="other", version="2")}}, "from other; the installed one is from"),
        ({"more": {"code": Code(plugin=EDITED)}}, "by compbench-methods with changes that are not committed"),
        ({"more": {"code": Code(compbench=EDITED)}}, "by compbench with changes that are not committed"),
        (
            {"more": {"code": Code(parts={"method": "0" * 64}, compbench=COMMITTED)}},
            "compbench-methods, whose code is not in a git repository",
        ),
        ({"task_version": 99}, "version 99 of 'shapes3d-heavy'"),
        ({"metrics": {"accuracy": 99}}, "version 99 of metric 'accuracy'"),
        ({"task": "no-such-task"}, "no task named"),
        ({"method": "no-such-method"}, "of compbench-methods, which is not installed here: install it"),
        ({"status": "killed"}, "which is not a result"),
        ({"more": {"scores": ()}}, "no primary score"),
        ({"more": {"identity": "0" * 64}}, "not the hash of its spec"),
        ({"more": {"sealed": True}}, "says that it is sealed, and its task's settings are not"),
    ],
)
def test_what_may_not_be_handed_in_is_refused_with_the_reason(tmp_path: Path, facts: dict, reason: str) -> None:
    with pytest.raises(CompbenchError, match=reason):
        checked(stored(tmp_path, honest(**facts)), REGISTRY)


def test_an_attempt_before_the_commit_is_left_out_where_a_later_one_may_go(tmp_path: Path) -> None:
    first = stored(tmp_path, honest(more={"code": Code(plugin=EDITED)}))
    with pytest.raises(CompbenchError, match="run it again with --force"):
        gathered([first], REGISTRY)
    later = stored(tmp_path, honest(attempt=2))
    found, left_out = gathered([later], REGISTRY)
    assert [one.path for one in found] == [later]
    assert [first.name in str(error) for error in left_out] == [True]


def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, honest())
    copy = path.with_name("copy.json")
    copy.write_bytes(path.read_bytes())
    picture = next(path.parent.glob("*.png"))
    for file, change, reason in (
        (copy, lambda: None, "under another name"),
        (path, lambda: picture.write_bytes(png(4, 4)), "the hashes differ"),
        (path, lambda: picture.unlink(), "cannot be read"),
        (path, lambda: path.write_bytes(path.read_bytes().replace(b"0.5", b"0.9")), "digest"),
    ):
        change()
        with pytest.raises(CompbenchError, match=reason):
            checked(file, REGISTRY)


def test_older_code_is_not_refused_and_named(tmp_path: Path) -> None:
    assert checked(stored(tmp_path / "same", honest()), REGISTRY).differing == ()
    known = honest().code
    older = Code(parts={**known.parts, "flow": "0" * 64}, compbench=COMMITTED, plugin=COMMITTED)
    assert checked(stored(tmp_path / "older", honest(code="b" * 64, more={"code": older})), REGISTRY).differing == ("flow",)
    assert checked(stored(tmp_path / "oldest", honest(code="b" * 64, more={"code": Code()})), REGISTRY).differing == ("unknown",)


def test_all_attempts_at_a_run_are_handed_in_failures_too_and_killed_ones_not(tmp_path: Path) -> None:
    paths = [
        stored(tmp_path, honest(status=status, more={"attempt": attempt}))
        for attempt, status in enumerate(("failed", "killed", "ok", "oom"), 1)
    ]
    stored(tmp_path, honest(seed=5))
    assert with_other_attempts([paths[2]]) == [paths[0], paths[2], paths[3]]


def test_external_training_data_wants_a_note(tmp_path: Path, leaderboards: Path) -> None:
    path = stored(tmp_path, honest())
    done = CliRunner().invoke(main, ["submit", str(path), "--to", str(leaderboards), "--training-data", "external"])
    assert done.exit_code == 2
    assert "needs --note" in done.output


def test_a_request_says_every_setting_of_a_spec() -> None:
    spec = honest(settings={"head_width": 2.0}, task_settings={"judge": "pooled"}).spec
    request = request_of(spec, Path("/nowhere"))
    assert request.overrides["head_width"] == 2.0
    assert request.overrides["task.judge"] == "pooled"
    assert request.overrides["budget.train_steps"] == spec.budget.train_steps
    assert request.overrides["budget.time_location"] == 0.0  # a task's own may differ, and the record leaves a 0 out
    assert (request.device, request.source, request.precision, request.seed) == ("cpu", "embedded", "fp32", 0)


def test_an_entry_that_joined_later_is_part_of_an_identity_only_where_it_does_something() -> None:
    spec = honest().spec
    moved = spec.model_copy(update={"budget": spec.budget.model_copy(update={"time_location": -0.8})})
    assert "time_location" not in spec.canonical()
    assert '"time_location":-0.8' in moved.canonical()


def test_tolerance_is_margin_share_of_value_or_floor_and_three_errors_of_an_accuracy() -> None:
    assert tolerated(score("heldout_kid", 0.0), 0.01, 0.05) == 0.01
    assert tolerated(score("heldout_kid", 2.0), 0.01, 0.05) == pytest.approx(0.1)
    assert tolerated(score("heldout_kid", 0.1, floor=4.0), 0.01, 0.05) == pytest.approx(0.2)
    assert tolerated(score(value=0.5, n=100, ceiling=1.0), 0.02, 0.0) == pytest.approx(0.02 + 3 * 0.05)


@pytest.mark.parametrize(("found", "agrees"), [(0.5, True), (0.52, True), (0.6, False)])
def test_a_reproduction_agrees_within_tolerance(found: float, agrees: bool) -> None:
    again = compare(record(score(value=0.5)), record(score(value=found)), margin=lambda metric: 0.0, tolerance=0.05)
    assert again.agrees is agrees


def test_a_reproduction_does_not_compare_distances_of_two_judges() -> None:
    before, after = (
        record(score(), score("heldout_fd_judge", value, floor=floor), score("heldout_recall", 0.8, floor=0.9))
        for value, floor in ((449.0, 141.8), (620.0, 207.0))
    )
    found = compare(before, after, margin=lambda metric: 0.0, tolerance=0.05)
    assert found.agrees
    assert [entry.name for entry in found.compared] == ["heldout_accuracy"]
    assert found.missing["heldout_fd_judge"] == "in another judge's features, 449 and now 620"
    same = compare(before, before, margin=lambda metric: 0.0, tolerance=0.05)
    assert (len(same.compared), same.missing) == (3, {})


def test_a_reproduction_without_the_primary_score_does_not_agree() -> None:
    kid = score("heldout_kid", 1.0)
    again = compare(record(score(), kid), record(score(value=None), kid), margin=lambda metric: 0.0, tolerance=0.05)
    assert [entry.name for entry in again.compared] == ["heldout_kid"]
    assert again.missing == {"heldout_accuracy": "not available here"}
    assert not again.agrees
