"""Group records: a section holds rows that may be ranked, a row holds runs that may be averaged.

Each group gets a name, and records that older code made are marked.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from compbench.api.schemas import Record, RunSpec
from compbench.board.catalogue import Catalogue, TaskFacts
from compbench.registry.equal_code import equal_code
from compbench.registry.meaning import UNKNOWN
from compbench.store.sealed import PATTERN
from compbench.system.files import Json

READING_ORDER = ("standard", "paper", "quick", "smoke")
"""Order of the presets: the published one comes first, then the others by decreasing importance."""
SEALED = "sealed"
"""A section's `changed` contains this word if each method has a holdout drawn from its own code."""
LONGEST, LONGEST_VARIANT = 120, 600
"""Largest number of characters of one setting in a row's variant, and of all settings together."""
OF_THE_TASK = ("task", "data", "metrics")
"""Parts of the code that all methods on a task share; the others are compared within a method."""


class Section(NamedTuple):
    """The unit within which scores may be ranked: one task under one protocol.

    `changed` names what differs from the task's own settings and its preset's budget, as in ("size=16", "train_steps=1000").
    """

    task: str
    task_version: int
    preset: str
    source: str
    fingerprint: str
    changed: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[object, ...]:
        """Sort key of sections: by task, then `READING_ORDER`, then unchanged tasks first, then the newest version first."""
        changed = bool(self.changed), self.changed
        return self.task, READING_ORDER.index(self.preset), *changed, -self.task_version, self.source, self.fingerprint


class Group(NamedTuple):
    """What the seeds of one row have in common; `knobs` is JSON of all settings, budget and task settings.

    `settings` is JSON of the method's settings alone.  `distribution` is the package that the method came from: a method of the
    same name from another package is another row.  Seeds on several devices share a row, because devices differ only by rounding.
    """

    method: str
    distribution: str
    method_version: int
    settings: str
    knobs: str
    precision: str

    @property
    def without_task(self) -> tuple[object, ...]:
        """What two rows of one method have in common if only budget or task settings differ, as between shots or patterns."""
        return self.method, self.distribution, self.method_version, self.settings, self.precision


def section_of(record: Record, catalogue: Catalogue) -> Section:
    """The section that a record belongs to.  If the task is not installed, all of its settings count as changed."""
    spec = record.spec
    facts = catalogue.get(spec.task)
    changed = () if facts and _are_defaults(spec.task_settings, facts.settings) else _changed_settings(spec, facts)
    if record.sealed:  # each method has its own pattern, and all methods share one board
        changed = (SEALED, *(word for word in changed if word.partition("=")[0] not in PATTERN))
    if spec.budget_changed:
        changed += tuple(f"{name}={_short(_written(getattr(spec.budget, name)))}" for name in sorted(spec.budget_changed))
    return Section(spec.task, spec.task_version, spec.preset, spec.source, spec.fingerprint, changed)


def _are_defaults(settings: Mapping[str, object], defaults: Mapping[str, Json]) -> bool:
    """Whether all settings are plain values that equal their defaults, which needs no JSON."""
    return all(
        type(value) in PLAIN and type(known := defaults.get(name)) is type(value) and known == value and name in defaults
        for name, value in settings.items()
    )


def _changed_settings(spec: RunSpec, facts: TaskFacts | None) -> tuple[str, ...]:
    defaults = facts.settings if facts else {}
    own = json.loads(spec.model_dump_json(include={"task_settings"}))["task_settings"]
    return tuple(
        f"{name}={_short(_written(value))}"
        for name, value in sorted(own.items())
        if name not in defaults or _written(defaults[name]) != _written(value)
    )


def group_of(record: Record) -> Group:
    """The row that a record belongs to, within its section."""
    spec = record.spec
    if record.sealed:  # each seed draws its own pattern
        settings = {name: value for name, value in spec.task_settings.items() if name != "split_seed"}
        spec = spec.model_copy(update={"task_settings": settings})
    settings_text, knobs = _knobs(spec.model_dump_json(include={"settings", "budget", "task_settings"}))
    return Group(spec.method, record.plugin.distribution, spec.method_version, settings_text, knobs, spec.precision)


@lru_cache(maxsize=10_000)
def _knobs(parts: str) -> tuple[str, str]:
    """The settings, and one object of settings, budget and task settings, with sorted keys.  Runs of other seeds share it."""
    known = json.loads(parts)
    budget = {f"budget.{name}": value for name, value in known["budget"].items()}
    task = {f"task.{name}": value for name, value in known["task_settings"].items()}
    whole = {**known["settings"], **budget, **task}
    return json.dumps(known["settings"], sort_keys=True), json.dumps(whole, sort_keys=True)


PLAIN = (str, int, float, bool, type(None))
"""Types of settings whose values can be compared without JSON."""
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
Method = tuple[str, str, int]
"""A method is identified by name, distribution and version."""


