"""The board's files: the same bytes for the same records, whole or not at all."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from store.test_profiles import made as measured
from support.page_data import page_boards
from support.sample_records import png, record, score, with_picture

import compbench.board.build as board_build
from compbench.api.schemas import Record
from compbench.board.aggregate import rows
from compbench.board.build import Material, build, sample_grids, stale
from compbench.board.render_html import Picture
from compbench.board.site import rebuild
from compbench.board.site import stale as site_is_stale
from compbench.store.profiles import write_profile
from compbench.store.records import Store
from compbench.system.errors import CompbenchError

PAPERS = Path(__file__).parents[2] / "leaderboards" / "papers.csv"
NAMES = ["board.csv", "rows.csv", "families.csv", "tasks.csv", "board.md", "index.html"]


def picture(found: Record) -> Picture | None:
    return Picture(found.spec.seed, png(colour=(found.spec.seed, 0, 0))) if found.artifacts else None


def many() -> list[Record]:
    made = []
    for preset in ("smoke", "quick"):
        for method in ("mono", "factored", "slice-cfg"):
            for seed in range(4):
                value = 0.1 * seed + 0.01 * len(method) + 1 / 3
                own = record(score(value=value), score("seen_fd_judge", 7 * value), method=method, seed=seed, preset=preset)
                made.append(with_picture(own))
    return [*made, record(method="broken", status="failed", more={"reason": "no"})]


def test_any_order_of_the_records_gives_the_same_bytes(tmp_path: Path) -> None:
    made = many()
    first = [path.read_bytes() for path in build(Material(made, PAPERS, picture), tmp_path / "first")]
    for seed in range(3):
        random.Random(seed).shuffle(made)
        found = build(Material(made, PAPERS, picture), tmp_path / str(seed))
        assert [path.read_bytes() for path in found] == first


@pytest.mark.slow  # `board --check` builds the published board in another process
def test_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from pathlib import Path; from board.test_build import PAPERS, Material, build, many, picture\n"
        "build(Material(many(), PAPERS, picture), Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script, str(tmp_path / seed), str(Path(__file__).parents[1])]
        subprocess.run(command, check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(PAPERS.parents[1])})
    for name in NAMES:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_stale_names_what_differs_and_writes_nothing(tmp_path: Path) -> None:
    made = many()
    assert [path.name for path in stale(Material(made, PAPERS, picture), tmp_path)] == NAMES
    assert list(tmp_path.iterdir()) == []
    build(Material(made, PAPERS, picture), tmp_path)
    assert stale(Material(made[::-1], PAPERS, picture), tmp_path) == []
    (tmp_path / "board.md").write_text("touched")
    assert stale(Material(made, PAPERS, picture), tmp_path) == [tmp_path / "board.md"]


def test_no_records_give_a_board_that_says_so(tmp_path: Path) -> None:
    table, _, _, _, text, page = build(Material([], None, picture), tmp_path)
    assert len(table.read_text().splitlines()) == 1
    assert "no records yet" in text.read_text()
    assert "0 runs" in page.read_text()


def test_nothing_half_written_is_left_behind(tmp_path: Path) -> None:
    build(Material(many(), PAPERS, picture), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)


def test_a_destination_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "board.csv").mkdir()
    with pytest.raises(CompbenchError, match="could not write"):
        build(Material([], None, picture), tmp_path)


def test_each_preset_of_a_small_store_shows_its_own_pictures() -> None:
    made = many()
    found = sample_grids(rows(made), made, picture)
    presets = {(record.spec.preset, record.spec.method) for record in made if record.status == "ok" and record.artifacts}
    assert {(section.preset, method) for section, method in found} == presets
    assert len({preset for preset, _ in presets}) > 1


def test_of_many_records_a_method_shows_one_picture_a_task_of_the_longest_preset_and_smallest_seed(monkeypatch) -> None:
    monkeypatch.setattr(board_build, "MOST_GRIDS", 1)
    made = many()
    found = sample_grids(rows(made), made, picture)
    assert sorted((section.preset, method, shown.seed) for (section, method), shown in found.items()) == [
        ("quick", "factored", 0),
        ("quick", "mono", 0),
        ("quick", "slice-cfg", 0),
    ]


def test_a_linked_page_refers_to_the_records_pictures_and_holds_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "some records")
    store.write(record(score(), method="mono"), {"samples.png": png()})
    name = next(store.folder.glob("*.png")).name
    for link, uri in ((False, "data:image/png;base64,"), (True, f"../../some%20records/{name}")):
        rebuild(store.folder, tmp_path / "site" / "board", link=link)
        page = (tmp_path / "site" / "board" / "index.html").read_text()
        ((picture,),) = (board["pictures"] for board in page_boards(page))
        held = picture["uri"].startswith("data:")
        assert (picture["uri"].startswith(uri), "img-src data: 'self' file:;" in page, held) == (True, link, not link)
        assert not site_is_stale(store.folder, tmp_path / "site" / "board", link=link)
        assert site_is_stale(store.folder, tmp_path / "site" / "board", link=not link)


def test_boards_import_nothing_heavy() -> None:
    modules = "compbench.board.build, compbench.store.records, compbench.board.site"
    script = f"import sys, {modules}; print({{'torch', 'numpy', 'pandas', 'jinja2', 'matplotlib', 'scipy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=PAPERS.parents[1])
    assert done.stdout.strip() == "set()"


def test_profiles_beside_the_records_are_the_cost_columns(tmp_path: Path) -> None:
    found = record()
    Store(tmp_path / "records").write(found)
    write_profile(tmp_path / "profiles", measured(found))
    rebuild(tmp_path / "records", tmp_path / "board")
    assert ",64,50," in (tmp_path / "board" / "rows.csv").read_text()
