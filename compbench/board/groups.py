"""What the seeds of a board's row have in common, and how a row says what sets it apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from compbench.schemas import Record

LONGEST, LONGEST_VARIANT = 120, 600
"""Characters of a setting in a row's variant, and of all of them."""


class Group(NamedTuple):
    """What the seeds of one row have in common; `knobs` is JSON of all settings, budget and task settings.

    `distribution` is what the method came with: another's method of the same name is another row.
    """

    method: str
    distribution: str
    method_version: int
    knobs: str
    changed: tuple[str, ...]
    device: str
    precision: str


def group_of(record: Record) -> Group:
    """The row that a record belongs to, within its section."""
    spec = record.spec
    knobs = _knobs(spec.model_dump_json(include={"settings", "budget", "task_settings"}))
    changed = tuple(sorted(f"budget.{name}" for name in spec.budget_changed))
    return Group(spec.method, record.plugin.distribution, spec.method_version, knobs, changed, spec.device_class, spec.precision)


@lru_cache(maxsize=10_000)
def _knobs(parts: str) -> str:
    """One object of settings, budget and task settings, with sorted keys.  Runs that differ in their seed share it."""
    known = json.loads(parts)
    budget = {f"budget.{name}": value for name, value in known["budget"].items()}
    task = {f"task.{name}": value for name, value in known["task_settings"].items()}
    return json.dumps({**known["settings"], **budget, **task}, sort_keys=True)


def variants(groups: Iterable[Group]) -> dict[Group, str]:
    """What a row says beside its method's name: changed budgets always, settings where rows of the method differ."""
    by_method: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_method[group.method].append(group)
    said = {}
    for siblings in by_method.values():
        knobs = {group: json.loads(group.knobs) for group in siblings}
        names = {name for known in knobs.values() for name in known}
        differing = set()
        if len(siblings) > 1:
            differing = {name for name in names if len({_written(known.get(name)) for known in knobs.values()}) > 1}
        for group, known in knobs.items():
            shown = sorted((differing | set(group.changed)) & known.keys())
            parts = [f"v{group.method_version}"] if len({g.method_version for g in siblings}) > 1 else []
            parts += [_short(f"{name}={_written(known[name])}") for name in shown]
            parts += [f"from {_short(group.distribution)}"] if len({g.distribution for g in siblings}) > 1 else []
            parts += [group.precision] if len({g.precision for g in siblings}) > 1 else []
            said[group] = _short(", ".join(parts), LONGEST_VARIANT)
    return said


def _short(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
