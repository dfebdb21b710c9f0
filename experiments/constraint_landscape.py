"""At which noise levels a product of noised constraints identifies valid answers: `python experiments/constraint_landscape.py`.

For each noise s = sigma / alpha, with the exact densities of a board's rows, columns and diagonals:

    below    share of pairs (valid board noised to s, particle at s) in which the board has the lower energy
    kept     share of valid boards noised to s that reverse steps from s return to themselves
    valid    share of particles that are valid boards after reverse steps from s

The particles follow the composed score from pure noise, without weights.  `below` = 0.5 means that the energy has no information.
"""

from __future__ import annotations

import argparse
import math
from itertools import permutations
from typing import NamedTuple

import torch
from compbench_methods.pem import Composite, between, exact, time_of, trip
from torch import Generator, Tensor

from compbench.api.factors import Weighted
from compbench.data.constraint_laws import SPREAD, BlockOracle, laws_of, signs_of, violations
from compbench.data.puzzles import Puzzle, queens
from compbench.flow.path import VariancePreservingPath
from compbench.flow.scores import of_oracle

START, END = 20.0, 0.05
"""Noise levels at which particles start and at which reverse steps end."""
NUM_STEPS = 100
NOISES = [3.0, 2.0, 1.5, 1.2, 1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]


class Row(NamedTuple):
    """One noise level; the fields are defined in the module's docstring."""

    noise: float
    below: float
    kept: float
    valid: float


def composition(puzzle: Puzzle) -> Composite:
    """The exact product p_0 prod_i (p_i / p_0) of the noised laws."""
    laws = laws_of(puzzle)
    base, *groups = [torch.tensor([cell]) for cell in laws]
    members = [Weighted(1.0 - len(groups), base), *(Weighted(1.0, group) for group in groups)]
    return exact(of_oracle(BlockOracle(laws, torch.device("cpu")), VariancePreservingPath(), members))


def valid_boards(size: int) -> Tensor:
    """All valid boards of `size` queens, (V, size^2)."""
    places = torch.tensor(list(permutations(range(size))))
    boards = torch.full((len(places), size, size), -1.0).scatter_(2, places[:, :, None], 1.0).flatten(1)
    return boards[violations(laws_of(queens(size)).values(), boards) == 0]


def landscape(size: int, noises: list[float], count: int, generator: Generator) -> list[Row]:
    """The rows for a board of `size` queens, with `count` particles and noised boards per level."""
    puzzle, boards = queens(size), valid_boards(size)
    composite, laws, rows = composition(puzzle), laws_of(puzzle).values(), []
    particles, at = START * torch.randn(count, size**2, generator=generator), START
    for noise in noises:
        particles, at = trip(composite, particles, steps(at, noise), generator, last_noise=True), noise
        own = boards[torch.randint(len(boards), (count,), generator=generator)]
        noised = own + (SPREAD**2 + noise**2) ** 0.5 * torch.randn(own.shape, generator=generator)
        scale, time = (1 + noise**2) ** 0.5, time_of(noise)
        planted, found = (composite.log_density(u / scale, time) for u in (noised, particles))
        below = (planted[:, None] > found).double().mean()
        back, ended = (signs_of(trip(composite, u, steps(noise, END), generator)) for u in (noised, particles))
        kept, valid = (back == own).all(1), violations(laws, ended) == 0
        rows.append(Row(noise, *(float(share.double().mean()) for share in (below, kept, valid))))
    return rows


def steps(most: float, least: float) -> list[float]:
    """Noise levels from `most` to `least`, as dense as `NUM_STEPS` levels from START to END."""
    return between(most, least, 1 + max(1, round(NUM_STEPS * math.log(most / least) / math.log(START / END))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8, help="queens")
    parser.add_argument("--count", type=int, default=400, help="number of particles, and of noised boards per level")
    asked = parser.parse_args()
    print("| noise s | below | kept | valid |\n| --- | --- | --- | --- |")
    for row in landscape(asked.size, NOISES, asked.count, Generator().manual_seed(0)):
        print("| " + " | ".join(f"{value:.2f}" for value in row) + " |")
