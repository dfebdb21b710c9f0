"""docs/results.md and docs/results/: they are what the records give, no number is typed by hand, and a rerun rewrites them."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import results_pages
import results_sentences
from claims import ROOT
from results_svg import Dot, Map, Scatter, maps, scatters

RECORDS = ROOT / "leaderboards" / "records"
NUMBER = re.compile(r"(?<![A-Za-z0-9])(?<![a-z]-)\d")
"""A digit that is not part of a name; it is part of one in Shapes3D, gauss2d and utf-8."""


@pytest.fixture(scope="module")
def published() -> results_pages.Published:
    return results_pages.read(RECORDS)


@pytest.fixture(scope="module")
def texts(published: results_pages.Published) -> dict[str, str]:
    return results_pages.files(published)


def test_every_page_and_figure_is_what_the_published_records_give(texts: dict[str, str]) -> None:
    assert results_pages.stale(texts, ROOT / "docs") == []


def test_a_number_typed_by_hand_and_a_file_of_no_command_are_found(texts: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "results", tmp_path / "results")
    (tmp_path / "results.md").write_text(texts["results.md"].replace("# Results", "# Results\n\n`mono` has 0.99.", 1), "utf-8")
    (tmp_path / "results" / "mine.md").write_text("0.99", "utf-8")
    assert {"results.md", "results/mine.md"} <= set(results_pages.stale(texts, tmp_path))


@pytest.mark.parametrize("module", [results_sentences, results_pages])
def test_no_template_has_a_number_of_its_own(module) -> None:
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    formats = {id(part) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) for part in ast.walk(node)}
    typed = [node.value for node in parts if id(node) not in docstrings | formats and NUMBER.search(node.value)]
    assert typed == []


def test_the_front_page_is_short_and_each_sentence_leads_to_its_numbers(texts: dict[str, str]) -> None:
    said = re.findall(r"^\d+\. (.+)$", texts["results.md"], re.MULTILINE)
    assert 8 <= len(said) <= 12
    assert [
        line for line in said if not re.search(r"\. \(\[[\w-]+\]\(results/[^)]+\)(, \[[\w-]+\]\(results/[^)]+\))*\)$", line)
    ] == []
    assert texts["results.md"].count("![") == 6
    assert len(texts["results.md"].split()) < 900


def test_all_figures_are_well_formed_and_small(texts: dict[str, str]) -> None:
    drawn = {name: text for name, text in texts.items() if name.endswith(".svg")}
    assert all(ElementTree.fromstring(text).tag.endswith("svg") for text in drawn.values())
    assert max(map(len, drawn.values())) < 40_000


def test_a_sentence_says_what_other_records_give(published: results_pages.Published, tmp_path: Path) -> None:
    """Without its leader's records planning has another leader, and what has no records has no sentence."""
    before = published.known.answer("planning-noniid")
    assert before is not None
    first = before.best[0].row.method
    for path in RECORDS.glob("planning-noniid.*.json"):
        if path.name.split(".")[1] != first:
            shutil.copy(path, tmp_path)
    known = results_pages.read(tmp_path).known
    after = known.answer("planning-noniid")
    assert after is not None
    said = dict(results_sentences.sentences(known))
    [plans] = [words for words in said if "Planning" in words]
    assert f"`{first}`" not in plans
    assert f"`{after.best[0].row.method}`" in plans
    assert not any("Shapes3D" in words or "bump" in words for words in said)


def test_the_baseline_that_learns_nothing_is_counted_against_each_method(published: results_pages.Published) -> None:
    said = results_sentences.additive(published.known)
    answer = published.known.answer("shapes3d-medium")
    assert answer is not None
    shares = {entry.row.method: entry.share for entry in answer.competing}
    trained = {entry.row.method for entry in answer.competing if not entry.row.learns_nothing}
    assert {"additive", "nearest"} == shares.keys() - trained
    behind = [name for name in trained if shares[name] <= shares["additive"]]
    assert 0 < len(behind) < len(trained)
    assert f", {len(behind)} of {len(trained)} and " in said
    alone = published.known._replace(view=published.known.view._replace(questions=()))
    assert results_sentences.additive(alone) == ""


def test_a_scatter_plot_puts_equal_values_on_the_diagonal_and_skips_what_has_no_logarithm() -> None:
    text = scatters(
        [Scatter("t", "x", "y", (Dot(0.1, 0.1, "a"), Dot(1, 1, "b"), Dot(0, 1, "gone")), (True, True), diagonal=True)], 1
    )
    circles = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)]
    (x0, y0), (x1, y1) = circles
    assert x1 - x0 == pytest.approx(y0 - y1)
    assert x1 > x0


def test_a_lattice_map_is_as_dark_as_the_part_right_and_frames_the_held_out_cells() -> None:
    text = maps([Map("mono", (1, 2), {(0, 0): 1.0, (0, 1): 0.25}, frozenset({(0, 1)}))])
    dark = {shade: place for place, shade in re.findall(r'<path d="M(\d+) [^"]+" opacity="([\d.]+)"', text)}
    [framed] = re.findall(r'<path id="held" d="M(\d+) [^"]+"', text)
    assert dark.keys() == {"0.2", "1"}
    assert framed == dark["0.2"]


def test_what_was_not_learnt_at_another_preset_is_not_said_of_this_one(published: results_pages.Published) -> None:
    known = published.known
    answered = {answer.section for _, answer in known.view.answers()}
    poor = {section for section, verdict in known.board.verdicts.items() if not verdict.is_learnt}
    elsewhere = {section.task for section in poor - answered} - {section.task for section in poor & answered}
    said = results_sentences.not_learnt(known)
    assert elsewhere, "some task has not been learnt at another preset only"
    assert poor & answered, "some task has not been learnt at the preset that the sentence is about"
    assert not any(f"`{task}`" in said for task in elsewhere)
    assert all(f"`{section.task}`" in said for section in poor & answered)
