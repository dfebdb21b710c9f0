"""Fit the outlines of the embedded dSprites to official frames and print them as `compbench/data/dsprites_renderer.py` has them.

    python experiments/fit_dsprites.py dsprites.gif

The picture of the official repository (google-deepmind/dsprites-dataset) holds 320 frames of the data set, lossless.  An
outline is a radius at evenly spaced angles, linear in between, mirror-symmetric about the shape's axis (and for ellipse and
square about the other axis too).  A linear programme finds the radii that put every pixel on its side, with the widest margin:

    min  sum_i slack_i + smoothness * sum_k |second difference of R|   s.t.  side_i (R(angle_i) - r_i) >= margin - slack_i

--leave x (or y, orientation, scale) fits without those frames and counts wrong pixels on them, as an estimate for other images.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy
from PIL import Image, ImageSequence
from scipy import sparse
from scipy.optimize import linprog

from compbench.data.dsprites_renderer import SHAPES, centre, turn

STEP = 1.5
"""Angle between neighbouring radii, in degrees."""
MARGIN, SMOOTHNESS, NEAR = 1e-3, 1e-4, 1.5
"""The margin in pixels at scale 1; the weight of smoothness; and the distance beyond which a pixel is no constraint."""
BEGINS = {"heart": 0, "ellipse": 192, "square": 256}


class Frame(NamedTuple):
    """One official frame: the varied factor, its condition (shape, scale, orientation, x, y), and its pixels (64, 64)."""

    varied: str
    condition: tuple[int, ...]
    on: numpy.ndarray


def conditions_of(name: str) -> list[tuple[str, tuple[int, ...]]]:
    """The varied factor and the condition (shape, scale, orientation, x, y) of each frame of a shape, in the picture's order."""
    shape, up, positions = SHAPES.index(name), range(6), range(32)
    runs = [("scale", (shape, scale, 0, 0, 0)) for run in (up, reversed(up), up) for scale in run]
    runs += [("orientation", (shape, 5, turned, 0, 0)) for turned in range(40)]
    if name == "heart":
        runs += [("y", (shape, 5, 0, 0, place)) for place in positions]
        runs += [("x", (shape, 5, 0, place, 31)) for place in positions]
        runs += [("y", (shape, 5, 0, 31, place)) for place in reversed(positions)]
        runs += [("x", (shape, 5, 0, place, 0)) for place in reversed(positions)]
    return [*runs, *(("scale", (shape, scale, 0, 0, 0)) for scale in reversed(up))]


def read_frames(path: Path) -> list[Frame]:
    """The 320 frames of the picture."""
    with Image.open(path) as picture:
        pixels = numpy.stack([numpy.asarray(frame.convert("L")) for frame in ImageSequence.Iterator(picture)]) > 127
    frames = [
        Frame(varied, condition, pixels[first + k])
        for name, first in BEGINS.items()
        for k, (varied, condition) in enumerate(conditions_of(name))
    ]
    assert len(frames) == len(pixels) == 320
    return frames


def polar(condition: tuple[int, ...]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Angle in degrees, folded by the shape's symmetry, and radius in pixels at scale 1 of every pixel of a frame."""
    shape, scale, orientation, x, y = condition
    row, column = (grid.ravel() + 0.5 for grid in numpy.mgrid[0:64, 0:64])
    across, down = column - centre(x), row - centre(y)
    cosine, sine = math.cos(turn(orientation)), math.sin(turn(orientation))
    size = 0.5 + 0.1 * scale
    u, v = (cosine * across + sine * down) / size, (cosine * down - sine * across) / size
    along = v if shape == SHAPES.index("heart") else numpy.abs(v)
    return numpy.degrees(numpy.arctan2(numpy.abs(u), along)), numpy.hypot(u, v)


def fit(frames: list[Frame], top: float) -> numpy.ndarray:
    """Radii at the angles 0, STEP, ..., `top` in degrees."""
    parts = [(*polar(frame.condition), frame.on.ravel()) for frame in frames]
    angle, radius, on = (numpy.concatenate(column) for column in zip(*parts, strict=True))
    count = round(top / STEP) + 1
    rough = numpy.empty(count)
    for k in range(count):
        here = numpy.abs(angle - k * STEP) < 2 * STEP
        rough[k] = (radius[here & on].max(initial=0) + radius[here & ~on].min(initial=24)) / 2
    near = numpy.abs(radius - numpy.interp(angle, numpy.arange(count) * STEP, rough)) < NEAR
    angle, radius, side = angle[near], radius[near], numpy.where(on[near], 1.0, -1.0)
    n, below = len(angle), numpy.minimum((angle / STEP).astype(int), count - 2)
    share = angle / STEP - below
    places = numpy.arange(n)
    weights = sparse.csr_matrix(
        (numpy.r_[1 - share, share], (numpy.r_[places, places], numpy.r_[below, below + 1])), shape=(n, count)
    )
    bend = sparse.diags([1.0, -2.0, 1.0], [0, 1, 2], shape=(count - 2, count))
    none, one = sparse.csr_matrix, sparse.identity
    rows = [
        [-sparse.diags(side) @ weights, -one(n), none((n, count - 2))],
        [bend, none((count - 2, n)), -one(count - 2)],
        [-bend, none((count - 2, n)), -one(count - 2)],
    ]
    found = linprog(
        numpy.r_[numpy.zeros(count), numpy.ones(n), SMOOTHNESS * numpy.ones(count - 2)],
        A_ub=sparse.bmat(rows).tocsr(),
        b_ub=numpy.r_[-MARGIN - side * radius, numpy.zeros(2 * (count - 2))],
        bounds=[(0, 32)] * count + [(0, None)] * (n + count - 2),
        method="highs",
    )
    return found.x[:count]


def wrong_pixels(frames: list[Frame], radii: numpy.ndarray) -> list[int]:
    """Number of wrong pixels of an outline in each frame."""
    counts = []
    for frame in frames:
        angle, radius = polar(frame.condition)
        drawn = radius < numpy.interp(angle, numpy.arange(len(radii)) * STEP, radii)
        counts.append(int((drawn != frame.on.ravel()).sum()))
    return counts


def said(counts: list[int]) -> str:
    return f"{sum(counts)} wrong pixels in {sum(count > 0 for count in counts)} of {len(counts)} frames"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--leave", default="", help="fit without the frames in which this factor varies, and count on them")
    asked = parser.parse_args()
    frames = read_frames(asked.picture)
    tables = []
    for shape, name in enumerate(SHAPES):
        own = [frame for frame in frames if frame.condition[0] == shape]
        kept = [frame for frame in own if frame.varied != asked.leave]
        radii = fit(kept, 180.0 if name == "heart" else 90.0).round(4)
        print(f"{name}: {said(wrong_pixels(kept, radii))}")
        if left := [frame for frame in own if frame.varied == asked.leave]:
            print(f"{name}, left out: {said(wrong_pixels(left, radii))}")
        tables.append((name, radii))
    print("\n# fmt: off")
    for name, radii in tables:
        rows = [", ".join(f"{radius:.4f}" for radius in radii[first : first + 12]) for first in range(0, len(radii), 12)]
        print(f"{name.upper()} = (", *(f"    {row}," for row in rows), ")", sep="\n")


if __name__ == "__main__":
    main()
