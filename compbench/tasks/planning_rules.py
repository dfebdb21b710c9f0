"""The rules of the planning tasks: their settings, the held-out moves, and how plans are requested and scored."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import MethodSettings

QUADRANTS = ("TL", "TR", "BL", "BR")
SPACE = FactorSpace([Factor("source", 4, QUADRANTS), Factor("destination", 4, QUADRANTS)])
HOLDOUT = Holdout.by_rule(SPACE, ["source", "destination"], lambda source, destination: source + destination == 3)
"""Held-out moves are TL-BR, TR-BL and their reverses: the two quadrants share neither a row nor a column."""

NUM_CHANNELS, WINDOW = 17, 96
VERSION = 5
"""Version of the tasks; raise it when a change of these rules affects scores."""
TRIALS = {"smoke": 4, "quick": 24, "standard": 240, "paper": 100}
"""Number of trials per group and split, spread over the split's cells.  The paper's 100 follows from table 2: each of its numbers
fits three integer percentages.  With 48 a group, 70 % of the variance that a method's seeds left was chance."""
STILL = 16
"""Control steps for which the cube lies still in all of 866 recorded segments; a second plan is given its place there."""
FIRST_WEIGHT, SECOND_WEIGHT = 2.0, 1.0
"""Guidance weights of first and of second plans, chosen on seen moves."""
NUM_EPISODES = {"smoke": 4, "quick": 200, "standard": 400, "paper": 1000}
OWNERS: dict[tuple[int, int], tuple[int, ...]] = {
    **dict.fromkeys([(0, 1), (1, 0), (1, 3), (3, 1), (1, 1)], (0,)),
    **dict.fromkeys([(0, 2), (2, 0), (2, 3), (3, 2), (2, 2)], (1,)),
    **dict.fromkeys([(0, 0), (3, 3)], (0, 1)),
}
"""The silos of each pair in the non-iid split.  Moves between quadrants follow figure 8.  Moves within a quadrant go to the silo
that plays there, and those in TL and BR alternate between both silos.  The figure omits moves within a quadrant, but the text
says that 3/4 of the pairs are seen."""

Split = Literal["iid", "noniid", "diagonal"]


class Settings(MethodSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    stride: Literal[1, 2, 4, 8] = Field(4, description="control steps of 50 ms between frames of a plan; 4 makes 24 frames")
    episodes: int = Field(0, ge=0, le=10_000, description="episodes of play; 0: 200 (quick), 400 (standard), 1000 (paper)")
    data_seed: int = Field(0, ge=0, le=2**31, description="seed of the generated play and of the silos; not the run's seed")
    tolerance: float = Field(0.01, gt=0, le=0.1, description="metres by which a feasible plan's cube may be off the floor")


def still_frames(stride: int) -> int:
    """Number of first frames of a second plan in which the cube's place is given."""
    return max(1, STILL // stride)
