import csv
import io
import json
import random
import re
from pathlib import Path

import pytest
from boards.sample_records import record

from compbench.boards.aggregate import interval, rows
from compbench.boards.build import build, embedded_json, to_csv, to_markdown
from compbench.boards.papers import read
from compbench.errors import CompbenchError

PAPERS = Path(__file__).parents[2] / "leaderboards" / "papers.csv"


def test_a_row_has_the_mean_and_sample_deviation_of_its_seeds() -> None:
    (row,) = rows([record(seed=seed, value=value) for seed, value in enumerate((0.2, 0.4, 0.9))])
    cell = row.scores["heldout_accuracy"]
    assert cell.mean == pytest.approx(0.5)
    assert cell.std == pytest.approx(0.36056, abs=1e-5)
    assert (cell.num_seeds, cell.ceiling) == (3, 0.98)
    assert cell.low <= cell.mean <= cell.high


def test_the_latest_successful_attempt_counts() -> None:
    attempts = [record(value=0.1), record(value=0.7, attempt=2), record(status="failed", attempt=3)]
    (row,) = rows(attempts)
    assert row.scores["heldout_accuracy"].mean == 0.7
    assert row.failures == ()


def test_presets_sources_and_devices_are_never_mixed() -> None:
    found = rows([record(), record(preset="paper"), record(source="official"), record(device="NVIDIA H200")])
    assert len(found) == 4


def test_a_failed_run_stays_visible_with_its_reason() -> None:
    (row,) = rows([record(status="timeout", reason="too slow")])
    assert row.failures == ("seed 0 timeout: too slow",)
    assert "timeout: too slow" in to_markdown([row], [])


def test_rows_rank_by_the_primary_score_and_tie_where_intervals_overlap() -> None:
    values = {"best": (0.9, 0.92), "twin": (0.6, 0.8), "other": (0.65, 0.7), "worst": (0.1, 0.12)}
    found = rows([record(method=name, seed=seed, value=v) for name, pair in values.items() for seed, v in enumerate(pair)])
    assert {row.method: row.rank for row in found} == {"best": (1, 1), "twin": (2, 3), "other": (2, 3), "worst": (4, 4)}


def test_speeds_of_a_shared_machine_give_way_to_clean_ones() -> None:
    (row,) = rows([record(seed=0, slots=2, speed=10.0), record(seed=1, slots=1, speed=100.0)])
    assert row.speeds["sample_samples_per_second"] == 100.0
    assert not row.shared


def test_interval_is_seeded_and_of_one_value_is_that_value() -> None:
    assert interval([0.3]) == (0.3, 0.3)
    assert interval([0.1, 0.5, 0.9]) == interval([0.9, 0.1, 0.5])


def test_the_board_is_the_same_bytes_for_any_order_of_the_records(tmp_path: Path) -> None:
    records = [record(method=m, seed=s, value=0.1 * s + 0.05 * len(m)) for m in ("mono", "factored") for s in range(4)]
    first = [path.read_bytes() for path in build(records, tmp_path / "a", papers=PAPERS, pictures=lambda r: b"png")]
    random.Random(1).shuffle(records)
    second = [path.read_bytes() for path in build(records, tmp_path / "b", papers=PAPERS, pictures=lambda r: b"png")]
    assert first == second


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    _, _, page = build([record()], tmp_path, papers=PAPERS, pictures=lambda r: b"png")
    text = page.read_text()
    assert not re.search(r'(?:src|href)="?(?:https?:)?//', text)
    assert "data:image/png;base64," in text


def test_hostile_text_reaches_no_markup_and_no_formula(tmp_path: Path) -> None:
    evil = "=cmd()|</script><script>alert(1)</script>\n[x](javascript:1)"
    failed = record(status="failed", reason=evil)
    text_csv, text_md = to_csv(rows([failed]), []), to_markdown(rows([failed]), [])
    _, _, page = build([failed], tmp_path, papers=None, pictures=lambda r: None)
    assert "<script>alert" not in page.read_text() + text_md
    assert page.read_text().count("</script>") == 2
    cells = [cell for line in csv.reader(io.StringIO(text_csv)) for cell in line]
    assert not any(cell.startswith("=") for cell in cells)
    (line,) = [line for line in text_md.splitlines() if "alert" in line]
    assert line.replace("\\|", "").count("|") == len(text_md.splitlines()[6].split("|")) - 1


def test_embedded_json_is_json_that_cannot_end_its_element() -> None:
    data = {"a": "</script><!--\u2028"}
    text = str(embedded_json(data))
    assert "<" not in text
    assert json.loads(text) == data


def test_the_papers_figures_are_read_and_named_after_our_scores() -> None:
    figures = read(PAPERS)
    (one,) = [f for f in figures if (f.task, f.method, f.score) == ("shapes3d-medium", "factored", "heldout_accuracy_seen_judge")]
    assert (one.mean, one.std, one.table) == (0.987, 0.018, "1")


def test_a_wrong_figure_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "papers.csv"
    path.write_text("paper,table,task,method,metric,score,mean,std,note\np,1,t,m,x,x,much,,\n")
    with pytest.raises(CompbenchError, match="line 2"):
        read(path)
