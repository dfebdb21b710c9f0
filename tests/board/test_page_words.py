"""The page explains its words where a reader meets them; the terminal, `compare` and docs/boards.md use the same ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from support.sample_records import record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import aggregate
from compbench.board.build import Material, answers
from compbench.board.catalogue import catalogue
from compbench.board.comparison import compare_methods
from compbench.board.families import Contest
from compbench.board.notation import SMOKE
from compbench.board.page_families import MOST_WORDS, gloss
from compbench.board.question_table import LABELS, QUESTIONS
from compbench.board.render_markdown import to_markdown
from compbench.board.row import Board
from compbench.board.site import rebuild
from compbench.board.terminal import overview, task_board
from compbench.board.verdict import MEANINGS, WAY
from compbench.board.view import STATE_WORDS, View
from compbench.cli.run import run
from compbench.registry.registry import Registry
from compbench.store.profiles import Costs
from compbench.store.records import Store

HERE = Path(__file__).parents[2]
PUBLISHED = HERE / "leaderboards" / "site" / "index.html"
KNOWN = Registry().load("tasks", "shapes3d-light").settings.model_dump(mode="json")
VALUES = {"shapes3d-light": 0.97, "shapes3d-medium": 0.6, "shapes3d-heavy": 0.3}
needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)


def runs(task: str, method: str, value: float, *, seeds: int = 3, preset: str = "quick", **more: object) -> list[Record]:
    known = Registry().load("tasks", task).settings.model_dump(mode="json")
    common = {"task": task, "method": method, "preset": preset, "task_settings": known, **more}
    return [record(score(value=round(value + 0.01 * seed, 3), ceiling=1.0), seed=seed, **common) for seed in range(seeds)]


def published(folder: Path, made: list[Record]) -> Path:
    store = Store(folder / "records")
    for one in made:
        store.write(one)
    rebuild(store.folder, folder / "site", link=True)
    return folder / "site" / "index.html"


def answered(made: list[Record]) -> tuple[Board, tuple[Contest, ...], tuple[View, ...]]:
    return answers(Material(made, catalogue=catalogue({one.spec.task for one in made})))


ALL = [one for task, value in VALUES.items() for one in [*runs(task, "factored", value), *runs(task, "mono", value / 2)]]


SEEDS = {"factored": (0.98, 0.97, 0.99), "mono": (0.86, 0.85, 0.87), "dit": (0.97, 0.95, 0.61), "local": (0.02, 0.01, 0.03)}
"""The mean of mono is better than that of dit, and its seeds are steady."""
CROSSED = [
    record(score(value=value, ceiling=1.0), task="shapes3d-light", method=method, seed=seed, task_settings=KNOWN)
    for method, values in SEEDS.items()
    for seed, value in enumerate(values)
]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("ranked"), ALL)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as own:
        yield own


def texts(page: Browser, selector: str, what: str = "innerText") -> list[str]:
    return page.run("return [...document.querySelectorAll(arguments[0])].map(n => n[arguments[1]].trim())", selector, what)


@needs_browser
def test_each_verdict_is_explained_on_the_screen_and_at_the_word(ranked: Path, chromium: Browser) -> None:
    chromium.resize(1400, 900)
    chromium.open(ranked)
    assert texts(chromium, ".question .verdict") == ["solved 97 %", "open 58 %", "unsolved 28 %"]
    assert texts(chromium, ".question .verdict", "title") == [
        f"{word}: {MEANINGS[word]}; factored goes {way} %." for word, way in (("solved", 97), ("open", 58), ("unsolved", 28))
    ]
    assert texts(chromium, ".verdicts dt") == ["solved", "open", "unsolved"]
    told = texts(chromium, ".verdicts dd")
    assert "of that way" in told[0]
    assert not any(WAY in text for text in told)
    assert chromium.run("return document.querySelector('.verdicts').getBoundingClientRect().bottom") < 300
    assert texts(chromium, "#tasks tr.best td:nth-child(2)", "title") == ["rank 1; seeds leave ranks 1 open; may be best"] * 3


def test_terminal_and_docs_explain_the_verdicts_in_the_pages_words() -> None:
    *_, (view,) = answered(ALL)
    said, doc = overview(view), (HERE / "docs" / "boards.md").read_text(encoding="utf-8")
    for word, meaning in MEANINGS.items():
        assert f"| *{word}* | {meaning} |" in doc
        assert (f"{word}: {meaning}." in said) == (word in ("solved", "open", "unsolved"))
    assert [line.split()[-3:] for line in said.splitlines() if line.startswith("Shapes")] == [
        ["solved", "97", "%"],
        ["open", "58", "%"],
        ["unsolved", "28", "%"],
    ]
    board, *_ = answered(ALL)
    assert f"\nopen: {MEANINGS['open']}; factored goes 58 %.\n" in task_board(board, "shapes3d-medium")
    assert "**open 58 %.**" in to_markdown(board, ())


@needs_browser
@pytest.mark.parametrize("width", [1400, 800, 390])
def test_a_badge_stays_on_one_line_and_off_its_title(ranked: Path, chromium: Browser, width: int) -> None:
    chromium.resize(width, 1700)
    chromium.open(ranked)
    found = chromium.run(
        "return [...document.querySelectorAll('.named .verdict')].map(tag => {"
        "  const box = tag.getBoundingClientRect(), range = document.createRange();"
        "  range.selectNodeContents(tag.previousSibling);"
        "  const meets = r => r.right > box.left + 1 && r.bottom > box.top + 1 && r.top < box.bottom - 1;"
        "  const over = [...range.getClientRects()].some(meets);"
        "  return [box.height < 26, over, box.right <= tag.closest('.card').getBoundingClientRect().right]; })"
    )
    assert len(found) == 3
    assert all(one == [True, False, True] for one in found), found


COUNT = """
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
      const text = walker.currentNode, range = document.createRange();
      if (text.parentElement.closest('script, style, noscript, option')) continue;
      range.selectNodeContents(text);
      const box = range.getBoundingClientRect();
      const words = text.data.split(/\\s+/).filter(word => /[\\p{L}\\p{N}]/u.test(word));
      if (box.width && box.right > 0 && box.top < 1700) found.push(...words);
    }
    return found.length;"""
"""Words and numbers that stand in the page's top 1,700 pixels."""


