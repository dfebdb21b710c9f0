"""The search space of a study: ranges and choices, from the bounds of a method's settings and from words that narrow them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from compbench.api.interfaces import Budget, Method
from compbench.registry.resolve import values_of
from compbench.store.format import clean
from compbench.sweep.parse import value_of
from compbench.system.errors import CompbenchError
from compbench.system.files import Json

if TYPE_CHECKING:
    from optuna import Trial

WIDEST = 10.0
"""Without narrow bounds, a number is searched between its default divided by this and its default times this."""
FARTHEST = 100.0
"""A setting that is a word by default is searched between its number's bounds if they are at most so far apart; bounds that are
farther apart only keep nonsense out."""
NUMBERS = ("integer", "number")
"""Types of a JSON schema that are numbers."""
NUMBER, TINY = "number", 1e-300
"""Optuna's mark of a number in place of a word, and a bound that stands for "above 0"."""


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

    def parameters(self, name: str, value: object) -> dict[str, Json] | None:
        """Optuna's parameters that stand for a value; None if the value is not in the space."""
        return {name: value} if isinstance(value, int | float) and self.low <= value <= self.high else None

    def examples(self) -> tuple[Json, ...]:
        """The lowest and the highest value, and three between them, or fewer whole numbers."""
        ratio = self.high / self.low if self.log else 0.0
        steps = [self.low * ratio ** (k / 4) if self.log else self.low + (self.high - self.low) * k / 4 for k in (1, 2, 3)]
        found = (self.low, self.high, *steps)
        return tuple(dict.fromkeys(int(value) for value in found)) if self.whole else found

    def in_words(self) -> str:
        low = 0.0 if 0 < self.low < TINY else self.low
        return f"{low:.4g} to {self.high:.4g}{' (log)' if self.log else ''}"


class Choice(NamedTuple):
    """A choice between some values."""

    values: tuple[Json, ...]

    def suggest(self, trial: Trial, name: str) -> Json:
        chosen: Json = json.loads(trial.suggest_categorical(name, [json.dumps(value) for value in self.values]))
        return chosen

    def parameters(self, name: str, value: object) -> dict[str, Json] | None:
        listed = [own for own in self.values if own == value]
        return {name: json.dumps(listed[0])} if listed else None  # as it is written there: 1 for 1.0

    def examples(self) -> tuple[Json, ...]:
        """All values."""
        return self.values

    def in_words(self) -> str:
        return " or ".join(own if isinstance(own, str) else json.dumps(own) for own in self.values)


class WordOrRange(NamedTuple):
    """One of some words, or a number; each word is proposed as often as a number, until Optuna prefers one of them."""

    words: Choice
    numbers: Range

    def suggest(self, trial: Trial, name: str) -> Json:
        chosen = trial.suggest_categorical(f"{name} is", [*map(json.dumps, self.words.values), NUMBER])
        if chosen == NUMBER:
            return self.numbers.suggest(trial, name)
        word: Json = json.loads(chosen)
        return word

    def parameters(self, name: str, value: object) -> dict[str, Json] | None:
        if (word := self.words.parameters(f"{name} is", value)) is not None:
            return word
        number = self.numbers.parameters(name, value)
        return number and {f"{name} is": NUMBER, **number}

    def examples(self) -> tuple[Json, ...]:
        """The words, and some numbers."""
        return *self.words.examples(), *self.numbers.examples()

    def in_words(self) -> str:
        return f"{self.words.in_words()} or {self.numbers.in_words()}"


Values = Range | Choice | WordOrRange
Space = dict[str, Values]


def search_space(method: Method, narrowed: Sequence[str]) -> tuple[Space, dict[str, str]]:
    """The search space, and the settings that keep their defaults, each with the reason.

    A setting that the method's `search` or `narrowed` names has the range given there; any other follows its type and bounds.

    Args:
        narrowed: NAME=LOW:HIGH, NAME=LOW:HIGH:log, NAME=V1,V2 or NAME=V1,LOW:HIGH, for a setting or a budget entry
            (budget.learning_rate).

    Raises:
        CompbenchError: an entry of `narrowed` has another form or leaves the setting's bounds, or there is no such setting.
    """
    space: Space = {}
    left: dict[str, str] = {}
    schema = method.settings.model_json_schema()["properties"] if method.settings.model_fields else {}
    for name, facts in schema.items():
        found = _by_bounds(facts)
        if isinstance(found, str):
            left[name] = found
        elif why := _tied(method, name, found):
            left[name] = f"no other value fits the defaults of the other settings: {why}"
        else:
            space[name] = found
    budget = Budget.model_json_schema()["properties"]
    for name, word in [*method.search.items(), *map(named, narrowed)]:
        facts = budget.get(name.removeprefix("budget.")) if name.startswith("budget.") else schema.get(name)
        if facts is None:
            known = ", ".join([*schema, *(f"budget.{entry}" for entry in budget)])
            raise CompbenchError(f"--search {name}: '{method.name}' has no such setting; it has {known}.")
        space[name] = _parsed(name, word, whole=_is_whole(facts))
        entry = name.removeprefix("budget.")
        fields = method.settings.model_fields if entry == name else Budget.model_fields
        for value in _refused(space[name], fields[entry]):
            raise CompbenchError(f"--search {name}={word}: {value!r} is refused, because '{name}' takes {values_of(facts)}.")
        left.pop(name, None)
    return space, left


