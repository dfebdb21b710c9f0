"""Which values were drawn instead of those that were asked for."""

import torch
from values_drawn import counts, mistakes


def test_values_are_counted_by_what_was_asked_and_by_what_was_drawn() -> None:
    asked, drawn = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([0, 2, 0, 0, 2, 2])
    table = counts(asked, drawn, 4)
    assert table.tolist() == [[1, 0, 1, 0], [2, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert list(mistakes(table)) == ["0: 1 of 2; else 2 (1)", "1: 0 of 3; else 0 (2), 2 (1)"]