@needs_browser
@pytest.mark.parametrize("tab", ["", "#tab=silos"])
def test_the_published_pages_first_two_screens_have_under_800_words(chromium: Browser, tab: str) -> None:
    chromium.resize(1400, 1700)
    chromium.open(Path("/dev/null"))
    chromium.open(PUBLISHED, tab)
    assert 200 < chromium.run(COUNT) < 800, "two screens have 800 words at most: shorten the legend, or hide it behind a click"


def test_the_published_page_has_less_than_a_megabyte() -> None:
    assert PUBLISHED.stat().st_size < 1_000_000


@needs_browser
def test_each_method_of_a_card_has_a_gloss_in_sight_and_no_other_has(ranked: Path, chromium: Browser) -> None:
    chromium.resize(1400, 1700)
    chromium.open(ranked)
    assert set(texts(chromium, ".glossary dt")) == set(texts(chromium, ".question .answer bdi")) == {"factored"}
    assert texts(chromium, ".glossary dd") == ["One learnt effect per factor, added"]


def test_a_gloss_is_the_first_clause_of_a_summary_and_of_few_words() -> None:
    assert gloss("A transformer: every patch attends.") == "A transformer"
    assert gloss("Weights in [0.5, 1] at f.x; more") == "Weights in [0.5, 1] at f.x"
    assert len(gloss("word " * 99).split()) == MOST_WORDS + 1  # and an ellipsis


@needs_browser
def test_a_card_says_how_many_may_be_best_of_how_many_and_in_which_unit(ranked: Path, chromium: Browser, tmp_path: Path) -> None:
    chromium.open(ranked)
    assert texts(chromium, ".question .named span:first-child") == ["1/2 may be best"] * 3
    near = [one for method, value in (("mono", 0.2), ("factored", 0.9)) for one in distances(method, value)]
    chromium.open(published(tmp_path, near))
    assert texts(chromium, ".question .named span:first-child") == [
        f"{label}: 1/2 may be best" for label in ("one axis each", "both axes", "clusters")
    ]
    assert texts(chromium, ".question thead th") == ["distance ↓", "TFLOP"]
    said = dict(zip(texts(chromium, ".signs dt"), texts(chromium, ".signs dd"), strict=True))
    assert said["distance ↓"].endswith("in units of their coordinates")
    assert "ignoring the request (tick)" in said["dots"]


def distances(method: str, value: float) -> list[Record]:
    tasks = {name: Registry().load("tasks", name) for name in ("gauss2d-fact-id", "gauss2d-nonfact-id", "gmm-id")}
    known = {"direction": "lower", "floor": 0.05, "primary": True}
    return [
        record(
            score("heldout_sw2", value + 0.001 * seed, **known),
            seed=seed,
            task=name,
            method=method,
            task_settings=task.settings.model_dump(mode="json"),
        )
        for name, task in tasks.items()
        for seed in range(3)
    ]