def _refused(values: Values, field: FieldInfo) -> list[Json]:
    """The values of a range or choice that a field refuses, whatever the other fields are."""
    kind: Any = Annotated[field.annotation, field]
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    found = []
    for value in values.examples():
        try:
            adapter.validate_python(value)
        except ValidationError:
            found.append(value)
    return found


def _tied(method: Method, name: str, values: Values) -> str:
    """Why the settings refuse all values but the default of one of them, the others being at their defaults; "" if they do not.

    Shares that must sum to 1 are an example: chosen independently, they are refused.
    """
    default, why = method.settings.model_fields[name].default, ""
    for value in values.examples():
        if value == default:
            continue
        try:
            method.settings.model_validate({name: value})
        except ValidationError as error:
            why = why or error.errors()[0]["msg"].removeprefix("Value error, ")
        else:
            return ""
    return why


def named(word: str) -> tuple[str, str]:
    """The two sides of NAME=RANGE.  Raises CompbenchError if one is missing."""
    name, equals, value = word.partition("=")
    if not equals or not value:
        raise CompbenchError(f"--search {word}: use NAME=LOW:HIGH, NAME=LOW:HIGH:log, NAME=V1,V2 or NAME=V1,LOW:HIGH.")
    return name, value


def _is_whole(facts: Mapping[str, Any]) -> bool:
    """Whether a field's numbers are whole, by its JSON schema."""
    return any(part.get("type") == "integer" for part in (facts, *facts.get("anyOf", ())))


def _parsed(name: str, word: str, *, whole: bool) -> Values:
    parts = word.split(",")
    ranges = [part for part in parts if ":" in part]
    listed = Choice(tuple(value_of(part) for part in parts if ":" not in part))
    if not ranges:
        return listed
    if len(ranges) > 1:
        raise CompbenchError(f"--search {name}={word}: give one range LOW:HIGH, with or without single values.")
    numbers = _parsed_range(name, ranges[0], whole=whole)
    return WordOrRange(listed, numbers) if listed.values else numbers


def _parsed_range(name: str, word: str, *, whole: bool) -> Range:
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


def _by_bounds(facts: Mapping[str, Any]) -> Values | str:
    """The values to try by a field's JSON schema, or the reason why the field keeps its default."""
    if "enum" in facts:
        return Choice(tuple(facts["enum"]))
    if "anyOf" in facts:
        return _word_or_range(facts["anyOf"], facts.get("default"))
    kind, default = facts.get("type"), facts.get("default")
    if kind == "boolean":
        return Choice((False, True))
    if kind not in NUMBERS or not isinstance(default, int | float):
        return f"its default {clean(json.dumps(default))} is not a number"
    return _around(default, facts)


def _word_or_range(parts: Sequence[Mapping[str, Any]], default: object) -> WordOrRange | str:
    """The values of a field that takes words and one kind of number, or the reason why it keeps its default."""
    numbers = [part for part in parts if part.get("type") in NUMBERS]
    words = Choice(tuple(word for part in parts for word in part.get("enum", [part["const"]] if "const" in part else [])))
    if len(numbers) != 1 or not words.values:
        return "its values are not words and one kind of number"
    if isinstance(default, int | float):
        around = _around(default, numbers[0])
        return around if isinstance(around, str) else WordOrRange(words, around)
    low, high = _bounds(numbers[0])
    if not (math.isfinite(low) and math.isfinite(high)):
        return "its number is not bounded on both sides"
    whole = _is_whole(numbers[0])
    if whole:
        low, high = math.ceil(low), math.floor(high)
    if high - low > FARTHEST:
        return f"its bounds {low:g} and {high:g} are too far apart"
    return WordOrRange(words, Range(low, high, log=whole and low > 0, whole=whole))


def _around(default: float, facts: Mapping[str, Any]) -> Range | str:
    """Numbers within a factor of `WIDEST` of the default and within bounds, or the reason why the default stays."""
    if default <= 0:
        return "its default is 0 and its bounds give no scale"
    lowest, highest = _bounds(facts)
    low, high = max(lowest, default / WIDEST), min(highest, default * WIDEST)
    whole = _is_whole(facts)
    if whole:
        low, high = math.ceil(low), math.floor(high)
    return Range(low, high, log=True, whole=whole) if low < high else "its bounds leave no other value"


def _bounds(facts: Mapping[str, Any]) -> tuple[float, float]:
    """The lowest and the highest number of a field; infinite without a bound."""
    lowest, highest = facts.get("minimum", -math.inf), facts.get("maximum", math.inf)
    if isinstance(above := facts.get("exclusiveMinimum"), int | float):
        lowest = max(lowest, math.nextafter(above, math.inf))
    if isinstance(below := facts.get("exclusiveMaximum"), int | float):
        highest = min(highest, math.nextafter(below, -math.inf))
    return lowest, highest
