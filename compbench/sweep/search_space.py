"""The search space of a study: ranges and choices, from the bounds of a method's settings and from words that narrow them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from compbench.api.interfaces import Budget, Method
from compbench.store.format import clean
from compbench.sweep.parse import value_of
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

if TYPE_CHECKING:
    from optuna import Trial

WIDEST = 10.0
"""Without narrow bounds, a number is searched between its default divided by this and its default times this."""


class Range(NamedTuple):
    """The numbers between two bounds, both included."""

    low: float
    high: float
    log: bool
    whole: bool

    def suggest(self, trial: Trial, name: str) -> Json:
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


class Choice(NamedTuple):
    """A choice between some values."""

    values: tuple[Json, ...]

    def suggest(self, trial: Trial, name: str) -> Json:
        chosen: Json = json.loads(trial.suggest_categorical(name, [json.dumps(value) for value in self.values]))
        return chosen


Space = dict[str, Range | Choice]


def search_space(method: Method, narrowed: Sequence[str]) -> tuple[Space, dict[str, str]]:
    """The search space, and the settings that keep their defaults, each with the reason.

    A setting that the method's `search` or `narrowed` names has the range given there; any other follows its type and bounds.

    Args:
        narrowed: NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=V1,V2, for a setting or a budget entry (budget.learning_rate).

    Raises:
        CompbenchError: an entry of `narrowed` has another form, or the method does not have the setting.
    """
    space: Space = {}
    left: dict[str, str] = {}
    schema = method.settings.model_json_schema()["properties"] if method.settings.model_fields else {}
    for name, facts in schema.items():
        found = _by_bounds(facts)
        if isinstance(found, str):
            left[name] = found
        else:
            space[name] = found
    budget = Budget.model_json_schema()["properties"]
    for name, word in [*method.search.items(), *map(named, narrowed)]:
        facts = budget.get(name.removeprefix("budget.")) if name.startswith("budget.") else schema.get(name)
        if facts is None:
            known = ", ".join([*schema, *(f"budget.{entry}" for entry in budget)])
            raise CompbenchError(f"--search {name}: '{method.name}' has no such setting; it has {known}.")
        space[name] = _parsed(name, word, whole=facts.get("type") == "integer")
        left.pop(name, None)
    return space, left


def named(word: str) -> tuple[str, str]:
    """The two sides of NAME=RANGE.  Raises CompbenchError if one is missing."""
    name, equals, value = word.partition("=")
    if not equals or not value:
        raise CompbenchError(f"--search {word}: use NAME=LOW:HIGH, NAME=LOW:HIGH:log or NAME=V1,V2.")
    return name, value


def _parsed(name: str, word: str, *, whole: bool) -> Range | Choice:
    if ":" not in word:
        return Choice(tuple(value_of(part) for part in word.split(",")))
    low, _, rest = word.partition(":")
    high, _, scale = rest.partition(":")
    first, last = value_of(low), value_of(high)
    if not isinstance(first, int | float) or not isinstance(last, int | float) or scale not in ("", "log"):
        raise CompbenchError(f"--search {name}={word}: use LOW:HIGH or LOW:HIGH:log with two numbers.")
    if whole and not (isinstance(first, int) and isinstance(last, int)):
        raise CompbenchError(f"--search {name}={word}: '{name}' is a whole number, so LOW and HIGH must be too.")
    if not (math.isfinite(first) and math.isfinite(last) and first < last and (first > 0 or not scale)):
        raise CompbenchError(f"--search {name}={word}: LOW must be below HIGH, and above 0 with :log.")
    return Range(first, last, bool(scale), whole)


def _by_bounds(facts: Mapping[str, object]) -> Range | Choice | str:
    """The values to try by a field's JSON schema, or the reason why the field keeps its default."""
    if "enum" in facts:
        values = facts["enum"]
        assert isinstance(values, list)
        return Choice(tuple(values))
    kind, default = facts.get("type"), facts.get("default")
    if kind == "boolean":
        return Choice((False, True))
    if kind not in ("integer", "number") or not isinstance(default, int | float):
        return f"its default {clean(json.dumps(default))} is not a number"
    if default <= 0:
        return "its default is 0 and its bounds give no scale"
    bounds = [facts.get(name) for name in ("minimum", "maximum")]
    lowest = bounds[0] if isinstance(bounds[0], int | float) else -math.inf
    highest = bounds[1] if isinstance(bounds[1], int | float) else math.inf
    if isinstance(above := facts.get("exclusiveMinimum"), int | float):
        lowest = max(lowest, math.nextafter(above, math.inf))
    if isinstance(below := facts.get("exclusiveMaximum"), int | float):
        highest = min(highest, math.nextafter(below, -math.inf))
    low, high = max(lowest, default / WIDEST), min(highest, default * WIDEST)
    if kind == "integer":
        low, high = math.ceil(low), math.floor(high)
    return Range(low, high, log=True, whole=kind == "integer") if low < high else "its bounds leave no other value"
