"""Sealed holdouts: a hash of a method's code draws the combinations that it never sees, so it cannot be tuned to them.

    split seed = SHA-256(method's code, its settings, task, task's version, coverage)  mod 2^31

A method can be tuned to a public holdout, knowingly or not.  With a sealed holdout, every change of what a method computes or of
one of its settings draws another pattern; comments and docstrings change nothing, because they are not hashed.  The pattern is a
random design with as many seen combinations as the task's own holdout, and it shows each value (`compbench.tasks.coverage`).  A
record names its pattern by its settings, and anyone can recompute the seed from the record; `compbench verify` refuses a
different one.

Sealing does not stop an author from trying many versions and showing the best.  Each version leaves a record with its own
identity, so attempts are counted only where all records are kept.
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
"""These task settings define a pattern of seen combinations."""


def split_seed(spec: RunSpec, method_code: str, coverage: float) -> int:
    """The seed of a sealed pattern, below 2^31.

    Args:
        spec: the run's spec; its own pattern is ignored.
        method_code: hash of the method's code (`Record.code.parts["method"]`).
        coverage: share of seen combinations.
    """
    facts = [method_code, spec.method, spec.settings, spec.task, spec.task_version, round(coverage, 6)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


def pattern(task: Task, spec: RunSpec, method_code: str) -> dict[str, Json]:
    """The overrides that seal a task for a method, with as many seen combinations as the task's own holdout.

    Raises:
        CompbenchError: the task's pattern cannot be chosen, or the task holds nothing out.
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
    """Raise CompbenchError if a record claims to be sealed and its pattern does not follow from its code and settings."""
    if not record.sealed:
        return
    known: Mapping[str, Json] = record.spec.task_settings
    coverage, seed = known.get("coverage"), known.get("split_seed")
    if known.get("design") != "random" or not isinstance(coverage, int | float) or "method" not in record.code.parts:
        raise CompbenchError("says that it is sealed, and its task's settings are not those of a sealed pattern")
    wanted = split_seed(record.spec, record.code.parts["method"], coverage)
    if seed != wanted:
        raise CompbenchError(f"says that it is sealed with the pattern of seed {seed}; its code and settings give {wanted}")
