import pytest

from compbench.sweep.parse import names, parse_lists, parse_overrides, parse_seeds, parse_time
from compbench.system.errors import CompbenchError


def test_seeds_are_ranges_and_lists_without_repeats() -> None:
    assert parse_seeds("0-2,1,42") == [0, 1, 2, 42]
    assert parse_seeds("2147483646-2147483647") == [2147483646, 2147483647]
    for wrong in ("", "a", "3-1", "0-99999", "2147483648", "9" * 11):
        with pytest.raises(CompbenchError):
            parse_seeds(wrong)


def test_times_have_units() -> None:
    assert [parse_time(text) for text in ("0", "90", "90s", "1.5m", "2h")] == [0, 90, 90, 90, 7200]


def test_overrides_are_json_where_they_can_be() -> None:
    assert parse_overrides(["a=1", "b=true", "c=word", "d=[1,2]"]) == {"a": 1, "b": True, "c": "word", "d": [1, 2]}
    with pytest.raises(CompbenchError, match="given twice"):
        parse_overrides(["a=1", "a=2"])


def test_a_setting_that_no_message_holds_is_refused() -> None:
    for parse in (parse_overrides, parse_lists):
        for depth in (17, 60_000):
            with pytest.raises(CompbenchError, match="--set x is nested more than 16 levels deep"):
                parse(["x=" + "[" * depth + "]" * depth])
        with pytest.raises(CompbenchError, match="a setting is a finite number"):
            parse(["x=1e999"])
    with pytest.raises(CompbenchError, match="a setting is a finite number"):
        parse_lists(["x=1,NaN"])


def test_lists_are_axes_and_brackets_stay_together() -> None:
    assert parse_lists(["a=1,2", "b=[3,4]", "c=x"]) == {"a": [1, 2], "b": [[3, 4]], "c": ["x"]}
    assert parse_lists(["a=[[1,2],[3,4]]", "b=[[1],[2]],[[3]]", 'c="d,e"', "f=g,1,", "h="]) == {
        "a": [[[1, 2], [3, 4]]],
        "b": [[[1], [2]], [[3]]],
        "c": ["d,e"],
        "f": ["g", 1],
        "h": [""],
    }
    assert parse_lists([]) == {}
    for wrong in (["a=1", "a=2"], ["a"]):
        with pytest.raises(CompbenchError):
            parse_lists(wrong)


def test_names_after_a_mark_are_left_out_of_those_before() -> None:
    every = names("methods", "*", ())
    assert names("methods", "*,!example", ()) == [name for name in every if name != "example"]
    assert names("methods", "dcfm-*,!*-a", ()) == ["dcfm-b"]
    assert names("methods", "!mono,mono", ()) == ["mono"]
    assert names("methods", "mono,!not-installed", ()) == ["mono"]


def test_names_follow_patterns_and_refuse_what_matches_nothing() -> None:
    assert names("tasks", "shapes3d-*", ()) == [
        "shapes3d-composition",
        "shapes3d-extend",
        "shapes3d-heavy",
        "shapes3d-light",
        "shapes3d-medium",
    ]
    assert names("methods", "slice-cfg,mono", ()) == ["slice-cfg", "mono"]
    with pytest.raises(CompbenchError, match="no task matches"):
        names("tasks", "blob-*", ())