@needs_browser
def test_tasks_that_cannot_be_ranked_yet_share_a_line_and_plots_have_their_intervals(tmp_path: Path, chromium: Browser) -> None:
    ready = [*runs("bump-center", "mono", 0.9), *runs("bump-center", "factored", 0.2)]
    chromium.open(published(tmp_path, [*ready, *runs("bump-corner", "mono", 0.9, seeds=1)]))
    assert chromium.run("return [...document.querySelectorAll('.question .answer')].map(n => n.dataset.task)") == ["bump-center"]
    assert texts(chromium, ".question > .cheap") == ["Not ranked yet, too few seeds: corner unseen"]
    low, high = texts(chromium, ".forests tr.best .range")[0].split("-")
    assert 0 <= int(low) < 91 < int(high) <= 100
    assert f"95 % interval {low}-{high}" in texts(chromium, ".question tr.best td:nth-child(3)", "title")[0]


@needs_browser
def test_a_task_that_lacks_a_required_method_names_it_and_the_command(tmp_path: Path, chromium: Browser) -> None:
    (tmp_path / "matrix.json").write_text(json.dumps({"mono": {}, "factored": {}, "nearest": {"bump-center": "it refuses."}}))
    each = [("bump-center", "mono"), ("bump-center", "factored"), ("bump-corner", "mono"), ("bump-corner", "factored")]
    both = [one for pair in each for one in runs(*pair, 0.9 if pair[1] == "mono" else 0.2, preset="standard")]
    chromium.open(published(tmp_path, both))
    assert chromium.run("return [...document.querySelectorAll('.question .answer')].map(n => n.dataset.task)") == ["bump-center"]
    assert texts(chromium, ".question > .cheap") == ["Not ranked yet, lacks nearest: corner unseen"]
    command = "compbench sweep --method nearest --task bump-corner --preset standard --seed 0-2"
    assert texts(chromium, ".question > .cheap", "title") == [command]
    for path in (tmp_path / "records").glob("bump-center.*"):
        path.unlink()
    chromium.open(published(tmp_path, []))
    assert texts(chromium, ".answer .note") == ["Not ranked yet, lacks nearest. Run:"]
    assert texts(chromium, ".answer .command") == [command]


@needs_browser
def test_a_task_whose_methods_all_score_alike_is_not_said_to_lack_seeds(tmp_path: Path, chromium: Browser) -> None:
    ready = [*runs("bump-center", "mono", 0.9), *runs("bump-center", "factored", 0.2)]
    alike = [*runs("bump-corner", "mono", 0.0), *runs("bump-corner", "factored", 0.0)]
    chromium.open(published(tmp_path, [*ready, *alike]))
    assert texts(chromium, ".question > .cheap") == ["The scores tell no methods apart: corner unseen"]


@needs_browser
def test_the_page_names_the_states_as_all_else_does(ranked: Path, chromium: Browser) -> None:
    chromium.open(ranked)
    assert chromium.run("return STATES") == STATE_WORDS
    assert texts(chromium, ".matrix td.worse", "title")[0].split(", ")[1] == STATE_WORDS["worse"]


def test_a_crossing_is_the_worst_mean_that_stays_and_a_better_one_that_is_out() -> None:
    board, _, (view,) = answered(CROSSED)
    found = view.questions[0].answers[0].crossing
    assert found is not None
    assert found.words == "dit may be best, mono not: dit's seeds vary more."
    assert f"\n\n{found.words}\n" in task_board(board, "shapes3d-light")
    assert f"\n\n{found.words}\n" in to_markdown(board, ())
    *_, (view,) = answered(ALL)
    assert [answer.crossing for _, answer in view.answers()] == [None] * 3


@needs_browser
def test_the_page_says_why_a_method_stays_that_has_a_worse_mean_than_one_that_is_out(tmp_path: Path, chromium: Browser) -> None:
    chromium.resize(1400, 1700)
    chromium.open(published(tmp_path, CROSSED))
    assert texts(chromium, ".question tbody th") == ["factored", "dit"]
    assert texts(chromium, ".forests tbody th") == ["factored", "dit", "mono", "local"]
    assert texts(chromium, ".crossing") == ["dit may be best, mono not: dit's seeds vary more."]


@needs_browser
def test_words_of_a_question_and_prices_are_explained_where_the_pointer_rests(tmp_path: Path, chromium: Browser) -> None:
    tasks = ("gauss2d-fact-id", "gauss2d-nonfact-id")
    chromium.open(published(tmp_path, [one for task in tasks for one in runs(task, "mono", 0.2)]))
    near = next(question for question in QUESTIONS if question.title == "Plane: target near")
    assert texts(chromium, ".question h3 .term", "title") == [near.about]
    assert [text.split(" (")[0] for text in texts(chromium, ".question .named a", "title")] == [
        f"{word}: {LABELS[word]}" for word in ("one axis each", "both axes")
    ]
    assert "10¹²" in chromium.run("return price({board: 0}, {row: 0, cost: '2 TFLOP'}).title")
    chromium.run("document.querySelector('#names').open = true")
    assert LABELS["both axes"] in texts(chromium, "#names dd")


