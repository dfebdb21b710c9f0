"""The four modes of the blobs: their factor grid, their positions, and their settings."""

from __future__ import annotations

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import MethodSettings

SPACE = FactorSpace([Factor("left-right", 2, ("left", "right")), Factor("top-bottom", 2, ("top", "bottom"))])
MISSING = (1, 0)
HOLDOUT = Holdout(SPACE, (0, 1), (MISSING,))


class Settings(MethodSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    side: float = Field(1.0, gt=0, le=100, description="distance of the modes' centres from both axes (not in the paper)")
    std: float = Field(0.3, gt=0, le=100, description="standard deviation of a mode on each axis (not in the paper)")
    points: int = Field(2000, ge=1, le=10_000_000, description="training points of each mode in each silo that has it")


def centre(cell: tuple[int, ...], settings: Settings) -> tuple[float, float]:
    """The centre of a mode: right is at +side on the first axis, top at +side on the second."""
    return settings.side * (2 * cell[0] - 1), settings.side * (1 - 2 * cell[1])
