"""Turn a request into a run: check `--set` values against the schemas of method, task and budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from compbench.api.interfaces import (
    NEEDS,
    Budget,
    EventKind,
    Method,
    MethodSettings,
    Metric,
    Need,
    SamplePair,
    Source,
    Task,
    TaskContext,
    Value,
)
from compbench.api.shots import SETTING, with_shots
from compbench.registry.declared import missing_extra
from compbench.registry.method_source import check_functions, settings_class_of
from compbench.system.errors import CompbenchError, suggest
from compbench.system.files import Json

if TYPE_CHECKING:
    import numpy
    import torch

    from compbench.api.schemas import RunRequest, RunSpec
    from compbench.registry.registry import Entry, Registry

COMPBENCH = "compbench"
"""The distribution whose metrics score every task that names no metrics."""
PLURALS: dict[EventKind, str] = {"vector": "vectors", "image": "images", "trajectory": "trajectories"}
"""What each kind of event is called in messages."""
OF_THE_CODE = frozenset({"code", "method_version", "task_version", "metrics"})
"""Fields of a spec that name the code of the run; they do not belong to the request."""


def task_of(request: RunRequest, registry: Registry) -> Task:
    """The task of a request under its `--set task.NAME=VALUE` settings."""
    return configured(registry.load("tasks", request.task), request.overrides)


def check_extra(entry: Entry, folder: Path, asked: str) -> None:
    """Raise CompbenchError with the install line if a task needs packages that are not installed.

    Args:
        entry: the task's entry.
        folder: folder of official data files.
        asked: the requested data source: "auto", "official" or "embedded".
    """
    if missing := missing_extra(entry, folder, asked):
        raise CompbenchError(f"task '{entry.name}' needs packages that are not installed: pip install '{missing}'")


def configured(task: Task, overrides: Mapping[str, Json]) -> Task:
    """A task under the `task.NAME` settings among some overrides; `task.shots` is a setting of every task.

    Raises:
        CompbenchError: the task has no such setting, or does not accept the value.
    """
    changed = _with_prefix(overrides, "task.")
    shots = 0 if SETTING in type(task.settings).model_fields else changed.pop(SETTING, 0)  # a task may have its own
    if changed:
        if task.configure is None:
            only = f"task '{task.name}' has no settings but task.{SETTING}"
            raise CompbenchError(f"{only}; --set task.{next(iter(changed))} cannot be used.")
        task = task.configure(updated(task.settings, changed, f"task '{task.name}'", "task."))
    return with_shots(task, shots)


def budget_of(request: RunRequest, task: Task) -> Budget:
    """The preset's budget under `--set budget.NAME=VALUE`."""
    changed = _with_prefix(request.overrides, "budget.")
    return updated(task.budgets[request.preset], changed, f"the budget of '{task.name}'", "budget.")


def settings_of(request: RunRequest, method: Method) -> MethodSettings:
    """The method's settings, every one resolved."""
    own = {key: value for key, value in request.overrides.items() if not key.startswith(("budget.", "task."))}
    return updated(method.settings(), own, f"method '{method.name}'", "")


def check_request(request: RunRequest, registry: Registry) -> None:
    """Check a request's settings as far as possible without torch and without a process for the method.

    Names, types and bounds are read from the method's source; other errors are found when the method is loaded.

    Raises:
        CompbenchError: method, task or budget lacks a setting or refuses its value, or the method cannot work.
    """
    entry = registry.entry("methods", request.method)
    check_functions(entry)
    budget_of(request, task_of(request, registry))
    own = {key: value for key, value in request.overrides.items() if not key.startswith(("budget.", "task."))}
    settings = settings_class_of(entry) if own else None
    if settings is not None:
        updated(settings(), own, f"method '{request.method}'", "")


