"""Pictures of cells on the board: they are read, named and cut as their facts say, and films have a row a method."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cell_pictures import CELLS, picture, written
from support.page_data import page_data
from support.sample_records import png

from compbench.board.build import draw, films_of, tables
from compbench.board.cell_tiles import Tiles
from compbench.board.film_figures import cell_name, stacked
from compbench.board.render_html import Picture
from compbench.board.site import read, rebuild
from compbench.store.cell_picture import CellPicture


def test_tiles_are_cut_where_the_facts_say() -> None:
    facts = CellPicture(side=(4, 6), columns=2, cells=CELLS, real=True, of=3)
    for real, channel in ((True, 0), (False, 2)):
        found = stacked(Tiles(picture(facts), facts), real=real)
        assert found.shape == (12, 6, 3)
        assert [set(found[4 * place : 4 * place + 4, :, channel].ravel()) for place in range(3)] == [{100}, {110}, {120}]
        assert found[:, :, 2 - channel].max() == 0


def test_a_film_has_a_frame_a_point_with_the_score_of_that_point(tmp_path: Path) -> None:
    store = written(tmp_path)
    written(tmp_path, seed=1)
    material, problems = read(store.folder, tmp_path / "site")
    assert problems == []
    (found,) = films_of(tables(material)[0], material).values()
    (film,) = found  # one a row
    assert (film.method, film.seed, film.cell) == ("mono", 0, CELLS[1])
    assert [(frame.step, frame.score) for frame in film.frames] == [
        (250, "12 % right"),
        (500, "25 % right"),
        (1000, "75 % right"),
    ]


def test_a_film_of_one_point_is_none_and_damaged_pictures_are_left_out(tmp_path: Path) -> None:
    store = written(tmp_path, steps=(1000,))
    material, _ = read(store.folder, tmp_path / "site")
    assert films_of(tables(material)[0], material) == {}
    (made,) = material.records
    next(store.folder.glob("*heldout-1.png")).write_bytes(png())
    found = read(store.folder, tmp_path / "site")[0].pictures(made)
    assert isinstance(found, Picture)
    assert found.heldout == ()


def test_cells_are_named_by_their_values_where_they_have_names(tmp_path: Path) -> None:
    material, _ = read(written(tmp_path).folder, tmp_path / "site")
    section = tables(material)[0].rows[0].section
    factors = [name for name, _ in material.catalogue["shapes3d-light"].factors]
    assert cell_name((0, 1), section, material.catalogue).split(", ")[1] == f"{factors[1]} 1"
    assert cell_name((0, 1), section, {}) == "0, 1"


@pytest.mark.slow
def test_figures_hold_a_filmstrip_in_both_forms_byte_for_byte(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    store = written(tmp_path)
    written(tmp_path, "factored", steps=(250, 1000))
    material, _ = read(store.folder, tmp_path / "site")
    paths = draw(material, tmp_path / "figures")
    film = [path for path in paths if path.name.startswith("film-")]
    assert [path.name for path in film] == ["film-shapes3d-light-quick.pdf", "film-shapes3d-light-quick.svg"]
    text = film[1].read_text()
    assert all(word in text for word in ("mono", "factored", "1,000", "75 % right", "never seen"))
    before = [path.read_bytes() for path in film]
    draw(material, tmp_path / "figures")
    assert [path.read_bytes() for path in film] == before


def test_a_page_that_links_holds_no_tile(tmp_path: Path) -> None:
    store = written(tmp_path)
    rebuild(store.folder, tmp_path / "site", link=True)
    page = (tmp_path / "site" / "index.html").read_text()
    assert "heldout-1.png" in page
    assert "film-1000.png" in page
    asked = {question["picture"] for view in page_data(page)["views"] for question in view["questions"]} - {""}
    assert page.count("data:image/png;base64") == len(asked)
