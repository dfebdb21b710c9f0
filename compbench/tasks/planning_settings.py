"""The settings of the planning tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compbench.api.interfaces import MethodSettings


class Settings(MethodSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    stride: Literal[1, 2, 4, 8] = Field(4, description="control steps of 50 ms between frames of a plan; 4 makes 24 frames")
    episodes: int = Field(0, ge=0, le=10_000, description="episodes of play; 0: 200 (quick), 400 (standard), 1000 (paper)")
    data_seed: int = Field(0, ge=0, le=2**31, description="seed of the generated play and of the silos; not the run's seed")
    tolerance: float = Field(0.01, gt=0, le=0.1, description="metres by which a feasible plan's cube may be off the floor")
