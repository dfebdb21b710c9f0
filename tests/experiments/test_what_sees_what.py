"""The figure of what each distance notices: its axes can be read, whatever range the distances have."""

from __future__ import annotations

from itertools import pairwise

import pytest
from what_sees_what import METRICS, SHOWN, SPOILT, figure

CHANGES = [*SPOILT, *SHOWN]


@pytest.mark.parametrize("largest", [6.3, 12.0, 33.0])
def test_labels_of_an_axis_are_plain_numbers_that_do_not_overlap(largest: float) -> None:
    steps = dict(zip(CHANGES, (0.9, 1, 1, 1, 1, 1, largest), strict=True))
    found = {name: {change: dict.fromkeys(METRICS, value) for change, value in steps.items()} for name in "abcd"}
    drawn = figure(found)
    drawn.draw_without_rendering()
    for axes in drawn.axes:
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        labels = [tick.label1.get_text() for tick in ticks]
        assert labels == [text for text in ("1", "2", "5", "10", "20") if float(text) <= high]
        boxes = [tick.label1.get_window_extent() for tick in ticks]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
        assert list(axes.xaxis.get_minorticklocs()) == []
