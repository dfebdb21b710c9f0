"""A picture of executed plans from above: one panel for each pair of quadrants, rows by source, columns by destination."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from compbench.data.cube_segments import CENTRE, CUBE, QUADRANTS
from compbench.data.process_pool import Failed
from compbench.tasks.planning_execution import Outcome

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

WIDTH, HEIGHT, GAP, TITLE, TOP = 220, 118, 6, 14, 16
X_RANGE, Y_RANGE = (0.25, 0.60), (-0.35, 0.35)
"""The workspace in metres; small x is at the top, as in the front camera's view."""

Colour = tuple[int, int, int]
SUCCESS, FAILURE, INFEASIBLE = (20, 140, 60), (210, 50, 40), (190, 190, 190)
SOURCE_SHADE, DESTINATION_SHADE = (226, 236, 250), (253, 240, 214)
MOST_DRAWN = 12
SCALE = 2


def panels(
    cells: numpy.ndarray,
    plans: numpy.ndarray,
    outcomes: Sequence[Outcome | Failed | None],
    *,
    heldout: Sequence[tuple[int, ...]],
) -> numpy.ndarray:
    """Paths of the cube: green if it reached its goal (a cross), red if not, with a dot at the end; grey: plans not executed.

    Args:
        cells: the requested pairs, (N, 2).
        plans: the plans, (N, 17, frames).
        outcomes: their outcomes; None where a plan is not feasible.
        heldout: held-out pairs; their panels have a heavy frame.

    Returns:
        uint8 (H, W, 3).
    """
    from PIL import Image, ImageDraw

    count = len(QUADRANTS)
    width, height = count * (WIDTH + GAP) + GAP, count * (HEIGHT + TITLE + GAP) + GAP + TOP
    image = Image.new("RGB", (SCALE * width, SCALE * height), "white")
    draw = ImageDraw.Draw(image)
    legend = "cube from above: source quadrant blue, destination yellow; green: at its goal (x), red: not, grey: infeasible plans"
    draw.text((SCALE * GAP, SCALE * 3), legend, fill="black", font_size=SCALE * 10)
    for source in range(count):
        for destination in range(count):
            left, top = GAP + destination * (WIDTH + GAP), TOP + GAP + source * (HEIGHT + TITLE + GAP) + TITLE
            panel = _Panel(draw, SCALE * left, SCALE * top)
            cell = (source, destination)
            rows = numpy.flatnonzero((cells == cell).all(axis=1)).tolist()
            panel.ground(source, destination)
            for row in rows[:MOST_DRAWN]:
                panel.path(plans[row], outcomes[row])
            found = [outcomes[row] for row in rows]
            done = sum(isinstance(outcome, Outcome) and outcome.succeeded for outcome in found)
            able = sum(outcome is not None for outcome in found)
            seen = "never seen" if cell in set(heldout) else "seen"
            title = f"{QUADRANTS[source]} to {QUADRANTS[destination]}, {seen}: {done} of {len(rows)} ({able} feasible)"
            panel.frame(title, heavy=cell in set(heldout))
    return numpy.asarray(image.resize((width, height), Image.Resampling.LANCZOS))


class _Panel:
    """The panel of one table, drawn at `SCALE` times its size."""

    def __init__(self, draw: ImageDraw, left: int, top: int) -> None:
        self.draw, self.left, self.top = draw, left, top

    def place(self, position: Sequence[float]) -> tuple[float, float]:
        """Pixels of a point (x, y) of the table."""
        across = (position[1] - Y_RANGE[0]) / (Y_RANGE[1] - Y_RANGE[0])
        down = (position[0] - X_RANGE[0]) / (X_RANGE[1] - X_RANGE[0])
        return self.left + across * SCALE * WIDTH, self.top + down * SCALE * HEIGHT

    def ground(self, source: int, destination: int) -> None:
        """Draw the source and destination quadrants, and the lines between all four."""
        for quadrant, shade in ((source, SOURCE_SHADE), (destination, DESTINATION_SHADE)):
            low = (CENTRE[0] if quadrant >= 2 else X_RANGE[0], CENTRE[1] if quadrant % 2 else Y_RANGE[0])
            high = (X_RANGE[1] if quadrant >= 2 else CENTRE[0], Y_RANGE[1] if quadrant % 2 else CENTRE[1])
            self.draw.rectangle((*self.place(low), *self.place(high)), fill=shade)
        self.draw.line((*self.place((CENTRE[0], Y_RANGE[0])), *self.place((CENTRE[0], Y_RANGE[1]))), fill=(150, 150, 150))
        self.draw.line((*self.place((X_RANGE[0], CENTRE[1])), *self.place((X_RANGE[1], CENTRE[1]))), fill=(150, 150, 150))

    def path(self, plan: numpy.ndarray, outcome: Outcome | Failed | None) -> None:
        """Draw the path that the cube took, or that an unexecuted plan gives it."""
        if not isinstance(outcome, Outcome):
            self.draw.line([self.place(point) for point in _inside(plan[CUBE].T)], fill=INFEASIBLE, width=SCALE)
            return
        colour = SUCCESS if outcome.succeeded else FAILURE
        points = [self.place(point) for point in _inside(outcome.path)]
        self.draw.line(points, fill=colour, width=SCALE + 1)
        self._dot(points[0], 2 * SCALE, outline=colour)
        self._dot(points[-1], 2 * SCALE, fill=colour)
        (x, y), arm = self.place(_inside(plan[CUBE, -1][None])[0]), 3 * SCALE
        self.draw.line((x - arm, y - arm, x + arm, y + arm), fill="black", width=1)
        self.draw.line((x - arm, y + arm, x + arm, y - arm), fill="black", width=1)

    def frame(self, title: str, *, heavy: bool) -> None:
        """Draw the edge, and a title above it."""
        corner = (self.left, self.top, self.left + SCALE * WIDTH, self.top + SCALE * HEIGHT)
        self.draw.rectangle(corner, outline="black", width=3 * SCALE if heavy else 1)
        self.draw.text((self.left, self.top - SCALE * (TITLE - 1)), title, fill="black", font_size=SCALE * 10)

    def _dot(
        self, point: tuple[float, float], radius: float, *, outline: Colour | None = None, fill: Colour | None = None
    ) -> None:
        x, y = point
        self.draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=outline, fill=fill)


def _inside(points: numpy.ndarray) -> numpy.ndarray:
    """Positions (K, 2 or 3) as (K, 2), moved to the workspace's edge where they leave it."""
    return numpy.clip(points[:, :2], (X_RANGE[0], Y_RANGE[0]), (X_RANGE[1], Y_RANGE[1])).astype(float)
