"""Whatever a record's file holds, its reader gives a record that says the same when it is written, or one line of why not."""

from __future__ import annotations

import hashlib
import json
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.sample_records import record

from compbench.api.schemas import Record
from compbench.store.format import DIGEST, MAX_NESTING, dump, parse
from compbench.store.records import read_record, read_records
from compbench.system.errors import CompbenchError

EXAMPLES = int(os.environ.get("COMPBENCH_EXAMPLES", "80"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HUGE = st.sampled_from([10**18, 2**63, -(2**64), 10**400, 1e300, 1e-320, -0.0, float("inf"), float("-inf"), float("nan")])
WILD = st.sampled_from(
    ["\x1b[2J\x1b]0;mine\x07", "a\nb\r\n", "\u202eoff", "[/b][red]", "<script>", "=1+1", "\ud800", "\x00", "x" * 9000]
)
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | HUGE | st.text(max_size=20) | WILD
NAMES = st.text(max_size=9) | WILD
ANY = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12)
KEPT = dump(record())


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(place for key, one in inner for place in places(one, (*way, key)))]


def edited(way: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """The kept record with the value at the end of a way changed."""
    whole = [json.loads(KEPT)]
    at: Any = whole
    steps = (0, *way)
    for step in steps[:-1]:
        at = at[step]
    at[steps[-1]] = change(at[steps[-1]])
    return whole[0]


def signed(raw: Any) -> bytes:
    """A document as a forger writes it: with the digest that its reader looks for."""
    if isinstance(raw, dict):
        raw = {name: value for name, value in raw.items() if name != "digest"}
        bare = (json.dumps(raw, sort_keys=True, indent=1) + "\n").encode()
        raw = {**raw, "digest": hashlib.sha256(bare).hexdigest()}
    return (json.dumps(raw, sort_keys=True, indent=1) + "\n").encode()


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """Where a record of this name lies."""
    return tmp_path_factory.mktemp("records") / f"{record().name}.json"


def reading(path: Path, content: bytes) -> Record | None:
    """The record of some bytes, which comes back as it is; None where its one reader says in one line why there is none."""
    path.write_bytes(content)
    found, problems = read_records([path])
    if problems:
        with pytest.raises(CompbenchError) as refused:
            read_record(path)
        (reason,) = [problem.reason for problem in problems]
        assert reason == str(refused.value) != ""
        assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter == "\u202e" for letter in reason)
        return None
    assert found == [read_record(path)]
    assert parse(dump(found[0])) == found[0]
    return found[0]


@QUICK
@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_no_record(path: Path, content: bytes) -> None:
    assert reading(path, content) is None


@QUICK
@given(ANY)
def test_any_document_is_no_record(path: Path, raw: Any) -> None:
    assert reading(path, signed(raw)) is None
    assert reading(path, signed({"format": 6, "spec": raw, "scores": raw})) is None


@QUICK
@given(st.sampled_from(places(json.loads(KEPT))), ANY)
@example(("spec", "metrics"), {"\x1b[2J\n": None})
def test_any_value_in_any_place_is_read_or_refused(path: Path, way: tuple[Any, ...], value: Any) -> None:
    reading(path, signed(edited(way, lambda _: value)))


@QUICK
@given(st.sampled_from([way for way in places(json.loads(KEPT)) if way]), st.integers(1, 3000))
def test_any_depth_in_any_place_is_read_or_refused(path: Path, way: tuple[Any, ...], depth: int) -> None:
    text = json.dumps(edited(way, lambda _: "DEEP"), sort_keys=True, indent=1).replace('"DEEP"', "[" * depth + "]" * depth)
    reading(path, text.encode())
    reading(path, dump(record()).replace(DIGEST, b'\n "settings": ' + b"[" * depth + b"]" * depth + b"," + DIGEST))


@pytest.mark.parametrize("depth", [MAX_NESTING - 1, MAX_NESTING, 2500, 10**5])
def test_nesting_is_judged_alike_however_deep_the_reader_stands(path: Path, depth: int) -> None:
    def answer(frames: int) -> str:
        if frames:
            return answer(frames - 1)
        with pytest.raises(CompbenchError) as refused:
            parse(content)
        return str(refused.value)

    content = b'{"format": ' + b"[" * depth + b"]" * depth + b"}"
    assert answer(0) == answer(400)
    assert ("nested deeper" in answer(0)) == (depth >= MAX_NESTING)


@QUICK
@given(st.integers(0, len(KEPT) - 1), st.binary(max_size=3), st.integers(0, 40))
def test_any_edit_of_the_bytes_is_noticed(path: Path, start: int, inserted: bytes, removed: int) -> None:
    content = KEPT[:start] + inserted + KEPT[start + removed :]
    assert reading(path, content) in ((record(),) if content == KEPT else (None, record()))


@pytest.mark.parametrize("number", ["1" * 5000, "1e999", "-1e999", "NaN", "Infinity", "0.1e-9999999999"])
def test_a_number_beyond_all_bounds_is_refused(path: Path, number: str) -> None:
    content = KEPT.replace(b'"seconds": 120.0', f'"seconds": {number}'.encode())
    assert reading(path, content) is None


def test_the_kept_record_is_read(path: Path) -> None:
    assert reading(path, KEPT) == record()
