"""The search space: bounds of settings, words that are numbers otherwise, and words that narrow it."""

from dataclasses import replace
from typing import Annotated, Literal

import pytest
from pydantic import Field

from compbench.api.interfaces import Method, MethodSettings
from compbench.registry.registry import Registry
from compbench.sweep.search_space import Choice, Range, WordOrRange, search_space
from compbench.system.errors import CompbenchError


def method(name: str) -> Method:
    found: Method = Registry().load("methods", name)
    return found


def test_bounds_give_the_search_space_and_words_narrow_it() -> None:
    space, left = search_space(
        method("driftlite"), ["ridge=0.0001:0.01:log", "num_pilots=64,256", "budget.learning_rate=0.0003:0.003:log"]
    )
    assert space["ridge"] == Range(0.0001, 0.01, log=True, whole=False)
    assert space["num_pilots"] == Choice((64, 256))
    assert space["num_particles"] == Range(1, 40, log=True, whole=True)  # ten times its default of 4; at least 1
    assert "budget.learning_rate" in space
    assert search_space(method("driftlite"), ["ridge=1:4"])[0]["ridge"] == Range(1, 4, log=False, whole=False)
    assert not set(left) & set(space)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ridge", "use NAME=LOW:HIGH"),
        ("ridge=2:1", "LOW must be below HIGH"),
        ("ridge=0:1:log", "above 0 with :log"),
        ("ridge=a:b", "two numbers"),
        ("rigde=1:2", "no such setting; it has"),
        ("budget.lr=1:2", "no such setting; it has .*budget.learning_rate"),
        ("num_pilots=1:2.5", "is a whole number"),
        ("num_steps=budget,1:2.5", "is a whole number"),
        ("weight=1:2,3:4", "give one range"),
        ("weight=1:50", "50 is refused, because 'weight' takes 0 <= number <= 20 or task"),
        ("weight=1,50", "50 is refused"),
        ("weight=tisk,1:4", "'tisk' is refused"),
        ("budget.learning_rate=-1:1", "-1 is refused, because 'budget.learning_rate' takes 0 < number"),
    ],
)
def test_a_search_that_says_nothing_is_refused(word: str, message: str) -> None:
    with pytest.raises(CompbenchError, match=message):
        search_space(method("driftlite"), [word])


@pytest.mark.parametrize(
    ("name", "setting", "words", "low", "high"),
    [
        ("slice-cfg", "holdout_weight", ("task",), 0, 20),
        ("cfg", "weight", ("task",), 0, 20),
        ("coind", "weight", ("task",), 0, 20),
        ("superdiff", "guidance", ("task",), 1, 20),  # its `search=` narrows 0 to 1000
        ("superdiff", "ridge", ("size",), 0.1, 1e6),
        ("cfg-plus", "strength", ("task",), 0, 1),
        ("fkc", "ess_floor", ("auto",), 0, 1),
        ("fkc", "resample_below", ("auto",), 0, 1),
        ("mcmc", "num_levels", ("auto",), 10, 160),
        ("mcmc", "num_inner", ("auto",), 1, 16),
        ("mcmc", "line_points", ("auto",), 2, 8),
        ("dit", "tokens", ("auto",), 4, 16),
        ("task-arithmetic", "scaling", ("chosen", "1/n"), 0, 10),
    ],
)
def test_a_setting_that_is_a_word_by_default_is_searched_between_its_numbers_bounds(
    name: str, setting: str, words: tuple[str, ...], low: float, high: float
) -> None:
    space, left = search_space(method(name), [])
    found = space[setting]
    assert isinstance(found, WordOrRange)
    assert (found.words.values, found.numbers.low, found.numbers.high) == (words, low, high)
    assert found.parameters(setting, words[0]) == {f"{setting} is": f'"{words[0]}"'}  # the first trial keeps the word
    assert found.parameters(setting, high) == {f"{setting} is": "number", setting: high}
    assert found.parameters(setting, "other") is None
    assert setting not in left


@pytest.mark.parametrize(
    ("name", "setting", "why"),
    [
        ("fkc", "g_clip", "its number is not bounded on both sides"),
        ("driftlite", "num_steps", "its bounds 1 and 100000 are too far apart"),
        ("low-rank", "rank", "its bounds 1 and 4096 are too far apart"),
    ],
)
def test_a_number_without_a_scale_keeps_its_word_and_the_reason_is_given(name: str, setting: str, why: str) -> None:
    space, left = search_space(method(name), [])
    assert left[setting] == why
    assert setting not in space
    space, left = search_space(method(name), [f"{setting}=2:8"])
    assert space[setting] == Range(2, 8, log=False, whole=setting != "g_clip")
    assert setting not in left


def test_shares_that_sum_to_1_keep_their_defaults_unless_they_are_named() -> None:
    space, left = search_space(method("dcfm-a"), [])
    for name in ("pi_full", "pi_marginal", "pi_unconditional"):
        assert "must be 1, got" in left[name]
    assert {"ci_weight", "weight"} <= space.keys()
    assert "pi_full" in search_space(method("dcfm-a"), ["pi_full=0.5:0.9"])[0]
    assert {"begin", "end"} <= search_space(method("interval-cfg"), [])[0].keys()  # most pairs are intervals


def test_a_word_and_a_range_may_be_searched_together() -> None:
    space, _ = search_space(method("driftlite"), ["num_steps=budget,50:200:log"])
    assert space["num_steps"] == WordOrRange(Choice(("budget",)), Range(50, 200, log=True, whole=True))
    assert space["num_steps"].in_words() == "budget or 50 to 200 (log)"


def test_every_methods_setting_is_searched_or_kept_for_a_reason() -> None:
    for name in Registry().names("methods"):
        found = method(name)
        space, left = search_space(found, [])
        assert space.keys() | left.keys() == found.settings.model_fields.keys(), name
        assert not space.keys() & left.keys(), name
        assert all(values.in_words() for values in space.values())


def test_a_whole_number_above_0_that_may_be_a_word_starts_at_1() -> None:
    class Settings(MethodSettings):
        tokens: Annotated[int, Field(gt=0, le=32)] | Literal["auto"] = "auto"

    space, _ = search_space(replace(method("driftlite"), settings=Settings, search={}), [])
    assert space == {"tokens": WordOrRange(Choice(("auto",)), Range(1, 32, log=True, whole=True))}
