"""Packed JSON is short, and the page's script and `support.page_data` restore every value of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import CHROMIUM, DRIVER, MISSING, Browser, browser
from support.page_data import unpacked

from compbench.board.aggregate import aggregate
from compbench.board.packing import packed
from compbench.board.render_html import heat_code, to_html
from compbench.system.files import Json

needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)

VALUES: tuple[Json, ...] = (
    None,
    "",
    [],
    {},
    [[]],
    [{}, {}],
    [None, None, None],
    ["cpu"] * 9,
    [1, True, 1.5, "1", None, [], {}],
    [{"a": 1}],
    [{"a": 1, "b": [2]}, {"a": 3, "b": []}],
    [{"a": 1}, None, {"a": 2}, {"b": 3}, {"a": 4}, "five", {"a": 6}],
    [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
    [{"timing": None}, {"timing": {"clean": True}}, {"timing": {"clean": False}}],
    [{"rows": [{"cells": [[0.5, "0.500", ""], None, [3]]}] * 4}, {"rows": []}, {"rows": [{"cells": []}]}],
    [[1, 2], [3, 4], [5], None, [6, 7], [8, 9]],
    [[[0, 1], [1, 0]], [], [[2, 2]]],
    ["</script>", "…", "\u2028", '"', "\\"],
    {"statuses": {"ok": 3}, "at": [0], "of": 1, "others": []},
    [0.1, -0.0091456, 1e-7, 1.0, 100.0, 1000, -2000.0, 22958000000000.0, 1e300, 123456789, 5e-324],
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as own:
        yield own


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a board without runs."""
    path = tmp_path_factory.mktemp("empty") / "index.html"
    path.write_text(to_html(aggregate([]), [], {}), encoding="utf-8")
    return path


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_unpacked_restores_what_packed_wrote(value: Json) -> None:
    assert unpacked(json.loads(packed(value))) == value


@needs_browser
def test_the_pages_script_restores_what_packed_wrote(empty: Path, chromium: Browser) -> None:
    chromium.open(empty)
    restored = "return arguments[0].map(text => JSON.stringify(unpacked(JSON.parse(text))))"
    assert [json.loads(text) for text in chromium.run(restored, [packed(value) for value in VALUES])] == list(VALUES)


def test_names_of_objects_are_written_once_across_lists() -> None:
    text = packed([{"rows": [{"method": f"m{i}{j}", "kind": "run"} for i in range(9)]} for j in range(9)])
    assert [text.count(f'"{name}"') for name in ("rows", "method", "kind", "run")] == [1] * 4


def test_a_list_of_values_is_never_longer_packed_than_plain() -> None:
    for value in (["a", "b", "a"], [[1, 2], [3, 4]], [0.25, 0.5], ["held"] * 40):
        assert len(packed(value)) <= len(json.dumps(value, separators=(",", ":")))
    assert packed(["a", "b", "a"]) == '["a","b","a"]'


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.0, "1"), (22958000000000.0, "22958e9"), (0.0, "0"), (-0.0, "-0"), (100.0, "100"), (0.001, "0.001"), (1e22, "1e+22")],
)
def test_packed_numbers_have_no_needless_zeros(number: float, text: str) -> None:
    assert packed(number) == text
    assert float(text) == number


def test_packed_refuses_numbers_that_json_lacks_and_names_like_its_own() -> None:
    with pytest.raises(AssertionError):
        packed([{"$pool": []}])
    with pytest.raises(TypeError, match="JSON has no tuple"):
        packed([(1, 2)])
    with pytest.raises(ValueError, match="JSON has no nan"):
        packed([float("nan")])


def test_a_heat_code_is_a_letter_for_each_four_percent_and_the_rest() -> None:
    codes = [heat_code(percent, held=held) for percent in (0, 33, 50, 100) for held in (False, True)]
    assert codes == ["a", "A", "i1", "I1", "m2", "M2", "z", "Z"]


@needs_browser
def test_the_pages_script_reads_every_heat_code(empty: Path, chromium: Browser) -> None:
    chromium.open(empty)
    asked = [(percent, held) for percent in range(101) for held in (False, True)]
    row = {"heat": "-".join(heat_code(percent, held=held) for percent, held in asked)}
    row["board"] = {"places": [f"{place}" for place in range(2 * len(asked) - 1)]}
    found = chromium.run("return [...heatOf(arguments[0])].map(([place, one]) => [place, one.percent, one.held])", row)
    assert found == [[f"{2 * place}", percent, held] for place, (percent, held) in enumerate(asked)]
