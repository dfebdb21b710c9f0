"""Costs of methods, which `compbench profile` measures apart from runs: small files that are never overwritten, and their reader.

    profiles/TASK.METHOD.PRESET.DEVICE.HASH.json

HASH is the first 12 hex digits of the content's SHA-256, so an edited file has a wrong name and is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from compbench.api.interfaces import LARGEST
from compbench.api.schemas import Frozen, Line, Record, RunSpec
from compbench.store.records import Problem, read_all
from compbench.system.devices import SPARE_CORES
from compbench.system.errors import CompbenchError
from compbench.system.files import read_json, write_atomically

MAX_PROFILE_BYTES = 256 * 2**10
FEWEST = 5
"""Smallest number of repetitions, each in a fresh process, that counts as a measurement."""
NOT_COSTS = {"seed", "code", "metrics", "budget_changed"}
"""Fields of a spec that are ignored when a cost is looked up.  The board also says whether the code is the same."""


class Measure(Frozen):
    """Repetitions of one figure, with their median and their spread (smallest and largest)."""

    values: tuple[float, ...] = Field(min_length=FEWEST, max_length=1000, description="one value per fresh process, in order")
    median: float = Field(ge=0, le=LARGEST)
    low: float = Field(ge=0, le=LARGEST)
    high: float = Field(ge=0, le=LARGEST)

    @classmethod
    def of(cls, values: Iterable[float]) -> Measure:
        kept = tuple(values)
        return cls(values=kept, median=statistics.median(kept), low=min(kept), high=max(kept))

    @model_validator(mode="after")
    def _agrees(self) -> Measure:
        if (self.median, self.low, self.high) != (statistics.median(self.values), min(self.values), max(self.values)):
            raise ValueError("median and spread do not match the values")
        return self


class CostProfile(Frozen):
    """What one method costs on one task, on one machine: `spec` is a run's, of seed 0 and without metrics."""

    format: Literal[1] = 1
    spec: RunSpec
    train_step_seconds: Measure | None = Field(description="seconds of one training step; null if a fit takes no time")
    request_seconds: Measure = Field(description="seconds to answer one request")
    request_rows: int = Field(ge=1, le=10**6, description="number of samples in one request")
    peak_memory_bytes: Measure = Field(description="peak device memory; on a CPU, the resident set of the whole process")
    other_cores: Measure | None = Field(description="number of cores that other processes kept busy; null if unknown")
    cores: int = Field(ge=1, le=10**6)
    threads: int = Field(ge=1, le=10**6)
    cpu: Line
    torch: Line
    compbench: Line
    commit: str = Field("", max_length=80, description="hash of the measured code; empty if unknown")
    started: str = Field(max_length=40, description="UTC, ISO 8601")

    @property
    def alone(self) -> bool:
        """Whether the process had as many cores as it has threads in every repetition, as far as is known."""
        if self.other_cores is None:
            return False
        return self.spec.device_class != "cpu" or self.threads + self.other_cores.high <= self.cores + SPARE_CORES

    @property
    def hardware(self) -> str:
        """The hardware on which costs may be compared: a GPU's name, or a CPU model with its number of threads."""
        if self.spec.device_class != "cpu":
            return self.spec.device_class
        return f"{self.cpu or 'cpu'}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    @property
    def train_steps_per_second(self) -> float | None:
        return 1 / self.train_step_seconds.median if self.train_step_seconds and self.train_step_seconds.median else None

    @property
    def samples_per_second(self) -> float | None:
        return self.request_rows / self.request_seconds.median if self.request_seconds.median else None

    @property
    def latency_ms(self) -> float:
        return 1000 * self.request_seconds.median

    def content(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n").encode()

    @property
    def name(self) -> str:
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.spec.device_class).strip("-")
        digest = hashlib.sha256(self.content()).hexdigest()[:12]
        return f"{self.spec.task}.{self.spec.method}.{self.spec.preset}.{device}.{digest}.json"


def write_profile(folder: Path, profile: CostProfile) -> Path:
    """Write a profile whole; returns its path.  Raises Unwritable."""
    path = folder / profile.name
    if not path.exists():
        write_atomically(path, profile.content())
    return path


def read_profile(path: Path) -> CostProfile:
    """A profile from its file.

    Raises:
        CompbenchError: it is not a profile, or it was changed: its name does not match.
    """
    profile = read_json(path, CostProfile, MAX_PROFILE_BYTES, "profile")
    try:
        name = profile.name
    except (ValueError, RecursionError) as error:  # NaN, or nesting without end, in settings
        raise CompbenchError(f"is not a valid profile: {str(error)[:120]}.") from error
    if path.name != name:
        raise CompbenchError(f"was changed or renamed: its content belongs under the name {name}; measure again.")
    return profile


def read_profiles(folder: Path) -> tuple[list[CostProfile], list[Problem]]:
    """All profiles of a folder, sorted by name, and the files that are not profiles; a missing folder has no profiles."""
    return read_all(folder.glob("*.json"), read_profile)


def cost_key(spec: RunSpec) -> str:
    """The key of a cost: the spec without seed, code and metrics."""
    return json.dumps(spec.model_dump(mode="json", exclude=NOT_COSTS), sort_keys=True, separators=(",", ":"))


def by_cost_key(profiles: Iterable[CostProfile]) -> dict[str, CostProfile]:
    """The profile that counts for each key: one measured alone on its machine is preferred, then the latest."""
    ordered = sorted(profiles, key=lambda profile: (profile.alone, profile.started, profile.name))
    return {cost_key(profile.spec): profile for profile in ordered}


def profile_of_record(record: Record, profiles: Mapping[str, CostProfile]) -> CostProfile | None:
    """What a record's method costs, if it was measured with the same settings, budget, data and device; else None.

    Args:
        profiles: from `by_cost_key`.  `profile.spec.code != record.spec.code` means that other code was measured.
    """
    return profiles.get(cost_key(record.spec))
