"""The cases that a gate compares: pairs of method and task, from the command line or from a suite file.

title = "..."
speed_seconds = 0.5
device = "cpu"
source = "embedded"

[[cell]]
method = "fkc"
task = "gauss2d-fact-id"
preset = "smoke"
seeds = "0-4"
scores = ["heldout_sw2"]
gates = ["exact", "scores", "speed"]
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from compbench.api.context import Presets
from compbench.sweep.parse import parse_seeds
from compbench.system import files
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

Gate = Literal["exact", "scores", "speed"]
GATES: tuple[Gate, ...] = ("exact", "scores", "speed")
SHIPPED = Path(__file__).parent / "suites"


class Cell(BaseModel):
    """One method on one task, with its settings, seeds and gates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str = Field(min_length=1, description="name of a method")
    task: str = Field(min_length=1, description="name of a task")
    preset: Presets = Field("smoke", description="smoke, quick, standard or paper")
    seeds: str = Field("0-4", description="seeds of the scores: 0-4 or 0,42")
    set: dict[str, Json] = Field(default_factory=dict, description="settings, budget.* and task.*")
    scores: tuple[str, ...] = Field((), description="scores that are gated; if empty, the score that ranks on the board")
    gates: tuple[Gate, ...] = Field(GATES, description="gates that the case goes through")

    @field_validator("seeds")
    @classmethod
    def _seeds_are_seeds(cls, text: str) -> str:
        try:
            parse_seeds(text)
        except CompbenchError as error:
            raise ValueError(str(error)) from error
        return text

    @property
    def name(self) -> str:
        """method/task, followed by preset and settings if these are not the defaults."""
        more: list[str] = [] if self.preset == "smoke" else [self.preset]
        more += [f"{key}={value}" for key, value in sorted(self.set.items())]
        return " ".join([f"{self.method}/{self.task}", *more])


class Suite(BaseModel):
    """Cells that are compared together: one table, one answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = ""
    speed_seconds: float = Field(
        1.0, gt=0, le=60, description="seconds for which each process times training, and again sampling"
    )
    device: str = Field(
        "cpu", description="device for scores and speed: cpu, cuda or cuda:N; exact facts always come from the CPU"
    )
    source: Literal["auto", "official", "embedded"] = Field("auto", description="data source of all cases")
    cell: tuple[Cell, ...] = Field(min_length=1)

    @field_validator("cell")
    @classmethod
    def _names_differ(cls, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        names = [cell.name for cell in cells]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the case '{twice[0]}' is listed twice")
        return cells


def read(name: str) -> Suite:
    """A suite by path, or one that comes with compbench by name.

    Raises:
        CompbenchError: the file does not exist or is invalid.
    """
    return files.read_toml(name, Suite, folder=SHIPPED, option="--suite", kind="shipped suite")
