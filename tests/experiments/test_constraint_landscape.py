"""The product of noised constraints on a board: where its energy knows the valid ones, and where it keeps them."""

from __future__ import annotations

import pytest
import torch
from constraint_landscape import landscape, steps, valid_boards


@pytest.mark.parametrize(("size", "count"), [(4, 2), (5, 10), (6, 4)])
def test_boards_have_their_known_numbers_of_answers(size: int, count: int) -> None:
    assert len(valid_boards(size)) == count


def test_steps_end_at_both_levels_and_are_as_dense_everywhere() -> None:
    whole, part = steps(20.0, 0.05), steps(1.0, 0.5)
    assert (whole[0], part[0]) == (20.0, 1.0)
    assert (whole[-1], part[-1]) == pytest.approx((0.05, 0.5))
    assert part[0] / part[1] == pytest.approx(whole[0] / whole[1], rel=0.05)


def test_energy_tells_valid_boards_only_where_noise_no_longer_changes_them() -> None:
    many, few = landscape(6, [1.2, 0.2], 100, torch.Generator().manual_seed(0))
    assert many.below < 0.55  # no better than chance
    assert many.kept < 0.3
    assert few.below > 0.95
    assert few.kept == 1
    assert max(many.valid, few.valid) < 0.2
