import math
import random

import pytest
from gate_simulation import rate

from compbench.gate.speed import FRESH_PAIRS, race
from compbench.gate.turns import Pair


class Course:
    """A timer that keeps who began; `ratio(cell, pair)` is how much slower the head is."""

    def __init__(self, ratio) -> None:
        self.ratio, self.asked = ratio, []

    def __call__(self, cell: str, begins: str) -> Pair:
        number = len([one for one in self.asked if one[1] == cell])
        self.asked.append((begins, cell))
        return pair(train=self.ratio(cell, number))


def pair(**ratios: float) -> Pair:
    return Pair(dict.fromkeys(ratios, 1.0), ratios, {row: math.log(ratio) for row, ratio in ratios.items()})


def wobbling(centre: float, width: float = 0.01):
    return lambda cell, pair: centre * math.exp(width * (-1) ** pair)


def run(course, *cells, tolerance=0.05, pairs=5, max_pairs=10):
    return race(cells or ["a"], course, tolerance=tolerance, pairs=pairs, max_pairs=max_pairs)


def test_base_and_head_begin_by_turns() -> None:
    course = Course(wobbling(1.0))
    run(course, pairs=4)
    assert [begins for begins, _ in course.asked] == ["base", "head"] * 2


def test_an_unclear_cell_gets_twice_the_first_pairs_and_no_more_when_its_time_is_up() -> None:
    (lap,) = race(["a"], Course(wobbling(1.0, 0.3)), tolerance=0.05, pairs=3, max_pairs=10, seconds=0.0)
    assert (lap.comparison.n, lap.comparison.finding) == (6, "unclear")


def test_six_pairs_of_the_spread_of_a_busy_machine_leave_few_gates_of_identical_code_inconclusive() -> None:
    generator, gates, unclear = random.Random(1), 300, 0
    for _ in range(gates):
        course = Course(lambda cell, pair: math.exp(generator.gauss(0, 0.027)))  # as measured: docs/gate.md
        (lap,) = race(["a"], course, tolerance=0.05, pairs=3, max_pairs=10, seconds=0.0)
        assert not lap.regression
        unclear += lap.comparison.finding != "not worse"
    assert unclear <= 0.05 * gates


def test_a_slowdown_is_red_only_after_fresh_pairs_repeat_it() -> None:
    (lap,) = run(Course(wobbling(1.2)))
    assert (lap.suspected, lap.repeated, lap.regression) == (True, True, True)
    assert lap.comparison.n == 5 + FRESH_PAIRS
    assert math.expm1(lap.comparison.mean) == pytest.approx(0.2, abs=0.01)


def test_a_slowdown_that_goes_away_is_suspected_and_not_red() -> None:
    (lap,) = run(Course(lambda cell, pair: (1.2 if pair < 5 else 1.0) * (1.01 if pair % 2 else 0.99)))
    assert (lap.suspected, lap.repeated, lap.regression) == (True, False, False)
    assert lap.needed


def test_a_clear_row_ends_after_the_first_pairs_and_an_unclear_one_after_the_last() -> None:
    laps = run(Course(lambda cell, pair: math.exp((0.3 if cell == "noisy" else 0.01) * (-1) ** pair)), "calm", "noisy")
    assert {lap.cell: lap.comparison.n for lap in laps} == {"calm": 5, "noisy": 10}
    assert {lap.cell: lap.comparison.finding for lap in laps} == {"calm": "not worse", "noisy": "unclear"}
    assert laps[1].needed > 10


def test_rows_are_only_those_that_every_pair_had() -> None:
    answers = iter([pair(train=1.0, sample=1.0), pair(sample=1.0)])
    assert [lap.row for lap in race(["a"], lambda cell, begins: next(answers), tolerance=0.05, pairs=2, max_pairs=2)] == [
        "sample"
    ]


@pytest.mark.parametrize("noise", [0.03, 0.08])
def test_identical_code_is_not_red(noise) -> None:
    assert rate(6, noise=noise, slowdown=0.0, trials=60) == 0


@pytest.mark.parametrize("rows", [1, 12])
def test_a_slowdown_of_a_fifth_is_caught_within_ten_pairs(rows) -> None:
    assert rate(rows, noise=0.03, slowdown=0.2, trials=25) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 6, 12])
def test_rates_of_a_thousand_gates(rows) -> None:
    assert rate(rows, noise=0.03, slowdown=0.0, trials=1000) <= 0.01
    assert rate(rows, noise=0.08, slowdown=0.0, trials=1000) <= 0.01
    assert rate(rows, noise=0.03, slowdown=0.2, trials=1000) >= 0.9