def why_not(method: Method, task: Task) -> str:
    """Why a method cannot work on a task, in one sentence; "" if it can.  No data is opened and nothing is trained."""
    implied: dict[Need, bool] = {"scores": method.oracle, "silos": not (method.pools_silos or method.one_silo)}
    needs = (*method.needs, *(need for need, implies in implied.items() if implies))
    lacking = next((NEEDS[need] for need in needs if task.lacks(need)), "")
    if method.negates and not task.negates:
        lacking = "the task excludes no value, and without a NOT the method is its plain form"
    if task.negates and not method.negates:
        lacking = "the task asks for any value but one, and the method has no such NOT"
    if task.event.kind not in method.kinds:
        made = " and ".join(PLURALS[kind] for kind in method.kinds)
        lacking = f"it makes {made}, and the task asks for {PLURALS[task.event.kind]}"
    return f"method '{method.name}' cannot work on task '{task.name}': {lacking}." if lacking else ""


def metrics_of(task: Task, registry: Registry, more: Sequence[str] = ()) -> dict[str, Metric]:
    """The metrics of a task: those that it names; if it names none, those of compbench and of its package for its kind of event.

    A metric of another package is imported only if the task or the run names it, because its import could change other results.

    Args:
        task, registry: the task, and the registry with the metrics.
        more: additional metrics that the run names.

    Raises:
        CompbenchError: a named metric, or the one of the task's ranking score, is missing, does not load, is for other kinds of
            events, or needs features that the task does not extract.
    """
    owners = {COMPBENCH, *(entry.distribution for entry in registry.entries("tasks") if entry.name == task.name)}
    known = [
        entry
        for entry in registry.entries("metrics")
        if (entry.name in task.metrics if task.metrics is not None else entry.distribution in owners or entry.problem)
    ]
    ranking = [entry.name for entry in known if f"_{entry.name}_" in f"{task.primary}_"]
    named = [*(ranking if task.metrics is None else task.metrics), *more]
    found = {name: registry.load("metrics", name) for name in named}
    for name in set(more) - set(task.metrics or ()):
        if task.event.kind not in (kinds := found[name].kinds):
            what = f"metric '{name}' scores samples of the kind {' and '.join(kinds)}"
            raise CompbenchError(f"{what}, those of task '{task.name}' are of the kind {task.event.kind}.")
    loaded = [attempt.value for attempt in map(registry.attempt, known) if attempt.state == "ok"]
    chosen = [metric for metric in loaded if task.metrics is not None or (task.event.kind in metric.kinds and not metric.by_name)]
    scoring = {metric.name: metric for metric in (*chosen, *(found[name] for name in more))}
    for metric in scoring.values():
        if lacking := [name for name in metric.features if name not in task.extractors]:
            offered = f"it extracts {' and '.join(task.extractors)}" if task.extractors else "it extracts none"
            raise CompbenchError(f"metric '{metric.name}' needs features '{lacking[0]}' of task '{task.name}': {offered}.")
    return scoring


def with_its_features(metric: Metric) -> Metric:
    """The metric with access to the features that it declares; a request for others is refused."""
    plain = metric.compute
    if plain is None:
        return metric

    def compute(pair: SamplePair, generator: numpy.random.Generator) -> Value:
        def features(extractor: str, which: str) -> numpy.ndarray:
            if extractor not in metric.features:
                known = ", ".join(map(repr, (*metric.features, extractor)))
                asks = f"metric '{metric.name}' asks for features '{extractor}', which it does not declare"
                raise CompbenchError(f"{asks}: Metric(..., features=({known},)).")
            return pair.features(extractor, which)

        return plain(pair._replace(features=features), generator)

    return replace(metric, compute=compute)


def task_context(
    request: RunRequest,
    source: Source,
    device: torch.device,
    *,
    precision: str,
    cache: Path,
    metrics: dict[str, Metric] | None = None,
) -> TaskContext:
    """What the harness gives a task; only the referee, which scores, gets `metrics`."""
    return TaskContext(
        device=device,
        precision="bf16" if precision == "bf16" else "fp32",
        seed=request.seed,
        cache=cache,
        data=Path(request.home) / "data",
        source=source,
        preset=request.preset,
        metrics={name: with_its_features(metric) for name, metric in (metrics or {}).items()},
    )


