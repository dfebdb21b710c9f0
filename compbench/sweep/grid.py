"""Sweep files: grids that belong together, by preset, so that one command makes one table of a paper.

    title = "Table 1 of ..."

    [[paper]]
    methods = "fkc"
    tasks = "gauss2d-*"
    seeds = "0-29"
    chain = true
    set = {num_particles = [1, 4, 16], "task.train_points" = [100, 1000]}

A list under `set` adds a grid axis; a further [[paper]] table adds a grid.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from compbench.api.context import PRESETS, Presets
from compbench.sweep.parse import DEEPEST
from compbench.system import files
from compbench.system.errors import CompbenchError
from compbench.system.files import Json, nesting

SHIPPED = Path(__file__).parent / "shipped"


def _are_settings(values: dict[str, Json]) -> dict[str, Json]:
    for name, value in values.items():
        if value == []:
            raise ValueError(f"{name} = [] has no value; write at least one, or leave the name out")
        try:
            depth = nesting(json.dumps(value).encode())
        except TypeError as error:
            raise ValueError(
                f"{name} has a date or a time, which settings do not accept; write numbers, or text in quotes"
            ) from error
        if depth > DEEPEST:
            raise ValueError(f"{name} is nested more than {DEEPEST} levels deep; no setting is")
    return values


class Grid(BaseModel):
    """One grid of runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: Annotated[str, Field(min_length=1, description="names or patterns, separated by commas")]
    tasks: Annotated[str, Field(min_length=1, description="names or patterns, separated by commas")]
    seeds: str = Field("0", description="0-29 or 0,1,2")
    set: Annotated[dict[str, Json], AfterValidator(_are_settings)] = Field(
        default_factory=dict, description="settings; a list is one grid axis"
    )
    applicable: bool = Field(False, description="leave out pairs that cannot work; `list --matrix` says which")
    precision: Literal["auto", "fp32", "bf16", "tf32"] = Field(
        "auto", description="used on every machine, unless --precision is given"
    )
    gpu: bool = Field(False, description="leave the grid out if there is no GPU: a CPU's budget is too small for the tasks")
    any_device: bool = Field(False, description="leave out runs that exist from another device, because the board ranks both")
    chain: bool = Field(False, description="run all runs of one method in the same processes")

    def overrides(self) -> list[dict[str, Json]]:
        """Each combination of the settings' values."""
        axes = [
            [(name, value) for value in (values if isinstance(values, list) else [values])] for name, values in self.set.items()
        ]
        return [dict(chosen) for chosen in itertools.product(*axes)]


class SweepFile(BaseModel):
    """Grids by preset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = ""
    smoke: tuple[Grid, ...] = ()
    quick: tuple[Grid, ...] = ()
    standard: tuple[Grid, ...] = ()
    paper: tuple[Grid, ...] = ()


def shipped() -> list[str]:
    """Names of the sweep files that come with compbench."""
    return files.shipped(SHIPPED)


def read(name: str) -> SweepFile:
    """A sweep file by path, or one that comes with compbench by name.

    Raises:
        CompbenchError: there is no such file, or it is invalid.
    """
    return files.read_toml(name, SweepFile, folder=SHIPPED, option="--file", kind="shipped sweep file")


def default_preset(name: str) -> Presets:
    """The default preset of a sweep file: `quick`, or the only preset besides `smoke` that it has grids for."""
    file = read(name)
    there = [preset for preset in PRESETS if preset != "smoke" and getattr(file, preset)]
    return there[0] if len(there) == 1 else "quick"


def grids(name: str, preset: str) -> tuple[Grid, ...]:
    """The grids of a sweep file at a preset.  Raises CompbenchError if it has none; the message names the presets that it has."""
    file = read(name)
    found: tuple[Grid, ...] = getattr(file, preset)
    if not found:
        there = [other for other in PRESETS if getattr(file, other)]
        raise CompbenchError(f"sweep file '{name}' has no grid for --preset {preset}; it has {' and '.join(there) or 'none'}.")
    return found
