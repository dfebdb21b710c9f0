"""Sealed holdouts: a hash of a method's code draws the combinations that it never sees, so it cannot be tuned to them.

    split seed = SHA-256(method's code, its settings, task, task's version, the run's seed)  mod 2^31

A method can be tuned to a public holdout, knowingly or not.  With a sealed holdout, every change of what a method computes or of
one of its settings draws another pattern; comments and docstrings change nothing, because they are not hashed.  The pattern is
the task's own with the values of each factor renamed, so coverage, C_min and connectedness stay the same, and so do the
neighbours of factors whose order the task gives (`compbench.tasks.coverage`).
A record names its pattern by its settings, and anyone can recompute the seed from the record; `compbench verify` refuses a
record whose seed differs.

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


def split_seed(spec: RunSpec, method_code: str) -> int:
    """The seed of a sealed pattern, below 2^31.

    Args:
        spec: the run's spec; its own pattern is ignored.
        method_code: hash of the method's code (`Record.code.parts["method"]`).
    """
    facts = [method_code, spec.method, spec.settings, spec.task, spec.task_version, spec.seed]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**31


def pattern(task: Task, spec: RunSpec, method_code: str) -> dict[str, Json]:
    """The overrides that seal a task for a method: its own pattern, permuted by the seed.

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
    return {"task.design": "permuted", "task.split_seed": split_seed(spec, method_code)}


def check(record: Record) -> None:
    """Raise CompbenchError if a record claims to be sealed and its pattern does not follow from its code and settings."""
    if not record.sealed:
        return
    known: Mapping[str, Json] = record.spec.task_settings
    if known.get("design") != "permuted" or known.get("coverage") or "method" not in record.code.parts:
        raise CompbenchError("says that it is sealed, and its task's settings are not those of a sealed pattern")
    seed, wanted = known.get("split_seed"), split_seed(record.spec, record.code.parts["method"])
    if seed != wanted:
        raise CompbenchError(f"says that it is sealed with the pattern of seed {seed}; its code and settings give {wanted}")
