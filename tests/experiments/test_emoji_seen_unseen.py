"""The picture of seen and unseen drawings marks exactly the cells that are held out."""

from __future__ import annotations

import numpy
from emoji_seen_unseen import FRAME, LEFT, PAD, TILE, TOP, UNSEEN, grid
from PIL import ImageColor

from compbench.data.emoji_drawings import PERSONS, ROLES, TONES
from compbench.tasks.emoji import turned


def test_framed_cells_are_those_that_the_seed_holds_out() -> None:
    roles = (ROLES[3], ROLES[40])
    pictures = numpy.full((len(ROLES), len(PERSONS), len(TONES), 3, TILE, TILE), 200, numpy.uint8)
    holdout, step = turned("medium", 2), TILE + 2 * PAD
    drawn = numpy.asarray(grid(pictures, holdout, roles))
    framed = set()
    for row, role in enumerate(roles):
        for column in range(len(TONES)):
            left, middle = LEFT + step * column + PAD - FRAME, TOP + step * row + PAD + TILE // 2
            if tuple(drawn[middle, left]) == ImageColor.getrgb(UNSEEN):
                framed.add((ROLES.index(role), column))
            assert tuple(drawn[middle, left + FRAME + TILE // 2]) == (200, 200, 200)
    assert framed == {cell for cell in holdout.cells if ROLES[cell[0]] in roles}
    assert framed
