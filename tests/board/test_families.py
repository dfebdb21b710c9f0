"""The matrix of methods by families: who is ranked, what is blank, and what a share is."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping

import board_scales
import pytest
from support.sample_records import record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import aggregate
from compbench.board.competition import scale_of_rows
from compbench.board.families import NEED_A_GPU, NOT_RUN, REQUIRED, Contest, Standing, contests, installed_families, required
from compbench.board.page_families import default_contest
from compbench.board.render_families import families_csv, families_markdown, tasks_csv
from compbench.board.scale import Scale, scales
from compbench.registry.declared import declared
from compbench.registry.registry import Registry
from compbench.sweep.grid import grids
from compbench.sweep.parse import names

TASKS = ("shapes3d-light", "shapes3d-medium", "shapes3d-heavy")
GOOD, POOR = (0.80, 0.82, 0.81), (0.40, 0.41, 0.43)


def runs(method: str, values: tuple[float, ...], *tasks: str, **facts) -> list[Record]:
    return [
        record(score(value=value, ceiling=1.0), method=method, task=task, seed=seed, **facts)
        for task in tasks or TASKS
        for seed, value in enumerate(values)
    ]


def mean_share(accuracy: float) -> float:
    """Over the three tasks, whose best constant answers have one of 10, 20 and 30 held-out cells right."""
    return sum((accuracy - 1 / cells) / (1 - 1 / cells) for cells in (10, 20, 30)) / 3


def contest_of(*records: Record) -> Contest:
    (found,) = contests(aggregate(records))
    return found


def images(*records: Record) -> Mapping[str, Standing]:
    (family,) = contest_of(*records).families
    return {method: found for (method, _), found in family.standings.items()}


def test_a_method_that_ran_all_of_a_family_is_ranked_and_others_stand_below() -> None:
    made = [*runs("factored", GOOD), *runs("mono", POOR), *runs("part", GOOD, "shapes3d-light", "shapes3d-heavy")]
    found = images(*made)
    assert [found[name].state for name in ("factored", "mono", "part")] == ["ranked", "ranked", "incomplete"]
    assert [found[name].rank and found[name].rank.rank for name in ("factored", "mono", "part")] == [1, 2, None]
    assert found["part"].left_out == ("shapes3d-medium (not run)",)
    assert found["part"].num_tasks == 2
    assert contest_of(*made).methods == (("factored", ""), ("mono", ""), ("part", ""))


def test_a_task_that_needs_a_gpu_says_so_where_no_one_ran_it() -> None:
    asked = [name for grid in grids("core", "standard") if grid.gpu for name in names("tasks", grid.tasks, ())]
    assert set(asked) == NEED_A_GPU
    for preset, expected in {"standard": "needs a GPU", "paper": NOT_RUN}.items():
        (family,) = contest_of(*runs("factored", GOOD, preset=preset), *runs("mono", POOR, preset=preset)).families
        assert dict(family.aside) == {"mpi3d-medium": expected, "dsprites-light": NOT_RUN}


def test_what_no_one_ran_is_blank_and_not_nothing_attained() -> None:
    plane = [
        record(
            score("heldout_sw2", 0.5 + 0.01 * s + len(m) / 20, direction="lower", primary=True), task="gmm-id", method=m, seed=s
        )
        for m in ("fkc", "naive-sde")
        for s in range(3)
    ]
    found = contest_of(*runs("factored", GOOD), *runs("mono", POOR), *plane)
    by_name = {family.name: family.standings for family in found.families}
    assert ("factored", "") not in by_name["plane"]
    assert ("fkc", "") not in by_name["images"]
    text = next(line for line in families_markdown([found]).splitlines() if line.startswith("| factored"))
    assert text.endswith("|  |")


def test_a_task_that_few_methods_ran_unranks_no_one() -> None:
    every = [*runs("factored", GOOD), *runs("mono", POOR), *runs("slice-cfg", POOR)]
    first = runs("factored", GOOD, "dsprites-light")
    (family,) = contest_of(*every, *first).families
    assert dict(family.aside)["dsprites-light"] == "run by only 1 of 3 methods"
    assert {found.state for found in family.standings.values()} == {"ranked"}
    half = contest_of(*every, *first, *runs("mono", POOR, "dsprites-light")).families[0]
    assert "dsprites-light" not in dict(half.aside)
    assert half.standings["slice-cfg", ""].state == "incomplete"


def test_a_failed_run_counts_as_nothing_attained_and_a_refused_task_as_not_run() -> None:
    failed = [*runs("weak", GOOD, *TASKS[:2]), *runs("weak", GOOD[:2], TASKS[2])]
    failed.append(record(status="oom", method="weak", task=TASKS[2], seed=2))
    refused = [*runs("narrow", GOOD, *TASKS[:2])]
    refused += [record(status="refused", method="narrow", task=TASKS[2], seed=s, more={"reason": "no"}) for s in range(3)]
    found = images(*runs("factored", GOOD), *runs("mono", POOR), *failed, *refused)
    assert found["weak"].state == "ranked"
    assert dict(found["weak"].shares)[2] < 0.7 < dict(found["weak"].shares)[0]
    assert found["narrow"].left_out == ("shapes3d-heavy (refused: no)",)


def test_one_seed_is_shown_and_not_ranked() -> None:
    found = images(*runs("factored", GOOD), *runs("mono", POOR), *runs("once", GOOD[:1]))
    assert (found["once"].state, found["once"].rank, found["once"].interval) == ("one seed", None, None)
    assert found["once"].mean == pytest.approx(mean_share(0.8))


def test_settings_variants_and_references_do_not_compete() -> None:
    ablation = runs("factored", (0.9, 0.91, 0.92), TASKS[0], settings={"hidden": 128})
    pooled = runs("pooled", (0.95,) * 3, more={"pooled_silos": True})
    found = images(*runs("factored", GOOD), *runs("mono", POOR), *ablation, *pooled)
    assert found["factored"].mean == pytest.approx(mean_share(sum(GOOD) / 3))
    assert (found["pooled"].state, found["pooled"].rank) == ("reference", None)


def test_a_changed_task_or_budget_is_no_part_of_a_family() -> None:
    short = runs("short", GOOD, budget={"train_steps": 7}, budget_changed=("train_steps",))
    assert set(images(*runs("factored", GOOD), *runs("mono", POOR), *short)) == {"factored", "mono"}


def test_a_task_that_does_not_tell_methods_apart_counts_nowhere_and_says_so() -> None:
    noise = {"factored": (0.3, 0.6, 0.5), "mono": (0.6, 0.3, 0.52), "third": (0.5, 0.5, 0.4)}
    made = [*itertools.chain(*(runs(m, v, TASKS[0]) for m, v in noise.items()))]
    made += [*runs("factored", GOOD, *TASKS[1:]), *runs("mono", POOR, *TASKS[1:]), *runs("third", POOR, *TASKS[1:])]
    board = aggregate(made)
    (found,) = contests(board)
    (family,) = found.families
    assert [section.task for section, _ in family.sections] == ["shapes3d-medium", "shapes3d-heavy"]
    assert dict(family.aside)["shapes3d-light"].startswith("does not rank at this preset")
    assert all(row.rank is None for row in board.rows if row.section.task == TASKS[0])
    (line,) = [line for line in csv.DictReader(io.StringIO(tasks_csv(board))) if line["task"] == TASKS[0]]
    assert line["ranks"] == "no"


def test_a_preset_of_which_nothing_can_be_shown_is_not_shown_first() -> None:
    only = [record(score(value=0.5), method="oracle", task=TASKS[0], preset="paper", more={"oracle": True})]
    found = contests(aggregate([*runs("factored", GOOD), *only]))
    assert [contest.preset for contest in found] == ["quick"]
    assert found[default_contest(found)].preset == "quick"


def test_smoke_is_shown_last_however_much_was_run_at_it() -> None:
    smoke = [*runs("factored", GOOD, preset="smoke"), *runs("mono", POOR, preset="smoke")]
    found = contests(aggregate([*smoke, *runs("mono", GOOD[:1], TASKS[0])]))
    assert found[default_contest(found)].preset == "quick"
    assert [contest.preset for contest in contests(aggregate(smoke))] == ["smoke"]


def test_presets_are_never_mixed() -> None:
    found = contests(aggregate([*runs("factored", GOOD), *runs("mono", POOR), *runs("factored", GOOD, preset="paper")]))
    assert [contest.preset for contest in found] == ["paper", "quick"]


def test_the_share_of_a_better_score_is_never_lower() -> None:
    values = [0.5 * step for step in range(20)]
    for scale in (Scale(2.2, 0.066, log=True), Scale(0.025, 0.99)):
        shares = [scale.share(value) for value in values]
        assert shares == sorted(shares, reverse=scale.log)
        assert (scale.share(scale.zero), scale.share(scale.real)) == (0.0, 1.0)
    assert Scale(2.0, 0.5, log=True).share(4.0) == pytest.approx(-0.5)  # twice the constant's distance, and not cut
    assert Scale(2.0, 0.5, log=True).share(1.0) == pytest.approx(0.5)  # half of the ratio's logarithm


def test_rows_of_other_seeds_and_sizes_have_the_same_scale() -> None:
    def distance(method: str, value: float, seed: int, n: int, floor: float) -> Record:
        own = score("heldout_sw2", value, direction="lower", primary=True, floor=floor, n=n)
        return record(own, task="gmm-id", method=method, seed=seed)

    made = [distance("factored", 1.199, 0, 2000, 0.069), distance("naive-sde", 1.240, 2, 5000, 0.179)]
    board = aggregate(made)
    scale = scale_of_rows(board.rows)
    assert scale is not None
    shares = {row.method: scale.share(row.scores["heldout_sw2"].mean) for row in board.rows}
    assert shares["factored"] > shares["naive-sde"] > 0


def test_every_installed_core_task_has_a_stored_scale() -> None:
    registry = Registry()
    counted = {task for names in installed_families(registry).values() for task in names}
    ours = {task for task in counted if registry.entry("tasks", task).distribution == "compbench"}
    assert ours <= scales().keys(), "run experiments/board_scales.py"
    for task in ours:
        assert scales()[task]["score"] == registry.load("tasks", task).primary


def test_the_core_suite_runs_the_tasks_that_call_themselves_core_and_no_others() -> None:
    asked = {name for grid in grids("core", "standard") for name in names("tasks", grid.tasks, ())}
    assert asked == {entry.name for entry in Registry().entries("tasks") if declared(entry).core}


def test_tasks_of_a_family_stand_in_the_order_of_their_files() -> None:
    found = installed_families()
    assert list(found) == ["images", "drawings", "plane", "rooms", "bumps", "silos", "radiographs", "planning", "constraints"]
    assert found["images"] == (*TASKS, "mpi3d-medium", "dsprites-light")
    assert found["rooms"] == ("rooms-fc-id", "rooms-nfc-id", "rooms-fc-ood", "rooms-nfc-ood")  # it has no core task: all count


def test_the_stored_scale_of_a_distance_is_what_a_few_draws_give() -> None:
    chance, real = board_scales.distance_scale(Registry().load("tasks", "gmm-id"), draws=2)
    stored = scales()["gmm-id"]
    assert (chance, real) == (pytest.approx(stored["zero"], rel=0.1), pytest.approx(stored["real"], rel=0.7))


def test_the_csv_has_a_line_for_each_method_and_family_that_it_ran() -> None:
    found = contest_of(*runs("factored", GOOD), *runs("mono", POOR))
    lines = list(csv.DictReader(io.StringIO(families_csv([found]))))
    assert [(line["method"], line["family"], line["state"], line["rank"]) for line in lines] == [
        ("factored", "images", "ranked", "1"),
        ("mono", "images", "ranked", "2"),
    ]


def test_what_cannot_work_says_why_and_what_no_one_ran_does_not() -> None:
    reasons = {"mono": {TASKS[2]: "method 'mono' cannot work on task 'x': the task has no analytic scores."}}
    records = [*runs("factored", GOOD), *runs("mono", POOR, *TASKS[:2]), *runs("slice-cfg", POOR, *TASKS[:2])]
    (contest,) = contests(aggregate(records), reasons)
    left_out = {method: standing.left_out for (method, _), standing in contest.families[0].standings.items()}
    assert left_out == {
        "factored": (),
        "mono": (f"{TASKS[2]} (the task has no analytic scores)",),
        "slice-cfg": (f"{TASKS[2]} (not run)",),
    }


def test_a_published_task_asks_for_what_can_run_it_and_ones_own_board_for_nothing() -> None:
    families, matrix = {"images": ("one", "other")}, {name: {} for name in REQUIRED if name != "slice-cfg"}
    matrix["additive"] = {"other": "the task has no factors."}
    wanted = ("mono", "factored", "additive", "nearest")
    assert required(matrix, families) == {"one": wanted, "other": tuple(name for name in wanted if name != "additive")}
    assert required({}, families) == {"one": (), "other": ()}


def test_a_task_without_a_required_method_has_scores_and_no_ranks() -> None:
    task, needed = TASKS[0], {TASKS[0]: ("mono", "nearest", "additive")}
    made = [*runs("factored", GOOD, task, preset="standard"), *runs("mono", POOR, task, preset="standard")]
    made += runs("nearest", (0.0,), task, preset="standard")  # one seed
    board = aggregate(made, required=needed)
    assert list(board.missing.values()) == [("nearest", "additive")]
    assert {row.may_be_best for row in board.rows} == {None}
    assert (board.verdicts, len(board.rows)) == ({}, 3)
    assert [line["ranks"] for line in csv.DictReader(io.StringIO(tasks_csv(board)))] == ["no"]
    (contest,) = contests(board)
    assert (task, "is not ranked before nearest and additive ran it") in contest.families[0].aside
    made += [*runs("nearest", (0.0, 0.01), task, preset="standard"), *runs("additive", POOR, task, preset="standard")]
    whole = aggregate(made, required=needed)
    assert (whole.missing, whole.rows[0].method, whole.rows[0].may_be_best) == ({}, "factored", True)
    quick = aggregate([*runs("factored", GOOD, task), *runs("mono", POOR, task)], required=needed)  # a first look, not a listing
    assert (quick.missing, quick.rows[0].may_be_best) == ({}, True)


def test_a_required_method_that_failed_was_tried_and_one_without_the_score_was_not() -> None:
    task, needed = TASKS[0], {TASKS[0]: ("nearest",)}
    both = [*runs("factored", GOOD, task, preset="standard"), *runs("mono", POOR, task, preset="standard")]
    failed = [record(method="nearest", task=task, preset="standard", seed=seed, status="timeout") for seed in range(3)]
    assert aggregate([*both, *failed], required=needed).missing == {}
    other = [record(score("heldout_fid", 3.0), method="nearest", task=task, preset="standard", seed=seed) for seed in range(2)]
    assert list(aggregate([*both, *other], required=needed).missing.values()) == [("nearest",)]
