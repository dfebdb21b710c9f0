"""What a record says stays text in every format, and numbers are written as people read them."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from store.test_profiles import made as profile
from support.page_data import page_boards
from support.sample_boards import whole
from support.sample_records import png, record, score

from compbench.api.interfaces import CellCount
from compbench.board.aggregate import rows
from compbench.board.notation import clean, columns, count, duration, number, spread
from compbench.board.render_csv import ROWS, SCORES, rows_csv, scores_csv
from compbench.board.render_html import Picture, embedded, to_html
from compbench.board.render_markdown import escape, to_markdown
from compbench.board.row import BoardRow
from compbench.board.timing import timing
from compbench.store.format import text as guarded
from compbench.store.profiles import Costs, Measure

HOSTILE = (
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "</script><script>alert(1)</script>",
    "<!-- <img src=x onerror=alert(1)>",
    "a | b\n| c | d |\r\n# heading",
    "[x](javascript:alert(1)) ![i](https://example.org/x.png)",
    "\u202egnp.exe\u2066 \u2028line\u2029 \x1b[31mred\x00",
    "{{ 7 * 7 }} {% raw %}",
    "`code` **bold** & &lt;b&gt;",
)


def failed(reason: str) -> tuple[BoardRow, ...]:
    return rows([record(status="failed", more={"reason": reason})])


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_text_stays_text_on_the_page(evil: str) -> None:
    harmless, page = to_html(whole(failed("x")), [], {}), to_html(whole(failed(evil)), [], {})
    assert page.count("<") == harmless.count("<")
    assert page.count("</script>") == 2
    assert page_boards(page)[0]["rows"][0]["failures"] == [f"failed (seed 0): {clean(evil)}"]


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_text_stays_in_its_markdown_cell(evil: str) -> None:
    lines = to_markdown(whole(failed(evil)), []).splitlines()
    (line,) = [line for line in lines if "failed (seed 0)" in line]
    head = next(line for line in lines if line.startswith("| method"))
    assert re.sub(r"\\\\|\\\|", "", line).count("|") == head.count("|")
    assert not re.search(r"<|>|://|(?<!\\)[`\[\]]", line)


@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_text_is_no_formula_and_one_line_of_the_csv(evil: str) -> None:
    ours = record(score("heldout_fid", None, reason=evil), settings={"a": evil}, device_class=evil[:80])
    board = rows([ours, record(settings={"a": "b"}, seed=1)])
    for text, header in ((scores_csv(board, []), SCORES), (rows_csv(board), ROWS)):
        lines = list(csv.reader(io.StringIO(text)))
        assert len(lines) == len(text.splitlines()) == 3
        assert all(len(line) == len(header) for line in lines)
        assert not any(cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line)


def test_a_row_whose_runs_failed_has_its_reason_in_the_rows_and_no_score() -> None:
    board = rows([record(status="failed", more={"reason": "no luck"})])
    (line,) = csv.DictReader(io.StringIO(rows_csv(board)))
    assert (line["num_ok"], line["num_failed"], "no luck" in line["note"]) == ("0", "1", True)
    assert scores_csv(board, []).splitlines() == [",".join(SCORES)]


def test_negative_numbers_stay_numbers_in_the_csv() -> None:
    (line,) = csv.DictReader(io.StringIO(scores_csv(rows([record(score("seen_kid", -0.001))]), [])))
    assert line["mean"] == "-0.001"


def test_clean_takes_away_what_hides_or_reorders_text() -> None:
    assert clean("a\u202eb\u200bc\n\td\x00\u2028e") == "a b c d e"
    assert clean("שלום naïve 数") == "שלום naïve 数"


def test_markdown_escapes_its_own_marks() -> None:
    assert escape("a|b<c>*d*\n") == r"a\|b&lt;c&gt;\*d\*"


def test_embedded_json_is_json_that_cannot_end_its_element() -> None:
    data = {"a": "</script><!--\u2028&amp;\u202e"}
    assert not re.search(r"[<>&\u2028\u202e]", str(embedded(data)))
    assert json.loads(str(embedded(data))) == data


def test_the_page_fetches_nothing() -> None:
    page = to_html(whole(rows([record()])), [], {})
    assert "http:" not in page
    assert "https:" not in page
    assert not re.search(r"""(src|href|url|import|fetch)\s*[=(]\s*["'(]?\s*//""", page)
    assert "default-src 'none'" in page


def test_an_address_in_a_record_is_plain_text_on_the_page() -> None:
    page = to_html(whole(failed("see https://example.org")), [], {})
    assert [m.start() for m in re.finditer("https:", page)] == [page.index("https://example.org")]
    assert "see https://example.org" in page_boards(page)[0]["rows"][0]["failures"][0]


def test_accuracy_and_ceiling_stand_side_by_side() -> None:
    board = rows([record(score(value=0.412, ceiling=0.981))])
    assert "**0.412** / 0.981" in to_markdown(whole(board), [])
    (cell,) = page_boards(to_html(whole(board), [], {}))[0]["rows"][0]["cells"]
    assert cell == [0.412, "0.412", "", 0.981, "", 1]


def test_a_cell_that_any_seed_holds_out_has_its_held_out_share() -> None:
    runs = []
    for seed in (0, 1):  # each seed sees what the other one holds out
        own = score(value=0.5 + 0.2 * seed, by_cell=(CellCount((0, seed), 500 + 200 * seed, 1000),))
        seen = score("seen_accuracy", 0.9, by_cell=(CellCount((0, 1 - seed), 480, 500), CellCount((1, 0), 420, 500)))
        runs.append(record(own, seen, seed=seed))
    runs.append(record(score(value=0.2, by_cell=(CellCount((0, 0), 200, 1000),)), method="other"))
    (board,) = page_boards(to_html(whole(rows(runs)), [], {}))
    codes = {row["method"]: re.findall("[A-Za-z-][1-3]?", row["heat"]) for row in board["rows"]}
    shares = {method: dict(zip(board["places"], own, strict=True)) for method, own in codes.items()}
    assert shares["factored"] == {"0,0": "M2", "0,1": "R2", "1,0": "v"}  # 4 * 12 + 2, 4 * 17 + 2 and 4 * 21 %
    assert shares["other"] == {"0,0": "F", "0,1": "-", "1,0": "-"}


def measured(*others: float) -> tuple[BoardRow, ...]:
    """The board of one run whose cost was measured while others took some cores."""
    run = record(speed=1e9)
    costs = Costs([profile(run, other_cores=Measure.of(others))])
    return tuple(row._replace(timing=timing([run], costs)) for row in rows([run]))


def test_speeds_of_a_shared_machine_are_marked_as_bounds() -> None:
    board = measured(0.0, 0.0, 1.0, 0.0, 0.0)
    assert page_boards(to_html(whole(board), [], {}))[0]["rows"][0]["timing"]["clean"] is False
    assert ",64,50,20,300," in rows_csv(board)
    assert "shared machine: lower bound" in rows_csv(board)


def test_speeds_that_were_not_measured_are_unknown_whatever_a_run_says() -> None:
    board = rows([record(speed=1e9)])
    assert ",not measured," in rows_csv(board)
    assert page_boards(to_html(whole(board), [], {}))[0]["rows"][0]["timing"]["samples"] == [None, ""]


def test_only_png_becomes_a_picture() -> None:
    board = rows([record()])
    key = (board[0].section, "factored")
    good, bad = (to_html(whole(board), [], {key: Picture(0, content)}) for content in (png(), b"<svg onload=alert(1)>"))
    assert page_boards(good)[0]["pictures"][0]["uri"].startswith("data:image/png;base64,")
    assert page_boards(bad)[0]["pictures"] == []


def test_the_primary_column_comes_first_and_single_factors_are_details() -> None:
    names = ("seen_accuracy", "heldout_accuracy_wall_hue", "heldout_accuracy_seen_judge", "heldout_accuracy")
    board = rows([record(*(score(name) for name in names))])
    found = [(column.key, column.primary, column.detail) for column in columns(board, [])]
    assert found == [
        ("heldout_accuracy", True, False),
        ("heldout_accuracy_seen_judge", False, False),
        ("heldout_accuracy_wall_hue", False, True),
        ("seen_accuracy", False, False),
    ]


def test_a_score_that_no_row_has_is_named_below_the_table() -> None:
    board = rows([record(score(), score("heldout_fid", None, reason="no weights"))])
    assert "Not available: heldout: marginal fid (no weights)" in to_markdown(whole(board), [])
    assert page_boards(to_html(whole(board), [], {}))[0]["missing"] == [["held-out combinations: marginal fid", "no weights"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.000"), (0.5, "0.500"), (-0.25, "-0.250"), (0.0003, "0.0003"), (12.345, "12.3"), (310.4, "310"),
     (9200.0, "9,200"), (2.5e7, "2.50e+07"), (None, "")],
)  # fmt: skip
def test_number_is_written_as_people_read_it(value: float | None, text: str) -> None:
    assert number(value) == text


def test_spread_has_the_means_decimals() -> None:
    assert (spread(0.00031, 0.978), spread(0.31, 21.7)) == ("0.000", "0.3")


def test_counts_and_durations() -> None:
    assert (count(1_520_000), count(40), duration(59.0), duration(90.0), duration(7200.0)) == (
        "1.52 M",
        "40",
        "59.0 s",
        "1.5 min",
        "2.0 h",
    )


def test_a_unit_stays_a_unit_and_a_formula_becomes_text() -> None:
    assert [guarded(value) for value in ("%", "-", "%s", "=1+1", "ms")] == ["%", "-", "'%s", "'=1+1", "ms"]