Defaults = Mapping[tuple[str, str], tuple[int, Mapping[str, Json]]]
"""A map from the name and distribution of an installed method to its version and default settings."""


def default_settings(sections: Mapping[Section, Mapping[Group, Sequence[Record]]], known: Defaults) -> dict[Method, str]:
    """The settings that count as each method's defaults: those of the installed version, else those used on most tasks.

    A method that was never run at its defaults is left out.  A record of another version may say that no setting was given; its
    settings are then that version's defaults.  Older records do not say so: if all runs of that version agree on a setting's
    value, that value is taken as its default.  Records without training (`samples_only`) do not count: `score --weights` adds
    the hash of the weights to their settings.
    """
    found: dict[Method, dict[str, set[Section]]] = defaultdict(lambda: defaultdict(set))
    plain: dict[Method, set[str]] = defaultdict(set)
    for section, groups in sections.items():
        for group, records in groups.items():
            if all(record.samples_only for record in records):
                continue
            method = group.method, group.distribution, group.method_version
            found[method][group.settings].add(section)
            if any(record.given is not None and not {*record.given} & record.spec.settings.keys() for record in records):
                plain[method].add(group.settings)

    def place(item: tuple[str, set[Section]]) -> tuple[object, ...]:
        settings, own = item
        return -len({section.task for section in own}), -len(own), settings

    chosen = {}
    for method, runs in found.items():
        version, default = known.get(method[:2], (0, {}))
        if version != method[2]:
            default = _still_known(default, [json.loads(settings) for settings in runs])
        own = {settings: where for settings, where in runs.items() if _agrees(json.loads(settings), default)}
        if version != method[2] and plain[method]:
            own = {settings: runs[settings] for settings in plain[method]}
        if own:
            chosen[method] = min(own.items(), key=place)[0]
    return chosen


def _still_known(default: Mapping[str, Json], runs: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The defaults, without each setting that has the same value in all runs of another version."""
    return {name: value for name, value in default.items() if len({_written(own.get(name)) for own in runs}) > 1}


def _agrees(settings: Mapping[str, Json], default: Mapping[str, Json]) -> bool:
    """Whether no setting is known to differ from its default; older records lack settings that were added later."""
    return all(name not in settings or settings[name] == json.loads(json.dumps(value)) for name, value in default.items())


def variants(groups: Iterable[Group]) -> dict[Group, str]:
    """The text next to a row's method name: version, settings and origin where rows of the method differ."""
    by_method: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_method[group.method].append(group)
    said = {}
    for siblings in by_method.values():
        knobs = {group: json.loads(group.settings) for group in siblings}
        names = {name for known in knobs.values() for name in known}
        differing = {name for name in names if len({_written(known.get(name)) for known in knobs.values()}) > 1}
        for group, known in knobs.items():
            parts = [f"v{group.method_version}"] if len({g.method_version for g in siblings}) > 1 else []
            parts += [_short(f"{name}={_written(known[name])}") for name in sorted(differing & known.keys())]
            parts += [f"from {_short(group.distribution)}"] if len({g.distribution for g in siblings}) > 1 else []
            parts += [group.precision] if len({g.precision for g in siblings}) > 1 else []
            said[group] = _short(", ".join(parts), LONGEST_VARIANT)
    return said


def changed(settings: str, defaults: str) -> str:
    """Settings of a row that differ from the method's defaults; both are JSON."""
    known = json.loads(defaults)
    own = [(name, value) for name, value in sorted(json.loads(settings).items()) if value != known.get(name)]
    return _short(", ".join(_short(f"{name}={_written(value)}") for name, value in own), LONGEST_VARIANT)


def _short(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _written(value: object) -> str:
    return value if isinstance(value, str) else ENCODER.encode(value)


def older_code(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    """Record name -> parts of its code that differ from the newest record of its task or method; ("unknown",) without any parts.

    The board compares records with records, not with what is installed, so that the same records give the same board everywhere.
    """
    known, name = list(records), equal_code().name
    parts = [{_place(record, part): name(digest) for part, digest in record.code.parts.items()} for record in known]
    newest: dict[tuple[str, ...], str] = {}
    for _, own in sorted(zip(known, parts, strict=True), key=lambda pair: (pair[0].started, pair[0].name)):
        newest |= own
    found = {}
    for record, own in zip(known, parts, strict=True):
        differing = tuple(sorted(place[0] for place, digest in own.items() if newest[place] != digest))
        if differing or not own:
            found[record.name] = differing or (UNKNOWN,)
    return found


def _place(record: Record, part: str) -> tuple[str, ...]:
    """The group of records in which a part must be the same.

    A method may use other parts of compbench on another task (`core`), and a CPU's record does not include GPU-only code.
    """
    own = () if part in OF_THE_TASK else (record.spec.method, record.plugin.distribution)
    return part, record.spec.task, "cpu" if record.spec.device_class == "cpu" else "gpu", *own
