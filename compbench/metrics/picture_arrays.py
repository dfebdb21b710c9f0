"""Small pictures as arrays, for records; figures with axes are in `figures.py`."""

from __future__ import annotations

import numpy

STOPS = numpy.array([[13, 8, 60], [70, 50, 127], [54, 108, 141], [40, 160, 130], [150, 205, 70], [253, 231, 37]], float)
"""Dark blue to yellow, of steadily rising lightness."""


def coloured(values: numpy.ndarray) -> numpy.ndarray:
    """A matrix (H, W) as colours from its smallest (dark) to its largest value (bright), uint8 (H, W, 3)."""
    low, high = float(values.min()), float(values.max())
    place = (values - low) / max(high - low, 1e-12) * (len(STOPS) - 1)
    below = numpy.clip(place.astype(int), 0, len(STOPS) - 2)
    share = (place - below)[..., None]
    return (STOPS[below] * (1 - share) + STOPS[below + 1] * share).round().astype(numpy.uint8)


def outlined(colours: numpy.ndarray, region: numpy.ndarray, enlarged: int) -> numpy.ndarray:
    """Colours (H, W, 3), each cell `enlarged` pixels wide, with a white line around a region, bool (H, W)."""
    picture = colours.repeat(enlarged, 0).repeat(enlarged, 1)
    large = numpy.pad(region.repeat(enlarged, 0).repeat(enlarged, 1), 1)
    inside = large[1:-1, 1:-1]
    whole = large[:-2, 1:-1] & large[2:, 1:-1] & large[1:-1, :-2] & large[1:-1, 2:]
    picture[inside & ~whole] = 255
    return picture
