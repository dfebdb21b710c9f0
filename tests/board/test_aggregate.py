"""Aggregation against means, deviations, intervals and ranks computed by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.sample_records import record, score

from compbench.api.schemas import RECORD_FORMAT, Plugin, Profile, Record
from compbench.board import notation
from compbench.board.aggregate import rows
from compbench.board.catalogue import TaskFacts
from compbench.board.groups import section_of
from compbench.board.notation import heading
from compbench.board.statistics import sample_std
from compbench.store.format import dump
from compbench.store.records import read_records


def test_a_row_has_the_mean_and_sample_deviation_of_its_seeds() -> None:
    values = (0.25, 0.5, 0.75)
    (row,) = rows(record(score(value=v, ceiling=0.9, floor=None), seed=s) for s, v in enumerate(values))
    cell = row.scores["heldout_accuracy"]
    assert (cell.mean, cell.std, cell.num_seeds, cell.ceiling) == (0.5, 0.25, 3, 0.9)
    assert cell.interval == pytest.approx((0.0, 1.0))  # 0.5 -/+ 4.3 * 0.25 / sqrt(3), within a share's bounds
    assert row.seeds == (0, 1, 2)


def test_records_may_come_as_json_objects() -> None:
    found = record()
    assert rows([found.model_dump(mode="json")]) == rows([found])


def test_ceilings_and_floors_are_means_too() -> None:
    facts = ((0.8, 1.0), (0.9, 3.0))
    (row,) = rows(record(score(ceiling=c, floor=f), seed=seed) for seed, (c, f) in enumerate(facts))
    cell = row.scores["heldout_accuracy"]
    assert (cell.ceiling, cell.floor) == (pytest.approx(0.85), 2.0)


@pytest.mark.parametrize(
    "change",
    [
        {"preset": "paper"},
        {"source": "official"},
        {"fingerprint": "renderer-2"},
        {"task_version": 2},
        {"task": "shapes3d-light"},
        {"budget": {"train_steps": 2000}, "budget_changed": ("train_steps",)},
        {"task_settings": {"judge": "pooled"}},
    ],
)
def test_what_must_not_be_compared_is_in_another_section(change: dict) -> None:
    one, two = rows([record(), record(seed=1, **change)])
    assert one.section != two.section
    found = rows([*seeds("a", 0.5, 0.6), *seeds("b", 0.7, 0.8, **change)])
    assert [row.rank for row in found] == [(1, 1, 1, 1)] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"method_version": 2},
        {"settings": {"hidden": 128}},
        {"precision": "bf16"},
    ],
)
def test_other_settings_are_another_row_of_the_section(change: dict) -> None:
    one, two = rows([record(), record(seed=1, **change)])
    assert one.section == two.section
    assert one.label != two.label


def test_seeds_of_several_devices_are_one_row_that_names_them() -> None:
    gpu = {"device_class": "NVIDIA H200", "code": "b" * 64}
    made = [record(score(value=0.5)), *(record(score(value=v), seed=s, **gpu) for s, v in ((1, 0.6), (2, 0.7)))]
    (row,) = rows(made)
    assert (row.seeds, row.device, row.codes) == ((0, 1, 2), "NVIDIA H200 and cpu", 1)
    assert row.scores["heldout_accuracy"].mean == pytest.approx(0.6)


def test_of_a_seed_that_ran_on_two_devices_the_one_of_most_seeds_counts() -> None:
    cpu = [record(score(value=0.5), seed=seed) for seed in range(3)]
    late = {"started": "2026-02-01T00:00:00+00:00"}
    gpu = [record(score(value=0.9), seed=seed, device_class="NVIDIA H200", more=late) for seed in range(2)]
    (row,) = rows([*gpu, *cpu])
    assert (row.scores["heldout_accuracy"].mean, row.device, len(row.records)) == (0.5, "cpu", 3)
    assert rows([*gpu, *cpu[:1]])[0].device == "NVIDIA H200"


def test_a_changed_budget_or_task_is_said_by_the_title_even_where_no_row_differs() -> None:
    changed = record(budget={"train_steps": 700}, budget_changed=("train_steps",), task_settings={"size": 16, "sigma": 1.0})
    (row,) = rows([changed], catalogue={"shapes3d-heavy": TaskFacts("", {"size": 28, "sigma": 1.0})})
    assert heading(row.section, [row.section]) == "shapes3d-heavy, quick with size=16, train_steps=700, built-in data"
    (plain,) = rows([record(task_settings={"size": 28})], catalogue={"shapes3d-heavy": TaskFacts("", {"size": 28})})
    assert heading(plain.section, [plain.section]) == "shapes3d-heavy, quick, built-in data"


def test_a_setting_of_another_type_than_its_default_is_said() -> None:
    known = {"some": TaskFacts("", {"size": 1, "name": "a", "axes": [1, 2]})}

    def changed(**settings: object) -> tuple[str, ...]:
        return section_of(record(task="some", task_settings=settings), known).changed

    assert changed(size=1, name="a", axes=[1, 2]) == changed(name="a") == changed() == ()
    assert changed(size=True, name="a") == ("size=true",)
    assert changed(size=1.0, axes=[1, 3], other=None) == ("axes=[1,3]", "other=null", "size=1.0")


def test_of_a_task_that_is_not_installed_every_setting_is_said() -> None:
    (row,) = rows([record(task_settings={"size": 16})])
    assert row.section.changed == ("size=16",)


def test_settings_are_said_only_where_rows_differ() -> None:
    one, two = rows([record(settings={"a": 1, "b": 2}), record(settings={"a": 1, "b": 3}, seed=1)])
    assert {one.variant, two.variant} == {"b=2", "b=3"}


def test_metric_versions_are_never_averaged_and_only_the_newest_ranks() -> None:
    old, new = score(value=0.9, metric_version=1), score(value=0.5, metric_version=2)
    both, stale = rows(
        [record(old), record(new, seed=1), record(new, seed=2), record(old, method="mono"), record(old, method="mono", seed=1)]
    )
    assert both.scores["heldout_accuracy"].mean == 0.5
    assert both.scores["heldout_accuracy@v1"].mean == 0.9
    assert (both.rank, stale.rank) == ((1, 1, 1, 1), None)


def test_the_latest_successful_attempt_counts() -> None:
    first, second = record(score(value=0.1)), record(score(value=0.7), attempt=2)
    (row,) = rows([first, second, record(status="failed", attempt=3)])
    assert row.scores["heldout_accuracy"].mean == 0.7
    assert row.statuses == {"ok": 1}


def test_one_seed_counts_once_although_the_methods_file_changed() -> None:
    later = {"started": "2026-02-01T00:00:00+00:00"}
    (row,) = rows([record(score(value=0.1)), record(score(value=0.7), code="b" * 64, more=later)])
    assert row.seeds == (0,)
    assert row.scores["heldout_accuracy"].mean == 0.7


def test_failed_runs_stay_visible_with_their_reasons_and_seeds() -> None:
    ends = [record(status="timeout", seed=s, more={"reason": "15m are over"}) for s in (1, 2)]
    (row,) = rows([record(), *ends])
    assert row.failures == (("timeout", "15m are over", (1, 2)),)
    assert row.statuses == {"ok": 1, "timeout": 2}
    (alone,) = rows(ends)
    assert (alone.rank, alone.scores, alone.timing) == (None, {}, None)


def test_an_unavailable_score_keeps_its_reason() -> None:
    (row,) = rows([record(score(), score("heldout_fid", None, reason="no weights"))])
    assert row.unavailable == {"heldout_fid": "no weights"}


@pytest.mark.parametrize("mark", ["oracle", "pooled_silos"])
def test_oracles_and_pooled_silos_are_references_and_do_not_rank(mark: str) -> None:
    own, reference = rows([*seeds("factored", 0.2, 0.3), *seeds("best", 0.9, 0.95, more={mark: True})])
    assert (own.kind, own.rank) == ("run", (1, 1, 1, 1))
    assert (reference.kind, reference.rank) == ("reference", None)


def test_samples_of_which_no_training_was_seen_stand_apart_and_say_so() -> None:
    own, theirs = rows([*seeds("factored", 0.2, 0.3), *seeds("theirs", 0.9, 0.95, more={"samples_only": True})])
    assert (own.level, own.rank) == ("self-reported", (1, 1, 1, 1))
    assert (theirs.kind, theirs.level, theirs.rank) == ("reference", "samples only", None)
    assert notation.notes(theirs)[0] == "samples only: compbench did not see its training; does not compete"


def test_weights_scored_without_training_do_not_set_a_methods_default_settings() -> None:
    runs = seeds("factored", 0.2, 0.3, settings={"dropout": 0.1})
    (scored,) = seeds("factored", 0.25, settings={"dropout": 0.1, "weights_sha256": "f" * 64}, more={"samples_only": True})
    installed = {("factored", scored.plugin.distribution): (scored.spec.method_version, {"dropout": 0.1})}
    for known in ({}, installed):
        own, reference = rows([*runs, scored], method_defaults=known)
        assert (own.kind, own.rank, reference.kind) == ("run", (1, 1, 1, 1), "reference")


def test_lower_is_better_where_the_primary_score_says_so() -> None:
    values = {"near": 1.0, "far": 5.0}
    made = [record(score("heldout_fid", v, primary=True), method=m) for m, v in values.items()]
    assert [row.method for row in rows(made)] == ["near", "far"]


def seeds(method: str, *values: float, **facts) -> list[Record]:
    return [record(score(value=value), method=method, seed=seed, **facts) for seed, value in enumerate(values)]


def test_one_seed_is_shown_and_not_ranked() -> None:
    board = rows([*seeds("twice", 0.5, 0.6), *seeds("three", 0.7, 0.71, 0.72), *seeds("once", 0.99)])
    assert {row.method: row.rank and row.rank.rank for row in board} == {"three": 1, "twice": 2, "once": None}


def test_two_rows_of_one_mean_share_a_rank() -> None:
    board = rows(
        [*seeds("a", 0.1, 0.2, 0.3), *seeds("b", 0.3, 0.2, 0.1), *seeds("c", 0.8, 0.81, 0.82), *seeds("d", 0.9, 0.91, 0.95)]
    )
    assert {row.method: row.rank.rank for row in board} == {"d": 1, "c": 2, "a": 3, "b": 3}


def test_methods_compete_by_their_default_settings_and_newest_version() -> None:
    usual = {"settings": {"w": 1.5}}
    made = [
        *seeds("cfg", 0.5, 0.52, 0.51, **usual),
        *seeds("cfg", 0.5, 0.52, 0.51, task="shapes3d-light", **usual),
        *seeds("cfg", 0.9, 0.92, 0.91, settings={"w": 3.0}),
        *seeds("mono", 0.1, 0.12, 0.11, method_version=1),
        *seeds("mono", 0.2, 0.22, 0.21, method_version=2),
    ]
    board = [row for row in rows(made) if row.section.task == "shapes3d-heavy"]
    assert [(row.label, row.kind, row.rank and row.rank.rank) for row in board] == [
        ("cfg (w=1.5)", "run", 1),
        ("mono (v2)", "run", 2),
        ("cfg (w=3.0)", "ablation", None),
        ("mono (v1)", "ablation", None),
    ]


def test_what_a_method_ran_most_is_not_taken_for_its_default_where_that_is_known() -> None:
    made = [*seeds("cfg", 0.5, 0.6, settings={"w": 3.0, "steps": 20}), *seeds("mono", 0.1, 0.2, settings={"w": 3.0})]
    known = {("cfg", ""): (1, {"w": 1.5}), ("mono", ""): (1, {"w": 3, "new": 1})}
    assert {row.method: row.kind for row in rows(made, method_defaults=known)} == {"cfg": "ablation", "mono": "run"}
    assert {row.method: row.kind for row in rows(made)} == {"cfg": "run", "mono": "run"}


def test_a_record_says_whether_it_has_the_defaults_of_a_method_that_is_not_here() -> None:
    often = [record(task=task, settings={"w": 3.0}, more={"given": ("w",)}) for task in ("shapes3d-heavy", "gmm-id")]
    plain = record(settings={"w": 1.5}, more={"given": ("budget.width",)})

    def kinds(*made: Record, **known: Any) -> dict[str, str]:
        return {row.variant: row.kind for row in rows(made, **known) if row.section.task == "shapes3d-heavy"}

    assert kinds(*often, plain) == {"w=1.5": "run", "w=3.0": "ablation"}
    other = {"w=1.5": "ablation", "w=3.0": "run"}
    assert kinds(*(one.model_copy(update={"given": None}) for one in (*often, plain))) == other  # a guess
    assert kinds(*often, plain, method_defaults={("factored", ""): (1, {"w": 3.0})}) == other


def test_an_ablation_that_stands_alone_says_what_it_changes() -> None:
    made = [*seeds("cfg", 0.5, 0.6, settings={"w": 1.5}), *seeds("cfg", 0.7, task="gmm-id", settings={"w": 3.0})]
    found = {row.section.task: (row.label, row.kind) for row in rows(made, method_defaults={("cfg", ""): (1, {"w": 1.5})})}
    assert found == {"shapes3d-heavy": ("cfg", "run"), "gmm-id": ("cfg (w=3.0)", "ablation")}


def test_an_older_version_may_have_had_another_default_that_all_its_runs_agree_on() -> None:
    made = [*seeds("fkc", 0.5, 0.6, settings={"w": 1.0, "k": 16})]
    made += [*seeds("fkc", 0.7, 0.8, settings={"w": 1.0, "k": 4}), *seeds("fkc", 0.7, task="gmm-id", settings={"w": 1.0, "k": 4})]
    known = {("fkc", ""): (2, {"w": "task", "k": 16})}
    found = [(row.variant, row.kind) for row in rows(made, method_defaults=known) if row.section.task == "shapes3d-heavy"]
    assert found == [("k=16", "run"), ("k=4", "ablation")]


def test_a_row_of_an_older_version_says_that_a_newer_one_was_run_on_another_task() -> None:
    first, second = seeds("fkc", 0.5, 0.6), seeds("fkc", 0.7, 0.8, task="gmm-id")
    second = [one.model_copy(update={"spec": one.spec.model_copy(update={"method_version": 3})}) for one in second]
    old, new = sorted(rows([*first, *second]), key=lambda row: row.method_version)
    assert [(row.method_version, row.newer_version) for row in (old, new)] == [(1, 3), (3, 0)]
    said = "version 1 of the method, whose newest is 3"
    assert [said in notation.notes(row) for row in (old, new)] == [True, False]


@pytest.mark.parametrize(
    ("parameters", "more", "said"),
    [
        (140_000, {}, ["0.14 times the parameters of factored"]),
        (2_010_000, {}, ["2 times the parameters of factored"]),
        (1_100_000, {}, []),
        (900_000, {}, []),
        (140_000, {"oracle": True}, []),
        (140_000, {"distribution": ""}, []),
    ],
)
def test_a_competing_network_of_another_size_than_factored_says_so(parameters: int, more: dict, said: list[str]) -> None:
    """Oracles do not compete, and a method of the same name from another package is not `factored`."""
    plugin = Plugin(distribution=more.get("distribution", "compbench-methods"))
    usual = record(more={"profile": Profile(parameters=1_000_000), "plugin": plugin})
    other = record(method="mine", more={"profile": Profile(parameters=parameters), "oracle": "oracle" in more})
    found = {row.method: notation.notes(row) for row in rows([usual, other])}
    assert [note for note in found["mine"] if "parameters" in note] == said
    assert not any("parameters" in note for note in found["factored"])


def test_a_row_of_an_older_version_than_the_installed_one_says_so() -> None:
    (row,) = rows(seeds("fkc", 0.5, 0.6), method_defaults={("fkc", ""): (4, {})})
    assert "version 1 of the method, whose newest is 4" in notation.notes(row)


def test_a_failed_seed_counts_as_the_worst_in_the_ranks() -> None:
    lame = [*seeds("lame", 0.90, 0.91), record(status="oom", method="lame", seed=2)]
    board = {row.method: row for row in rows([*lame, *seeds("sound", 0.85, 0.86, 0.87), *seeds("low", 0.1, 0.11, 0.12)])}
    assert (board["sound"].rank.rank, board["lame"].rank.rank) == (1, 2)
    assert board["lame"].scores["heldout_accuracy"].mean == pytest.approx(0.905)


def test_rows_are_the_same_for_any_order_of_the_records() -> None:
    made = [record(score(value=0.1 * s + 0.05 * len(m)), method=m, seed=s) for m in ("mono", "cfg") for s in range(8)]
    made += [record(score(value=0.3), attempt=1), record(score(value=0.4), attempt=1)]  # both claim to be one attempt
    first = rows(made)
    for seed in range(5):
        random.Random(seed).shuffle(made)
        assert rows(made) == first


def test_sample_std_divides_by_n_minus_one() -> None:
    assert sample_std([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx((32 / 7) ** 0.5)
    assert sample_std([3.0]) == 0.0


def test_read_records_reports_bad_files_and_keeps_the_good(tmp_path: Path) -> None:
    good = dump(record())
    contents = {
        f"{record().name}.json": good,
        "b.json": good[: len(good) // 2],
        "c.json": b'{"format": 99}',
        "d.json": good.replace(b'"quick"', b'"slow"'),
        "e.json": b"[" * 100_000,
        "f.json": b"\xff\xfe",
        "g.json": good.replace(b'"format": %d,' % RECORD_FORMAT, b""),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found, problems = read_records([*tmp_path.iterdir(), tmp_path / "missing.json"])
    assert found == [record()]
    assert [problem.path.name for problem in problems] == [*sorted(contents)[:-1], "missing.json"]
    assert all(problem.reason and "\n" not in problem.reason for problem in problems)


def test_boards_of_a_task_begin_with_the_published_preset_and_its_own_protocol() -> None:
    facts = [{"preset": preset} for preset in ("smoke", "quick", "paper", "standard")]
    facts += [{"budget": {"train_steps": 2000}, "budget_changed": ("train_steps",)}, {"task_version": 2}]
    found = [
        (row.section.preset, row.section.task_version, bool(row.section.changed)) for row in rows(record(**one) for one in facts)
    ]
    assert found == [
        ("standard", 1, False),
        ("paper", 1, False),
        ("quick", 2, False),
        ("quick", 1, False),
        ("quick", 1, True),
        ("smoke", 1, False),
    ]
