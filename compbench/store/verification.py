"""Verification levels of records, kept in files next to the records, which themselves never change.

    leaderboards/records/NAME.json                  the record
    leaderboards/levels/NAME.self-reported.json     the submitter declares its training data
    leaderboards/levels/NAME.reproduced.1.json      someone ran the same spec again and found the same scores

A level names the SHA-256 of the record's bytes and applies only to those bytes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from compbench.api.interfaces import Score
from compbench.api.schemas import Environment, Frozen, Record
from compbench.store.records import Problem, read_all
from compbench.store.validate import shipped_metric
from compbench.system.errors import CompbenchError
from compbench.system.files import file_sha256, read_json, write_atomically

RELATIVE = 0.05
"""Tolerance of a level, relative to a score or its noise floor, whichever is larger."""
NUM_ERRORS = 3.0
"""An accuracy may differ by this many standard errors of a share of n samples."""
LEVEL_FORMAT = 1
MAX_LEVEL_BYTES = 2**18
LevelName = Literal["self-reported", "reproduced"]
SAMPLES_ONLY = "samples only"
"""Level of a record of external samples or weights: compbench saw the evaluation, but not the training."""
TrainingData = Literal["undeclared", "seen", "external"]


class ScorePair(Frozen):
    """One score of a record, and the score of the repeated run."""

    name: str = Field(pattern=r"^[a-z0-9_]{1,80}$")
    submitted: float
    found: float
    tolerance: float = Field(ge=0, description="largest difference that counts as the same")

    @property
    def agrees(self) -> bool:
        return abs(self.submitted - self.found) <= self.tolerance


class Level(Frozen):
    """The verification of one record by one party."""

    format: int = Field(LEVEL_FORMAT, ge=1, le=LEVEL_FORMAT)
    record: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,299}$", description="name of the record")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the record's bytes")
    level: LevelName
    training_data: TrainingData = Field("undeclared", description="seen: the task's seen combinations and nothing else")
    note: str = Field("", max_length=300, description="name of the other data, if there are any")
    compared: tuple[ScorePair, ...] = Field((), description="for a reproduction: every score that both runs have")
    differing: tuple[str, ...] = Field((), max_length=20, description="for a reproduction: parts of the code that differed")
    environment: Environment | None = Field(None, description="for a reproduction: the machine that it ran on")
    seconds: float = Field(0.0, ge=0, description="of a reproduction")

    def content(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(self.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


class Verification(NamedTuple):
    """The verification level of one record, from all its level files."""

    level: LevelName = "self-reported"
    training_data: TrainingData = "undeclared"


def tolerated(score: Score, margin: float, relative: float) -> float:
    """The largest difference that counts as the same score.

    max(margin, r |value|, r |floor|), and for a share p of n samples (a score with a ceiling) + 3 sqrt(p (1 - p) / n): on another
    machine the last bits differ, so a sample near the judge's decision boundary may be classified differently.
    """
    value = score.value or 0.0
    allowed = max(margin, relative * abs(value), relative * abs(score.floor or 0.0))
    if score.ceiling is not None and 0 <= value <= 1 and score.n:
        allowed += NUM_ERRORS * math.sqrt(value * (1 - value) / score.n)
    return allowed


def beside(records: Path) -> Path:
    """The folder of levels of a folder of records."""
    return records.resolve().parent / "levels"


def declare(record: Path, folder: Path, *, training_data: TrainingData, note: str = "") -> Path:
    """Write the self-reported level of a record file into `folder`; repeating it changes nothing.  Raises CompbenchError."""
    path, content = declaration(record, folder, training_data=training_data, note=note)
    write_atomically(path, content)
    return path


def declaration(record: Path, folder: Path, *, training_data: TrainingData, note: str = "") -> tuple[Path, bytes]:
    """The path of a declaration, and its bytes.  Raises CompbenchError if another declaration exists."""
    level = Level(record=record.stem, sha256=_hash(record), level="self-reported", training_data=training_data, note=note)
    path, content = folder / f"{record.stem}.self-reported.json", level.content()
    if path.exists() and path.read_bytes() != content:
        raise CompbenchError(f"{path} contains another declaration; declarations are never overwritten.")
    return path, content


def raise_level(
    record: Path,
    folder: Path,
    *,
    compared: Sequence[ScorePair],
    environment: Environment,
    seconds: float,
    differing: Sequence[str] = (),
) -> Path:
    """Write a level `reproduced` of a record file into `folder`, next to any earlier one."""
    facts = {"compared": tuple(compared), "differing": tuple(differing), "environment": environment, "seconds": seconds}
    level = Level(record=record.stem, sha256=_hash(record), level="reproduced", **facts)
    paths = (folder / f"{record.stem}.reproduced.{number}.json" for number in itertools.count(1))
    path = next(path for path in paths if not path.exists())
    write_atomically(path, level.content())
    return path


def read(folder: Path, records: Iterable[Record], store: Path) -> tuple[dict[str, Verification], list[Problem]]:
    """The verification of each record that a level file names, by record name, and the invalid level files."""
    known = {record.name: record for record in records}

    def checked(path: Path) -> Level:
        level = read_json(path, Level, MAX_LEVEL_BYTES, "level")
        _check(level, path, known, store)
        return level

    levels, problems = read_all(folder.glob("[!.]*.json"), checked)
    standings: dict[str, Verification] = {}
    for level in levels:
        before = standings.get(level.record, Verification())
        standings[level.record] = Verification(
            "reproduced" if "reproduced" in (before.level, level.level) else "self-reported",
            level.training_data if level.level == "self-reported" else before.training_data,
        )
    return standings, problems


def _check(level: Level, path: Path, known: Mapping[str, Record], store: Path) -> None:
    """Raise CompbenchError if a level does not belong to a record of the store, or contradicts it or itself."""
    if not path.name.startswith(f"{level.record}.{level.level}."):
        raise CompbenchError(f"has a name that does not match its content: {level.level} of {level.record}.")
    record = known.get(level.record)
    if record is None:
        raise CompbenchError("refers to a record that is not here.")
    if _hash(store / f"{level.record}.json") != level.sha256:
        raise CompbenchError("refers to other bytes than the record's.")
    if level.level != "reproduced":
        return
    scores = {score.name: score for score in record.scores}
    primary = {score.name for score in record.scores if score.primary}
    compared = {entry.name for entry in level.compared}
    if record.status != "ok" or not primary <= compared:
        raise CompbenchError("reproduces no primary score.")
    for entry in level.compared:
        score = scores.get(entry.name)
        if score is None or score.value != entry.submitted or not entry.agrees:
            raise CompbenchError(f"does not reproduce the record's {entry.name}.")
        metric = shipped_metric(score.metric)
        most = math.inf if metric is None else tolerated(score, metric.margin, RELATIVE)
        if entry.tolerance > most * (1 + 1e-9):  # the last bits of a sum may differ
            raise CompbenchError(
                f"allows {entry.name} to differ by {entry.tolerance:.3g}; at most {most:.3g} counts as the same."
            )


def _hash(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise CompbenchError(f"{path} cannot be read: {error.strerror or error}.") from error
