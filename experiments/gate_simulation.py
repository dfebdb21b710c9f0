"""How often the speed gate reports false regressions, and how often it detects slowdowns: the gate's race on simulated processes.

    python experiments/gate_simulation.py [--trials 1000]

A process takes `exp(noise e)` seconds, with a new e ~ N(0, 1) for each process and row, times the slowdown in the head.  Only one
row of the table is slowed down, which is the hardest case for Holm's test.
"""

from __future__ import annotations

import argparse
import math
import random

from compbench.gate.regression import MOST_PAIRS
from compbench.gate.speed import FRESH_PAIRS, Lap, race
from compbench.gate.turns import Pair

ROWS = (1, 6, 12)
NOISES = (0.015, 0.03, 0.08)


def simulated(rows: int, *, noise: float, slowdown: float, seed: int, tolerance: float = 0.05) -> tuple[list[Lap], int]:
    """One gate of `rows` rows, the first slower by `slowdown` in the head; return its laps and the largest number of pairs."""
    generator = random.Random(seed)

    def timer(cell: str, begins: str) -> Pair:
        base, head = (math.exp(noise * generator.gauss(0, 1)) for _ in range(2))
        head *= 1 + slowdown if cell == "0" else 1.0
        return Pair({"train": base}, {"train": head}, {"train": math.log(head / base)})

    laps = race([str(row) for row in range(rows)], timer, tolerance=tolerance, pairs=3, max_pairs=MOST_PAIRS)
    return laps, max(lap.comparison.n for lap in laps)


def rate(rows: int, *, noise: float, slowdown: float, trials: int) -> float:
    """Share of gates that report a regression."""
    red = 0
    for seed in range(trials):
        laps, pairs = simulated(rows, noise=noise, slowdown=slowdown, seed=seed)
        assert pairs <= MOST_PAIRS + FRESH_PAIRS
        red += any(lap.regression for lap in laps)
    return red / trials


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    print(f"of {trials} gates with 3 to 10 pairs, and 5 fresh ones for suspects")
    print(f"{'rows':>4} {'noise':>6} {'slowdown':>9} {'red':>7}")
    for slowdown in (0.0, 0.05, 0.1, 0.2):
        for noise in NOISES:
            for rows in ROWS:
                share = rate(rows, noise=noise, slowdown=slowdown, trials=trials)
                print(f"{rows:4d} {noise:6.1%} {slowdown:9.0%} {share:7.1%}")


if __name__ == "__main__":
    main()
