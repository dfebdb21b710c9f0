"""Records with pictures of cells in known colours."""

from __future__ import annotations

import io
from pathlib import Path

import numpy
from PIL import Image
from support.sample_records import png, record, score

from compbench.api.schemas import CurvePoint
from compbench.store.cell_picture import CellPicture, with_facts
from compbench.store.records import Store

CELLS = ((0, 1), (0, 2), (1, 0))
FILM = CellPicture(side=(4, 6), columns=2, cells=(CELLS[1],) * 2, real=True, of=3)


def picture(facts: CellPicture) -> bytes:
    """Real tiles are red, generated ones blue; both are brighter the later the tile."""
    (height, width), step = facts.side, 1 + facts.real
    pixels = numpy.full((facts.size[1], facts.size[0], 3), 255, numpy.uint8)
    for place in range(len(facts.cells)):
        row, column = divmod(place, facts.columns)
        for part in range(step):
            channel = 0 if step == 2 and part == 0 else 2
            top, left = (row * step + part) * height, column * width
            pixels[top : top + height, left : left + width] = 0
            pixels[top : top + height, left : left + width, channel] = 100 + 10 * place
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return with_facts(buffer.getvalue(), facts)


def written(folder: Path, method: str = "mono", steps: tuple[int, ...] = (250, 500, 1000), seed: int = 0) -> Store:
    """A record of shapes3d-light with pictures of its cells, and a film with a frame at each step, the last at the end."""
    store = Store(folder / "records")
    curve = tuple(CurvePoint(step=step, scores={"heldout_accuracy": step / 2000}) for step in steps[:-1])
    made = record(score(value=0.75), task="shapes3d-light", method=method, seed=seed, more={"curve": curve})
    facts = CellPicture(side=(4, 6), columns=2, cells=CELLS, real=True, of=3)
    shots = {f"film-{step}.png": picture(FILM) for step in steps}
    store.write(made, {"samples.png": png(40, 20), "heldout-1.png": picture(facts), **shots})
    return store
