"""Stored baselines: exact facts and scores of a suite's cases, from any machine.  No speeds: they depend on the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from compbench.gate.rows import HASH
from compbench.gate.sides import Facts, ScoreBySeed, Scores
from compbench.system.errors import CompbenchError, first_of
from compbench.system.files import Json, write_atomically

MOST = 10**18
"""Largest cost that a baseline may hold."""


class StoredCell(BaseModel):
    """One case's exact facts and scores in a stored baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    machine: str = Field("", description="torch version and CPU that produced the bytes and the hash")
    facts: dict[str, int | float | str | None] = Field(default_factory=dict)
    task_version: int = Field(0, ge=0)
    source: str = Field("", description="source of the scores' data; empty in an older baseline")
    fingerprint: str = Field("", description="fingerprint of the scores' data")
    scores: dict[str, ScoreBySeed] = Field(default_factory=dict)

    @field_validator("facts")
    @classmethod
    def _hash_is_text_and_costs_are_numbers(
        cls, facts: dict[str, int | float | str | None]
    ) -> dict[str, int | float | str | None]:
        for name, value in facts.items():
            if name == HASH:
                if not isinstance(value, str):
                    raise ValueError(f"'{name}' must be text, got {value!r}")
            elif value is not None and (isinstance(value, str) or not 0 <= value <= MOST):
                raise ValueError(f"'{name}' must be a number from 0 to {MOST:.0e}, got {value!r:.40}")
        return facts


class Baseline(BaseModel):
    """The stored results of a suite's cases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    cells: dict[str, StoredCell]

    def facts(self, cell: str) -> Facts | None:
        stored = self.cells.get(cell)
        return Facts(stored.facts, stored.machine) if stored and stored.facts else None

    def scores(self, cell: str) -> Scores | None:
        stored = self.cells.get(cell)
        if not stored or not stored.scores:
            return None
        return Scores(stored.scores, stored.task_version, stored.source, stored.fingerprint)


def read(path: Path) -> Baseline:
    """Read a stored baseline.  Raises CompbenchError if the file does not exist or is invalid."""
    try:
        return Baseline.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CompbenchError(f"--baseline {path}: {error.strerror or error}; --write-baseline makes one.") from error
    except ValidationError as error:
        raise CompbenchError(f"--baseline {path}: {first_of(error)}; --write-baseline makes another.") from error
    except (ValueError, RecursionError) as error:
        raise CompbenchError(f"--baseline {path} is not JSON: {str(error)[:120]}.") from error


def write(path: Path, facts: Mapping[str, Facts], scores: Mapping[str, Scores]) -> None:
    """Write measurements in sorted order, so that the diff of a renewed baseline shows what changed."""
    cells: dict[str, dict[str, Json]] = {}
    for name in sorted(facts.keys() | scores.keys()):
        own = cells.setdefault(name, {})
        if name in facts:
            own |= {"machine": facts[name].machine, "facts": facts[name].values}
        if name in scores:
            own |= scores[name]._asdict()
    baseline = Baseline.model_validate({"cells": cells})
    content = json.dumps(baseline.model_dump(mode="json"), sort_keys=True, indent=1, allow_nan=False) + "\n"
    write_atomically(path, content.encode())
