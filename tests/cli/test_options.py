"""The types of a verb's options, which no type checker compares with the decorators that make the options."""

from __future__ import annotations

from types import UnionType
from typing import Literal, NotRequired, get_args, get_origin, get_type_hints

import click
import pytest

from compbench.cli.gate import gate
from compbench.cli.profile import profile
from compbench.cli.run import run
from compbench.cli.score import score
from compbench.cli.sweep import sweep
from compbench.cli.tune import tune

VERBS = [gate, profile, run, score, sweep, tune]


def types_of_options(verb: click.Command) -> dict[str, object]:
    """The fields of X in the annotation `**options: Unpack[X]` of a verb's function."""
    (fields,) = get_args(get_type_hints(verb.callback)["options"])
    return get_type_hints(fields, include_extras=True)


def fits(value: object, kind: object) -> bool:
    if get_origin(kind) in (UnionType, NotRequired):
        return any(fits(value, one) for one in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    return isinstance(value, get_origin(kind) or kind)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb.name))
def test_the_types_of_a_verb_name_all_of_its_options_and_no_other(verb: click.Command) -> None:
    types = types_of_options(verb)
    required = {name for name, kind in types.items() if get_origin(kind) is not NotRequired}
    untyped = {parameter.name for parameter in verb.params} - get_type_hints(verb.callback).keys()
    assert required <= untyped <= types.keys()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb.name))
def test_the_value_of_an_option_that_is_left_out_has_the_type_of_the_option(verb: click.Command) -> None:
    types = types_of_options(verb)
    required = {parameter.name for parameter in verb.params if parameter.required}
    made = verb.make_context("verb", [], resilient_parsing=True).params
    usual = {name: value for name, value in made.items() if name in types and name not in required}
    assert [name for name, value in usual.items() if not fits(value, types[name])] == []
    assert usual
