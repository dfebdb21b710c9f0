"""Right samples by cell: counted once, checked in records, added over seeds, split by distance."""

from __future__ import annotations

import pytest
import torch
from support.sample_records import record, score

from compbench.api.factors import distance
from compbench.api.interfaces import CellCount
from compbench.board.cells import by_distance, together
from compbench.cli.cell_map import drawn, lines, product_of_factors
from compbench.store.validate import check_scores
from compbench.system.errors import CompbenchError
from compbench.tasks.split_scores import count_cells

HELD = (CellCount((0, 1), 1, 2), CellCount((1, 1), 2, 2))
SEEN = (CellCount((0, 0), 2, 2), CellCount((1, 0), 1, 2))


def joint(by_cell: tuple[CellCount, ...], *, split: str = "heldout", value: float = 0.75, n: int = 4):
    return score(f"{split}_accuracy", value, n=n, by_cell=by_cell)


def test_counts_of_a_few_samples() -> None:
    cells = torch.tensor([[0, 1], [1, 1], [0, 1], [1, 1]])
    assert count_cells(cells, torch.tensor([True, True, False, True])) == HELD


def test_counts_of_seeds_are_added() -> None:
    assert together([HELD, HELD]) == (CellCount((0, 1), 2, 4), CellCount((1, 1), 4, 4))


def test_distance_counts_the_values_that_must_change() -> None:
    seen = [(0, 0, 0), (1, 0, 0)]
    assert [distance(cell, seen) for cell in ((0, 0, 0), (0, 1, 0), (2, 1, 1), (1, 1, 1))] == [0, 1, 3, 2]
    assert by_distance(HELD, SEEN) == {1: (3, 4)}
    assert by_distance((CellCount((1, 1), 1, 3), CellCount((0, 1), 2, 3)), (CellCount((0, 0), 1, 1),)) == {1: (2, 3), 2: (1, 3)}
    assert by_distance(HELD, ()) == {}


def test_a_record_shows_its_lattice() -> None:
    scores = (joint(HELD), joint(SEEN, split="seen"), score("heldout_accuracy_shape", 0.9), score("heldout_accuracy_hue", 0.8))
    names = [("shape", ("cube", "ball")), ("hue", ("red", "green"))]
    _, head, *rows = drawn(HELD, SEEN, names)
    assert head.split() == ["shape", "\\", "hue", "red", "green"]
    assert [row.split() for row in rows] == [["cube", "(100)", "50"], ["ball", "(50)", "100"]]
    assert [row.split()[0] for row in list(drawn(HELD, SEEN))[2:]] == ["0", "1"]
    found = list(lines(scores))
    assert found[-2] == "of 4 samples in held-out cells that differ from the nearest seen cell in 1 value, 0.750 are right"
    assert found[-1] == "all factors right at once: 0.750; if factors failed independently: 0.720"
    assert product_of_factors(scores[0], scores) == pytest.approx(0.72)
    assert list(lines((score(),))) == []
    far = joint((CellCount((1, 1), 1, 3), CellCount((0, 1), 2, 3))), joint((CellCount((0, 0), 1, 1),), split="seen")
    assert next(line for line in lines(far) if line.startswith("of ")) == (
        "of 3 samples in held-out cells that differ from the nearest seen cell in 1 value, 0.667 are right; "
        "of 3 in cells that differ in 2 values, 0.333 are right"
    )


def test_other_ways_of_a_rate_are_no_factors_of_it() -> None:
    ways = ("", "_direct", "_whole_state")
    rates = [score(f"heldout_success_rate{way}", 50.0, metric="success_rate", unit="%") for way in ways]
    assert product_of_factors(rates[0], rates) is None


@pytest.mark.parametrize(
    "by_cell",
    [
        (CellCount((0, 1), 2, 2), CellCount((1, 1), 2, 2)),  # more right than the score says
        (CellCount((0, 1), 3, 2), CellCount((1, 1), 0, 2)),  # more right than samples
        (CellCount((0, 1), 1, 2), CellCount((0, 1), 2, 2)),  # one cell twice
        (CellCount((0, 1), 3, 3),),  # fewer samples than the score's
    ],
)
def test_counts_that_do_not_add_up_are_no_record(by_cell: tuple[CellCount, ...]) -> None:
    check_scores(record(joint(HELD)))
    with pytest.raises(CompbenchError, match="counts by cell"):
        check_scores(record(joint(by_cell)))
