"""Pictures of held-out cells: every cell has its tiles, the real one above, in a bounded file that says where each is."""

from __future__ import annotations

import io
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import Request
from compbench.api.schemas import RunRequest
from compbench.runner.heldout_pictures import HALVED, MOST_BYTES, MOST_PICTURES, HeldoutSamples, limited_png
from compbench.runner.one_run import run
from compbench.store.cell_picture import CellPicture, facts_of, with_facts
from compbench.store.records import Store

SIDE = 40


def level(cell: tuple[int, ...]) -> int:
    """A grey of its own for each cell of fewer than 100 by 10."""
    return (cell[0] * 10 + cell[1]) % 120


def shown(num_cells: int, per_cell: int, side: int = SIDE) -> HeldoutSamples:
    """Samples of cells, each of its own grey; real pictures are 128 levels brighter."""
    space = FactorSpace([Factor("a", 100), Factor("nuisance", 3), Factor("b", 10)])
    cells = tuple((k // 10, k % 10) for k in range(num_cells))
    found = HeldoutSamples(Holdout(space, (0, 2), cells))
    rows = torch.tensor([[a, k % 3, b] for k in range(per_cell) for a, b in cells])
    grey = torch.tensor([level((a, b)) for a, _, b in rows.tolist()]) / 127.5 - 1
    samples = grey[:, None, None, None].expand(-1, 1, side, side)
    for stream in ("seen", "heldout", "heldout fid"):
        offset = 0 if stream == "heldout" else 0.5
        found.note(Request(rows, torch.zeros_like(samples)), stream, samples + offset)
    return found


def brighter(condition: torch.Tensor) -> torch.Tensor:
    grey = torch.tensor([128 + level((a, b)) for a, _, b in condition.tolist()], dtype=torch.uint8)
    return grey[:, None, None, None].expand(-1, 3, SIDE, SIDE)


def tiles(png: bytes) -> list[tuple[tuple[int, ...], int, int]]:
    """Cell, real and generated level at the middle of each tile, by the picture's own facts."""
    facts = facts_of(png)
    assert facts is not None
    picture = numpy.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int)
    height, width = facts.side
    found = []
    for place, cell in enumerate(facts.cells):
        y, x = place // facts.columns * 2 * height + height // 2, place % facts.columns * width + width // 2
        found.append((cell, int(picture[y, x, 0]), int(picture[y + height, x, 0])))
    return found


@pytest.mark.parametrize(("num_cells", "per_cell"), [(1, 9), (7, 4), (50, 1), (266, 2), (999, 1)])
def test_every_cell_is_shown_with_its_own_real_picture_above(num_cells: int, per_cell: int) -> None:
    made = shown(num_cells, per_cell).pictures(brighter, film=False)
    found = [tile for name in sorted(made) for tile in tiles(made[name])]
    cells = [cell for cell, _, _ in found]
    assert len(set(cells)) == min(num_cells, MOST_PICTURES * HALVED)
    assert cells == sorted(cells)
    assert len(cells) <= max(num_cells, 20)
    for cell, real, generated in found:
        assert abs(generated - level(cell)) <= 4
        assert abs(real - 128 - level(cell)) <= 4
    assert all(facts_of(png).of == num_cells for png in made.values())  # type: ignore[union-attr]


def test_a_picture_of_noise_is_bounded_and_one_of_few_colours_keeps_these() -> None:
    noise = numpy.random.default_rng(0).integers(0, 256, (288, 288, 3)).astype(numpy.uint8)
    assert len(limited_png(Image.fromarray(noise))) <= MOST_BYTES
    drawing = numpy.full((60, 90, 3), 255, numpy.uint8)
    drawing[10:40, 5:50], drawing[45:60] = (17, 101, 203), (1, 2, 3)
    found = Image.open(io.BytesIO(limited_png(Image.fromarray(drawing)))).convert("RGB")
    assert numpy.array_equal(numpy.asarray(found), drawing)


def test_the_film_is_of_one_cell_the_middle_one() -> None:
    film = tiles(shown(9, 5).pictures(brighter, film=True)["film"])
    assert [cell for cell, _, _ in film] == [(0, 4)] * 3


def test_without_real_pictures_only_samples_are_shown() -> None:
    (png,) = shown(4, 1).pictures(lambda condition: None, film=False).values()
    facts = facts_of(png)
    assert facts is not None
    assert not facts.real
    assert facts.size == Image.open(io.BytesIO(png)).size


def test_nothing_is_drawn_where_nothing_held_out_was_asked_for() -> None:
    assert HeldoutSamples(Holdout.empty(FactorSpace([Factor("a", 2)]))).pictures(brighter, film=True) == {}


def test_facts_survive_their_file_and_foreign_ones_are_refused() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (20, 16)).save(buffer, "PNG")
    plain = buffer.getvalue()
    facts = CellPicture(side=(8, 10), columns=2, cells=((0, 1), (3, 2)), real=True, of=9)
    assert facts_of(with_facts(plain, facts)) == facts
    assert Image.open(io.BytesIO(with_facts(plain, facts))).size == (20, 16)
    assert facts_of(plain) is None
    assert facts_of(with_facts(plain, facts.model_copy(update={"columns": 1}))) is None  # another size than the picture's
    damaged = with_facts(plain, facts).replace(b'"columns":2', b'"columns":0')
    assert facts_of(damaged) is None
    assert facts_of(with_facts(plain, facts)[:60]) is None


def test_a_run_keeps_every_held_out_cell_and_with_a_curve_a_film(tmp_path: Path) -> None:
    overrides = {"budget.train_steps": "8", "budget.sample_steps": "2", "budget.width": "8"}
    request = RunRequest(
        method="mono", task="concept-space", preset="smoke", overrides=overrides, home=str(tmp_path), curve=1, device="cpu"
    )
    record = run(request, in_process=True).record
    store = Store(tmp_path / "records")
    named = {artifact.name.removeprefix(f"{record.name}."): artifact.name for artifact in record.artifacts}
    assert set(named) == {"samples.png", "heldout-1.png", "film-4.png", "film-8.png"}
    facts = {name: facts_of((store.folder / file).read_bytes()) for name, file in named.items()}
    assert set(facts["heldout-1.png"].cells) == {(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1)}  # type: ignore[union-attr]
    assert facts["film-4.png"] == facts["film-8.png"]
    assert facts["samples.png"] is None
