"""The words of tasks, metrics and settings are no part of a run's identity, however they are passed."""

from __future__ import annotations

import ast
import gc
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from compbench.registry import syntax
from compbench.registry.meaning import Kept, code_of
from compbench.registry.prose import parsed
from compbench.registry.registry import Registry
from compbench.registry.resolve import metrics_of
from compbench.registry.syntax import parse

TASK = """
def make(far, settings):
    BEFORE
    return Task(name="plane", summary=f"in the plane, {where}", notes=notes, event=EVENT)
"""
PLAIN = """
def make(far, settings):
    return Task(name="plane", event=EVENT)
"""


def text(source: str, name: str = "make") -> tuple[str, object]:
    return parse(source, "m").local(name)


@pytest.mark.parametrize(
    "before",
    [
        "where = 'near'; notes = ['one']",
        "where = 'far' if far else 'near'; notes = []\n    notes.append('one')",
        "where = 'near'; notes = []\n    if far:\n        notes.append(f'one of {settings.size}')",
        "where = 'near'; notes = []\n    if far > 2:\n        notes.append('a')\n    else:\n        notes.extend(['b'])",
        "where = 'near'; notes = ['one']\n    notes += ['two']",
        "where: str = 'near'; words = {True: ['a'], False: ['b']}; notes = words[far]",
        "where = 'among' if settings.name.endswith('-id') else 'far from'; notes = ()",
    ],
)
def test_words_that_are_built_first_count_for_nothing(before: str) -> None:
    assert text(TASK.replace("BEFORE", before)) == text(PLAIN)


@pytest.mark.parametrize(
    "before",
    [
        "where = 'near'; notes = said(far)",  # a call may do anything
        "where = 'near'; notes = ['one']; settings.size = notes",
        "where = 'near'; notes = settings.silos; notes += ['one']",
        "where = 'near'; notes = settings.silos if far else []\n    notes.append('one')",
        "where = 'near'; notes = ['one']\n    for note in notes: print(note)",
        "where = 'near'; notes = [draw() for _ in range(9)]",
        "where = notes = 'near'",
        "where = 'near'; far = notes = 1",
        "where = 'near'; notes = ['one']\n    notes.append(draw())",
        "where = 'near'; notes = ['one']\n    if draw(): notes.append('two')",
        "global where, notes\n    where = 'near'; notes = []",
    ],
)
def test_what_may_do_more_than_make_words_counts(before: str) -> None:
    assert text(TASK.replace("BEFORE", before))[0] != text(PLAIN)[0]


def test_a_name_that_something_else_reads_counts() -> None:
    read = TASK.replace("BEFORE", "where = 'near'; notes = []").replace("event=EVENT", "event=EVENT[where]")
    assert text(read)[0] != text(read.replace("'near'", "'far'"))[0]


def test_an_argument_of_words_counts_for_nothing_in_each_way_of_giving_it() -> None:
    plain = text("a = Metric('sw2', unit='')", "a")
    assert text("a = Metric('sw2', 'a distance', unit='')", "a") == plain
    assert text("a = Metric('sw2', summary='a distance', unit='')", "a") == plain
    assert text("a = Metric('mmd2', 'a distance', unit='')", "a") != plain
    assert text("a = partial(Field, 1, description='weight')", "a") == text("a = partial(Field, 1)", "a")
    assert text("a = replace(m, search={'weight': '1:4'}, version=2)", "a") == text("a = replace(m, version=2)", "a")
    assert text("a = dataclasses.replace(b, notes=['x'], size=2)", "a") == text("a = dataclasses.replace(b, size=2)", "a")
    assert text("a = weigh(notes=['x'])", "a") != text("a = weigh()", "a")  # not a task: it may be a number


def test_no_words_of_our_tasks_and_metrics_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text of a loaded task or metric is looked for among the strings that count."""
    counted: set[str] = set()
    write = syntax._Writer.write

    def watching(self: syntax._Writer, node: object) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(re.findall("[a-z]{2,}", node.value)) > 3:
            counted.add(node.value)
        return write(self, node)

    monkeypatch.setattr(syntax._Writer, "write", watching)
    registry, kept = Registry(), Kept()
    texts: list[str] = []
    for entry in registry.entries("tasks"):
        loaded = registry.attempt(entry)
        if loaded.state == "ok":
            task, metrics = loaded.value, sorted(metrics_of(loaded.value, registry))
            texts += [task.summary, task.citation, *task.notes, *task.paper_notes]
            texts += [registry.load("metrics", name).summary for name in metrics if name in registry.names("metrics")]
            code_of(registry, method="", task=entry.name, metrics=metrics, kept=kept)
    assert texts
    assert {word for word in counted if any(word in one for one in texts)} == set()


def test_where_a_task_is_listed_and_what_it_needs_is_no_part_of_its_code() -> None:
    facts = 'Task(name="plane", family="bumps", core=far, files=("a.npz",), extra="sim", extra_for="embedded", event=EVENT)'
    assert text(PLAIN.replace('Task(name="plane", event=EVENT)', facts)) == text(PLAIN)
    copied = PLAIN.replace("Task(", "replace(far, ")
    assert text(copied.replace("event", 'family="bumps", core=far, event')) == text(copied)


def test_a_copy_of_something_else_keeps_arguments_of_those_names() -> None:
    plain = PLAIN.replace("Task(", "replace(far, ")
    for word in ("core=2", "files=settings", "extra=far"):
        assert text(plain.replace("event", f"{word}, event")) != text(plain), word


def test_two_threads_parse_one_after_the_other() -> None:
    """Python 3.11.7's `ast.parse` fails where another thread parses while the first one's garbage is collected."""

    def let_others_go_on(*_: object) -> None:
        time.sleep(0)

    source = "\n".join(f"value{k} = f({k}, [x + {k} for x in range({k})])" for k in range(100))
    threshold = gc.get_threshold()
    gc.callbacks.append(let_others_go_on)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: len(parsed(source).body), range(16)))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_go_on)
    assert found == [100] * 16
