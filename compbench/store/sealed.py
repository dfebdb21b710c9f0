"""Sealed holdouts: which combinations a method never sees is drawn from the hash of its own code, so they cannot be tuned to.

    split seed = SHA-256(method's code, its settings, task, task's version, coverage)  mod 2^31

A public holdout can be tuned to, knowingly or not.  Here whoever changes what a method computes, or one of its settings, gets
another pattern; a comment or a docstring changes nothing, since the hash is of meaning.  The pattern is a random design with as
many seen combinations as the task's own holdout, and shows each value (`compbench.tasks.coverage`).  A record names its pattern
by its settings, and anyone recomputes the seed from the record itself; `compbench verify` refuses another one.

It does not stop an author from trying many versions and showing the best; each version leaves a record of its own identity, so
attempts are counted only where they are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from compbench.api.interfaces import Task
from compbench.api.schemas import Record, RunSpec
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

PATTERN = ("coverage", "design", "split_seed")
"""A pattern of seen combinations is made of these task settings."""


def split_seed(spec: RunSpec, method_code: str, coverage: float) -> int:
    """The seed of a sealed pattern, below 2^31.

    Args:
        spec: of the run, whose own pattern does not matter.
        method_code: hash of what the method's code means (`Record.code.parts["method"]`).
        coverage: share of the combinations that is seen.
    """
    facts = [method_code, spec.method, spec.settings, spec.task, spec.task_version, round(coverage, 6)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


def pattern(task: Task, spec: RunSpec, method_code: str) -> dict[str, Json]:
    """The overrides that seal a task for a method: as many seen combinations as its own holdout leaves.

    Raises:
        CompbenchError: the task's pattern cannot be chosen, or it holds nothing out.
    """
    names = type(task.settings).model_fields
    if missing := [name for name in PATTERN if name not in names]:
        raise CompbenchError(
            f"--sealed: the combinations that '{task.name}' holds out cannot be chosen (it has no setting '{missing[0]}'); "
            "tasks with task.coverage can be sealed."
        )
    if not task.holdout.cells:
        raise CompbenchError(f"--sealed: '{task.name}' holds nothing out, so there is no pattern to seal.")
    coverage = len(task.holdout.seen_cells) / task.holdout.pattern_space.num_combinations
    seed = split_seed(spec, method_code, coverage)
    return {"task.coverage": coverage, "task.design": "random", "task.split_seed": seed}


def check(record: Record) -> None:
    """Raise CompbenchError if a record says that it is sealed and its pattern is not the one of its own code and settings."""
    if not record.sealed:
        return
    known: Mapping[str, Json] = record.spec.task_settings
    coverage, seed = known.get("coverage"), known.get("split_seed")
    if known.get("design") != "random" or not isinstance(coverage, int | float) or "method" not in record.code.parts:
        raise CompbenchError("says that it is sealed, and its task's settings are not those of a sealed pattern")
    wanted = split_seed(record.spec, record.code.parts["method"], coverage)
    if seed != wanted:
        raise CompbenchError(f"says that it is sealed with the pattern of seed {seed}; its code and settings give {wanted}")