def check_same(here: RunSpec, expected: RunSpec) -> None:
    """Raise CompbenchError if a spec differs from the expected one in anything that was requested; the message names it.

    Code and versions may differ, and there may be settings that the expected spec did not have: `reproduce` reports them.
    """
    found, wanted = here.model_dump(mode="json"), expected.model_dump(mode="json")
    for name, was in wanted.items():
        now = found[name]
        if isinstance(was, dict):
            was = {key: value for key, value in was.items() if now.get(key) != value}
            now = {key: now.get(key) for key in was}
        if name not in OF_THE_CODE and was != now:
            before, here_now = contrast(str(was), str(now))
            what = name.replace("_", " ")
            raise CompbenchError(f"this spec cannot be run here: {what} was {before}, here it is {here_now}.")


M = TypeVar("M", bound=BaseModel)


def _with_prefix(overrides: Mapping[str, Json], prefix: str) -> dict[str, Json]:
    return {key.removeprefix(prefix): value for key, value in overrides.items() if key.startswith(prefix)}


def updated(model: M, changed: dict[str, Json], what: str, prefix: str, *, option: str = "--set") -> M:
    """`model` with some values replaced and checked.  Raises CompbenchError naming the setting and its bounds."""
    fields = type(model).model_fields
    more = {SETTING} - fields.keys() if prefix == "task." else ()  # every task has it
    for unknown in changed.keys() - fields.keys():
        error = suggest(f"setting of {what}", prefix + unknown, [prefix + name for name in (*fields, *more)])
        raise CompbenchError(f"{error} Values are set by {option} NAME=VALUE.")
    try:
        found = type(model).model_validate({**model.model_dump(), **changed})
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""  # the rest names the failed alternative of a union
        takes = values_of(type(model).model_json_schema()["properties"][key]) if key in fields else ""
        its_own = first["type"] in ("value_error", "assertion_error")  # raised by a validator of the class, in words for people
        found_wrong = first["msg"].removeprefix("Value error, ") if its_own or not takes else f"it takes {takes}"
        means = fields[key].description if key in fields else what
        given = [key] if key else changed  # a validator of the class says how its fields belong together
        words = " ".join(f"{prefix}{name}={changed.get(name)!r}" for name in given)
        raise CompbenchError(f"{option} {words}: {found_wrong} ({means}).") from error
    refuse_infinite({prefix + key: value for key, value in found.model_dump().items()}, option)
    return found


def refuse_infinite(values: Mapping[str, Json], option: str = "--set") -> None:
    """Raise CompbenchError for a setting that is infinite or NaN: JSON has neither, so the identity would be that of null."""
    for name, value in values.items():
        try:
            json.dumps(value, allow_nan=False, default=list)
        except ValueError as error:
            raise CompbenchError(f"{option} {name}={value!r}: a setting is a finite number.") from error


def values_of(schema: Mapping[str, Json]) -> str:
    """The values that a setting takes, by its JSON schema: `0 < number <= 8`, or its choices; "" for texts, lists and tables."""
    if isinstance(choices := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
        return " or ".join(map(str, choices))
    if isinstance(either := schema.get("anyOf"), list):
        known = [values_of(one) for one in either]
        return " or ".join(known) if all(known) else ""
    bound = {
        key: f"{value:.0f}" if isinstance(value, float) and value.is_integer() else f"{value}" for key, value in schema.items()
    }
    low = next((f"{bound[key]} {sign} " for key, sign in (("minimum", "<="), ("exclusiveMinimum", "<")) if key in schema), "")
    high = next((f" {sign} {bound[key]}" for key, sign in (("maximum", "<="), ("exclusiveMaximum", "<")) if key in schema), "")
    kind = schema.get("type")
    return f"{low}{kind}{high}" if kind in ("number", "integer", "boolean", "null") else ""


def contrast(was: str, now: str, most: int = 200) -> tuple[str, str]:
    """The parts of two long texts from where they begin to differ, each cut to `most` characters."""
    start = next((place for place, pair in enumerate(zip(was, now, strict=False)) if pair[0] != pair[1]), min(len(was), len(now)))
    start = max(0, start - most // 4) if max(len(was), len(now)) > most else 0
    return _excerpt(was, start, most), _excerpt(now, start, most)


def _excerpt(value: str, start: int, most: int) -> str:
    return ("…" if start else "") + value[start : start + most] + ("…" if len(value) > start + most else "")
