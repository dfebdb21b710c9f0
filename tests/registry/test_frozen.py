"""No code changes its identity unseen: a version says that numbers moved, or the table of equal code that they did not."""

from __future__ import annotations

import copy

import pytest
from support import frozen

from compbench.registry.equal_code import Equal, EqualCode, equal_code


@pytest.fixture(scope="module")
def now() -> frozen.Frozen:
    return frozen.today()


def test_each_digest_is_the_frozen_one_or_a_version_or_the_table_says_why(now: frozen.Frozen) -> None:
    bad = frozen.unexplained(frozen.stored(), now, equal_code())
    hint = "raise a version, or prove that it is equal: compbench verify --equal HEAD~1 HEAD --write"
    assert bad == [], hint


def test_the_frozen_digests_are_todays(now: frozen.Frozen) -> None:
    kept = frozen.stored()
    here = {task: row for task, row in kept["digests"].items() if task in now["digests"]}  # a task's extra may be absent
    assert here == now["digests"], "python tests/support/frozen.py writes them"


def test_a_changed_digest_needs_a_version_or_an_entry() -> None:
    before: frozen.Frozen = {
        "versions": {"methods": {"m": 1}, "tasks": {"t": 1}, "metrics": {"sw2": 1}},
        "metrics": {"t": ["sw2"]},
        "digests": {"t": {"m": "a" * 16 + " " + "c" * 16}},
    }
    after = copy.deepcopy(before)
    assert frozen.unexplained(before, after, EqualCode()) == []
    after["digests"]["t"]["m"] = "b" * 16 + " " + "c" * 16
    assert frozen.unexplained(before, after, EqualCode()) == ["m on t"]
    assert frozen.unexplained(before, after, EqualCode([Equal("a" * 64, "b" * 64, "1" * 40, "bits")])) == []
    assert frozen.unexplained(before, after, EqualCode([Equal("a" * 64, "d" * 64, "1" * 40, "bits")])) == ["m on t"]
    for kind, name in (("methods", "m"), ("tasks", "t"), ("metrics", "sw2")):
        raised = copy.deepcopy(after)
        raised["versions"][kind][name] = 2
        assert frozen.unexplained(before, raised, EqualCode()) == []


def test_a_commit_is_checked_where_its_code_moved_and_a_round_of_commits_checks_all() -> None:
    names = [f"m{number:02}" for number in range(25)]
    before: frozen.Frozen = {"digests": {"t": dict.fromkeys(names, "a"), "u": dict.fromkeys(names, "a")}}
    after = copy.deepcopy(before)
    after["digests"]["u"]["m03"] = "b"
    after["digests"]["u"]["new"] = "c"
    turns = [set(frozen.moved(before, after, turn, EqualCode())) for turn in range(frozen.SHARE)]
    assert all({"m03", "new"} <= turn for turn in turns)
    assert set().union(*turns) == {*names, "new"}
    assert max(map(len, turns)) == 4  # two that moved, and a twelfth of 24
    assert frozen.moved({"digests": {}}, after, 0, EqualCode()) == [*names, "new"]
    one, other = "a" * 64, "b" * 64
    pairs = [{"digests": {"t": dict.fromkeys(names, digest[: frozen.DIGITS])}} for digest in (one, other)]
    assert len(frozen.moved(*pairs, 0, EqualCode())) == 25
    assert len(frozen.moved(*pairs, 0, EqualCode([Equal(one, other, "1" * 40, "bits")]))) == 3  # by turn alone


def test_changed_codes_are_told_by_task() -> None:
    assert frozen.by_task(["a on t", "b on t", "a on u"]) == "2 methods on t, a on u"
    assert frozen.by_task([f"a on t{number}" for number in range(7)]).endswith("a on t4 and 2 more tasks")


def test_the_digests_of_a_commit_that_stored_none_are_none() -> None:
    assert frozen.at("no-such-commit") == {"digests": {}}