@needs_browser
def test_further_right_is_better_in_a_tasks_table_too_whichever_way_its_score_goes(ranked: Path, chromium: Browser) -> None:
    chromium.open(ranked)
    at = (
        "const axis = {low: 0, high: 1, ceiling: null, lower: arguments[1]};"
        "const svg = forest({kind: 'run', interval: null}, [arguments[0]], axis, '');"
        "document.body.append(svg); const x = svg.querySelector('circle').getBoundingClientRect().x; svg.remove(); return x;"
    )
    assert chromium.run(at, 0.2, False) < chromium.run(at, 0.8, False)
    assert chromium.run(at, 0.2, True) > chromium.run(at, 0.8, True)
    assert set(texts(chromium, "#tasks th.forest")) == {"95 % interval →"}


def test_every_word_of_a_questions_task_is_explained() -> None:
    assert {label for question in QUESTIONS for _, label in question.tasks if label} == set(LABELS)


@needs_browser
def test_a_card_without_ranks_holds_whole_commands_that_one_click_marks(tmp_path: Path, chromium: Browser) -> None:
    chromium.open(published(tmp_path, runs("shapes3d-heavy", "mono", 0.4, seeds=1)))
    commands = texts(chromium, ".question code.command")
    assert commands == [
        f"compbench run --method {m} --task shapes3d-heavy --preset quick --seed 0-2" for m in ("mono", "factored")
    ]
    for command in commands:
        program, verb, *arguments = shlex.split(command)
        assert (program, verb) == ("compbench", "run")
        assert run.make_context("run", arguments).params["seeds"] == "0-2"
    assert chromium.run("return getComputedStyle(document.querySelector('code.command')).userSelect") == "all"


def test_the_terminal_gives_the_same_commands_until_methods_rank() -> None:
    *_, (view,) = answered(runs("shapes3d-heavy", "mono", 0.4, seeds=1, preset="smoke"))
    assert "compbench run --method mono --task shapes3d-heavy --preset quick --seed 0-2" in overview(view)
    *_, (view,) = answered(ALL)
    assert "compbench run" not in overview(view)


@needs_browser
def test_smoke_is_said_to_mean_nothing_over_the_cards_and_in_the_tasks_panel(tmp_path: Path, chromium: Browser) -> None:
    chromium.open(published(tmp_path, runs("shapes3d-heavy", "mono", 0.4, preset="smoke")))
    assert texts(chromium, ".key .smoke") == texts(chromium, "#tasks .smoke") == [SMOKE]
    assert "choose columns: 1 of " not in texts(chromium, "details.columns summary")[0]
    assert texts(chromium, "details.columns summary")[0].endswith("scores and costs are shown")


def test_the_number_at_a_verdict_is_the_way_of_the_furthest_method_that_may_be_best() -> None:
    def way(*made: Record) -> str:
        *_, (view,) = answered(list(made))
        return view.questions[0].answers[0].way

    poor = runs("shapes3d-light", "mono", 0.1)
    assert way(*runs("shapes3d-light", "factored", 0.96), *poor) == "96 %"  # of (0.97 - 0.1) / (1 - 0.1), rounded down
    assert way(*runs("shapes3d-light", "factored", 1.0), *poor) == "100 %"  # 101 on average
    assert way(*runs("shapes3d-light", "factored", 0.5, seeds=1)) == ""
    assert way(*CROSSED) == "97 %"


def test_the_terminal_names_the_rows_with_failed_fits_and_those_worse_than_ignoring_the_request() -> None:
    split = [
        record(score(value=value, ceiling=1.0), task="shapes3d-light", method="split", seed=seed, task_settings=KNOWN)
        for seed, value in enumerate((0.9, 0.92, 0.2))
    ]
    board, *_ = answered([*CROSSED, *split])
    assert task_board(board, "shapes3d-light").endswith("\n1 of 3 fits failed: split\nworse than ignoring the request: local")


def test_terminal_and_compare_say_of_smoke_and_of_a_row_what_the_page_says() -> None:
    made = [*runs("shapes3d-heavy", "factored", 0.8, preset="smoke"), *runs("shapes3d-heavy", "mono", 0.2, preset="smoke")]
    board, _, (view,) = answered(made)
    assert SMOKE in overview(view)
    assert SMOKE in task_board(board, "shapes3d-heavy")
    alike = [*runs("shapes3d-heavy", "factored", 0.5), *runs("shapes3d-heavy", "mono", 0.495)]
    (found,) = compare_methods(aggregate(alike), alike, "factored", "mono", Costs())
    assert found.remarks[0].startswith("on a board of these two alone, neither can be ranked")
    (found,) = compare_methods(aggregate(made), made, "factored", "mono", Costs())
    said = [f"on a board of these two alone, {words}" for words in ("factored may be best", "mono is shown to be worse")]
    assert found.remarks[:3] == (SMOKE, *said)
