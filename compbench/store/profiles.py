"""Costs of methods, measured by `compbench profile` apart from runs, in small files that are never overwritten.

    profiles/TASK.METHOD.PRESET.DEVICE.HASH.json

HASH is the first 12 hex digits of the content's SHA-256, so an edited file has a wrong name and is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import Field, model_validator

from compbench.api.interfaces import LARGEST
from compbench.api.schemas import Frozen, Line, Record, RunSpec
from compbench.store.records import Problem, read_all
from compbench.system.devices import SPARE_CORES
from compbench.system.errors import CompbenchError
from compbench.system.files import Json, read_json, read_limited, write_atomically

MAX_PROFILE_BYTES = 256 * 2**10
FEWEST = 5
"""Smallest number of repetitions, each in a fresh process, that counts as a measurement."""
ELSEWHERE = {"seed", "code", "metrics", "budget_changed", "device_class", "precision", "fingerprint"}
"""Fields of a spec that are ignored when a cost is looked up; the board says if the code differs."""
OF_TASK = {"task", "task_version", "task_settings", "source"}
"""Fields that are also ignored when a cost on another task of the same kind is looked up."""
OF_METHOD = {"method_version", "settings", "task_version"}
"""Fields that are also ignored when the cost of another version of a method is looked up, at default settings."""
STEP_BUDGET = ("batch_size", "width", "patch", "prediction", "sample_steps", "gradient_clip", "ema_decay")
"""Budget entries on which the duration of a step or a request depends."""


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


class Requests(Frozen):
    """Seconds that answers to requests of one size took, in several processes."""

    medians: Measure = Field(description="of each process")
    p95: float = Field(ge=0, le=LARGEST, description="95th percentile (nearest rank) of all requests of all processes")
    count: int = Field(ge=FEWEST, le=10**6, description="number of these requests")

    @classmethod
    def of(cls, processes: Sequence[Sequence[float]]) -> Requests:
        every = sorted(value for times in processes for value in times)
        p95 = every[math.ceil(0.95 * len(every)) - 1]
        return cls(medians=Measure.of(map(statistics.median, processes)), p95=p95, count=len(every))


class CostProfile(Frozen):
    """What one method costs on one task, on one machine; `spec` is that of a run with seed 0 and without metrics."""

    format: Literal[2] = 2
    spec: RunSpec
    train_step_seconds: Measure | None = Field(description="seconds of one training step; null if a fit reports no steps")
    request: Requests = Field(description="requests of `request_rows` samples")
    request_rows: int = Field(ge=1, le=10**6, description="number of samples in a batch")
    single: Requests = Field(description="requests of one sample")
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
        """Whether at least as many cores as threads were free in every repetition; False if that is not known."""
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
        return self.request_rows / self.request.medians.median if self.request.medians.median else None

    def content(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n").encode()

    @property
    def name(self) -> str:
        return self.name_of(self.content())

    def name_of(self, content: bytes) -> str:
        """The name of the file that holds these bytes of the profile."""
        device = re.sub(r"[^A-Za-z0-9]+", "-", self.spec.device_class).strip("-")
        digest = hashlib.sha256(content).hexdigest()[:12]
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
        CompbenchError: the file is not a profile, or it was changed, so that its name does not match.
    """
    profile = read_json(path, CostProfile, MAX_PROFILE_BYTES, "profile")
    if path.name == profile.name_of(read_limited(path, MAX_PROFILE_BYTES)):
        return profile  # fast path: serialising it again for its name takes ten times as long as reading it twice
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


class Cost(NamedTuple):
    """A measurement that holds for a record.

    Attributes:
        profile: the measurement.
        of_task: the task that was measured, if it is not the record's; else "".
        of_version: the version of the method that was measured, if it is not the record's; else 0.
    """

    profile: CostProfile
    of_task: str
    of_version: int


class Costs:
    """The measurements of one machine, and the choice of the one that applies to a record.

    Costs belong to the machine, so a run from another machine gets the cost of its method on this one.  A method that was not
    measured on the run's task gets its cost on a task of the same kind, with the same settings, widths and batches.

    Args:
        profiles: measurements of any machines.
        kinds: the kind of each task; a task without a kind shares no measurement.
        hardware: part of the machine's name; "" means the machine with most measurements.

    Raises:
        CompbenchError: no measured machine, or more than one, has such a name.
    """

    def __init__(self, profiles: Iterable[CostProfile] = (), kinds: Mapping[str, str] = MappingProxyType({}), hardware: str = ""):
        every = list(profiles)
        self._kinds = kinds
        self._hardware = _chosen(every, hardware)
        self._found: dict[str, list[CostProfile]] = defaultdict(list)
        self._measured: set[tuple[str, str]] = set()
        for profile in every:
            if profile.hardware == self._hardware:
                self._measured.add((profile.spec.method, profile.spec.preset))
                for key in self._keys(profile.spec, default=True):
                    self._found[key].append(profile)
        for several in (own for own in self._found.values() if len(own) > 1):
            several.sort(key=lambda each: (each.alone, each.started, each.name), reverse=True)

    def of(self, record: Record, *, default: bool = False) -> Cost | None:
        """What the record's method costs; None if no measurement applies to it.

        Among several measurements, one with the record's precision is preferred, then one that was alone on its machine, then
        the latest.  `profile.spec.code` may differ from the record's code.

        Args:
            record: a record from any device.
            default: the method ran at its version's default settings, so a measurement of another version may be used.
        """
        spec = record.spec
        if (spec.method, spec.preset) not in self._measured:
            return None  # most records of other presets end here, before their keys are computed
        found = next((known for key in self._keys(spec, default=default) if (known := self._found.get(key))), None)
        if found is None:
            return None
        best = max(found, key=lambda each: each.spec.precision == spec.precision)  # the first of these
        measured = best.spec
        return Cost(
            best,
            "" if measured.task == spec.task else measured.task,
            0 if measured.method_version == spec.method_version else measured.method_version,
        )

    def _keys(self, spec: RunSpec, *, default: bool) -> Iterator[str]:
        """The keys under which a measurement is stored and looked up, the closest match first."""
        kind, facts = self._kinds.get(spec.task), spec.model_dump(mode="json")
        facts["budget"] = {name: facts["budget"][name] for name in STEP_BUDGET}
        for ignored in (ELSEWHERE, ELSEWHERE | OF_METHOD) if default else (ELSEWHERE,):
            yield _key(facts, ignored, "")
            if kind:
                yield _key(facts, ignored | OF_TASK, kind)


def _chosen(profiles: Sequence[CostProfile], hardware: str) -> str:
    counts = Counter(profile.hardware for profile in profiles)
    if not hardware:
        return min(counts, key=lambda name: (-counts[name], name), default="")
    found = [name for name in sorted(counts) if hardware.casefold() in name.casefold()]
    if len(found) != 1:
        there = "; ".join(found or sorted(counts)) or "none"
        what = f"{len(found)} measured machines" if found else "no measured machine"
        raise CompbenchError(f"--hardware '{hardware}' names {what}; there are: {there}.")
    return found[0]


def _key(facts: Mapping[str, Json], ignored: Set[str], kind: str) -> str:
    """The key of a spec's facts without the ignored fields; its budget has only what a step or a request depends on."""
    kept = {name: value for name, value in facts.items() if name not in ignored}
    return json.dumps([kind, kept], sort_keys=True, separators=(",", ":"))
