"""Find records that were made by older code than the newest ones next to them; the board shows and marks them."""

from __future__ import annotations

from collections.abc import Iterable

from compbench.api.schemas import Record
from compbench.registry.equal_code import equal_code

OF_THE_TASK = ("task", "data", "metrics")
"""Parts of the code that all methods on a task share; the others are compared within a method."""

UNKNOWN = "unknown"
"""This value stands for the parts of a record that names none, because it is older than that field."""


def older_code(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    """Record name -> parts of its code that mean something else in the newest record of its task or method.

    Only records are asked, not what is installed, so that the same records give the same board everywhere.
    """
    known, name = list(records), equal_code().name
    newest: dict[tuple[str, ...], str] = {}
    for record in sorted((record for record in known if record.has_meaning), key=lambda one: (one.started, one.name)):
        newest |= {_place(record, part): name(digest) for part, digest in record.code.parts.items()}
    found = {}
    for record in known:
        parts = record.code.parts.items()
        differing = tuple(sorted(part for part, digest in parts if newest[_place(record, part)] != name(digest)))
        if differing or not parts:
            found[record.name] = differing or (UNKNOWN,)
    return found


def _place(record: Record, part: str) -> tuple[str, ...]:
    """Within what a part must be the same: which parts of ours a method uses may depend on the task (`core`), and what only
    GPUs run is no part of a CPU's record."""
    own = () if part in OF_THE_TASK else (record.spec.method, record.plugin.distribution)
    return part, record.spec.task, "cpu" if record.spec.device_class == "cpu" else "gpu", *own
