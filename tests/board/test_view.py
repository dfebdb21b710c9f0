"""The questions of the board, and what the page, the Markdown file, the terminal and the figures say of them alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from store.test_profiles import made
from support.sample_records import record, score

from compbench.api.schemas import Profile, Record
from compbench.board.build import Material, answers, draw
from compbench.board.catalogue import catalogue
from compbench.board.question_table import PICTURES, QUESTIONS
from compbench.board.render_markdown import to_markdown
from compbench.board.terminal import overview
from compbench.board.view import View, family_rate, flop_words, interval_words, value_words
from compbench.registry.registry import Registry
from compbench.store.profiles import Costs
from compbench.system.errors import CompbenchError, Unwritable


def runs(method: str, value: float, *, task: str = "shapes3d-heavy", flops: float = 1e9, sample: float = 0.0) -> list[Record]:
    profile = Profile(flops_per_train_step=flops, train_steps=1, flops_per_sample=sample)
    return [
        record(
            score(value=value + 0.01 * seed, ceiling=1.0),
            method=method,
            task=task,
            seed=seed,
            more={"profile": profile},
        )
        for seed in range(3)
    ]


def view_of(*records: Record) -> View:
    *_, (view,) = answers(Material(records))
    return view


def test_the_cheapest_counts_its_samples_as_well_as_its_training() -> None:
    """1e12 + 10,000 x 1e9 is more than 5e12 + 10,000 x 1e8."""
    cheap_to_train = runs("first", 0.8, flops=1e12, sample=1e9)
    cheap_to_sample = runs("second", 0.79, flops=5e12, sample=1e8)
    (question,) = view_of(*cheap_to_train, *cheap_to_sample, *runs("far", 0.1)).questions
    (answer,) = question.answers
    assert [entry.cost for entry in answer.best] == [1.1e13, 6e12]
    assert answer.cheapest is not None
    assert answer.cheapest.row.method == "second"


def test_runs_of_an_older_version_of_their_task_are_said_to_be_that_everywhere() -> None:
    made = [*runs("first", 0.8), *runs("second", 0.2)]  # version 1
    facts = catalogue(["shapes3d-heavy"])
    _, contests, (view,) = answers(Material(made, catalogue=facts))
    ((_, answer),) = view.answers()
    today = facts["shapes3d-heavy"].version
    assert today > 1
    assert answer.older == f"Runs of version 1 of this task; today's is {today}."
    assert f"shapes3d-heavy: {answer.older}" in overview(view, contests[0]).splitlines()
    ((_, same),) = view_of(*made).answers()  # nothing is known about the task
    assert same.older == ""


def test_a_tflop_takes_as_long_as_it_took_the_median_method() -> None:
    """A step at 50 a second and 10,000 samples at 64 a second: 156.27 s for 10 TFLOP, for 20 and for 40."""
    methods = {"first": 1e9, "second": 2e9, "third": 4e9}
    all_runs = [runs(name, 0.5 + 0.1 * place, sample=flops) for place, (name, flops) in enumerate(methods.items())]
    *_, (view,) = answers(Material([one for own in all_runs for one in own], costs=Costs([made(own[0]) for own in all_runs])))
    assert view.pace is not None
    assert view.pace == (pytest.approx((1 / 50 + 10_000 / 64) / 20, rel=1e-3), "a processor, 2 threads")
    assert view_of(*all_runs[0], *all_runs[1]).pace is None  # nobody measured them


def test_an_interval_is_said_without_the_unit_of_its_score() -> None:
    cell = view_of(*runs("first", 0.5), *runs("second", 0.1)).questions[0].answers[0].best[0].cell
    assert cell is not None
    low, high = interval_words(cell).split("-")
    assert [low, high] == [f"{100 * end:.0f}" for end in cell.interval or ()]
    assert 0 <= int(low) < 51 < int(high) <= 100
    assert interval_words(cell._replace(interval=None)) == ""
    assert interval_words(cell._replace(direction="lower", name="heldout_sw2", interval=(0.05, 0.2))) == "0.050-0.200"


def test_the_rate_of_a_family_is_the_geometric_mean_over_its_tasks_and_unknown_if_one_is() -> None:
    heavy, light = (runs("first", 0.8, task=task) for task in ("shapes3d-heavy", "shapes3d-light"))
    fast = made(light[0], request_rows=128)
    for costs, rate in ((Costs([made(heavy[0]), fast]), 128.0), (Costs([fast]), None)):  # 64 and 256 samples/s
        _, (contest,), _ = answers(Material([*heavy, *light], costs=costs))
        (standing,) = (found for family in contest.families for found in family.standings.values())
        assert family_rate(standing) == (None if rate is None else pytest.approx(rate))


def test_every_writer_names_the_same_methods() -> None:
    records = [*runs("leads", 0.8), *runs("near", 0.79), *runs("far", 0.1)]
    board, _, views = answers(Material(records))
    (answer,) = views[0].questions[0].answers
    assert [entry.row.method for entry in answer.best] == ["leads", "near"]
    assert "leads, near of 3" in overview(views[0])
    lines = to_markdown(board, [], views=views).splitlines()
    cells = [line.split(" | ") for line in lines if line.startswith(("| leads", "| near", "| far"))]
    assert [own[1] for own in cells if len(own) == 5] == ["**yes**", "**yes**", "no"]


def test_a_task_of_a_stranger_has_a_question_of_its_own() -> None:
    records = runs("leads", 0.8, task="not-ours")
    *_, (view,) = answers(Material(records, families={"theirs": ("not-ours",)}))
    assert [(question.asked.title, question.family) for question in view.questions] == [("not-ours", "theirs")]


def test_each_question_is_about_installed_tasks_and_has_a_picture() -> None:
    installed = {entry.name for entry in Registry().entries("tasks")}
    assert {task for question in QUESTIONS for task, _ in question.tasks} <= installed
    assert {f"{question.picture}.png" for question in QUESTIONS} == {path.name for path in PICTURES.glob("*.png")}
    assert sum(path.stat().st_size for path in PICTURES.glob("*.png")) < 50_000  # they are embedded in the page


@pytest.mark.parametrize(("flops", "words"), [(128.46e12, "130 TFLOP"), (2.14e12, "2.1 TFLOP"), (9.99e8, "1 GFLOP"), (None, "?")])
def test_a_cost_is_said_to_two_digits(flops: float | None, words: str) -> None:
    assert flop_words(flops) == words


def test_a_score_is_said_in_words() -> None:
    entry = view_of(*runs("leads", 0.8)).questions[0].answers[0].entries[0]
    assert entry.score == "81 % right"
    assert entry.cell is not None
    assert value_words(entry.cell._replace(direction="lower"), 0.126) == "distance 0.126"
    assert value_words(entry.cell._replace(name="heldout_validity"), 0.956) == "96 % valid"
    assert value_words(entry.cell._replace(name="heldout_success"), 0.5) == "50 % reached"


def test_figures_are_the_same_bytes_each_time_and_come_with_an_entry_to_cite(tmp_path: Path) -> None:
    material = Material([*runs("leads", 0.8), *runs("far", 0.1)])
    first, again = draw(material, tmp_path / "one"), draw(material, tmp_path / "two")
    stem = "shapes-three-quarters"
    assert [path.name for path in first] == [f"{stem}.pdf", f"{stem}.svg", "compbench.bib"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert "@software{compbench," in first[-1].read_text()
    assert first[1].read_text().count("leads") == 1


def test_figures_that_cannot_be_written_are_one_line_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unwritable, match=r"could not write .*file/"):
        draw(Material([*runs("leads", 0.8), *runs("far", 0.1)]), tmp_path / "file")


def test_figures_of_nothing_are_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="no figure to draw"):
        draw(Material([]), tmp_path)


def test_a_row_whose_scores_are_of_an_older_metric_has_not_failed() -> None:
    old, new = (
        [record(score(value=0.5, metric_version=version), method=name, seed=seed) for seed in range(3)]
        for version, name in ((1, "old"), (2, "new"))
    )
    (question,) = view_of(*old, *new).questions
    states = {entry.row.method: (entry.state, entry.score) for entry in question.answers[0].entries}
    assert states["old"] == ("unranked", "scored by an older version of the metric")
