"""The table of equal code: which digests are one, and how records are found through it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sample_records import record

from compbench.api.schemas import Record
from compbench.registry import equal_code, meaning
from compbench.registry.equal_code import TABLE, Equal, EqualCode, read_table, write_table
from compbench.registry.meaning import Code, differing_from
from compbench.store.records import Store
from compbench.system.errors import CompbenchError

A, B, C, D = (letter * 64 for letter in "abcd")
COMMIT = "1" * 40


def row(old: str, new: str) -> Equal:
    return Equal(old, new, COMMIT, "bits")


def test_what_follows_from_rows_is_equal_too_and_nothing_else_is() -> None:
    table = EqualCode([row(A, B), row(B, C)])
    assert table.name(A) == table.name(B) == table.name(C) != table.name(D) == D
    assert set(table.all_of(C)) == {A, B, C}
    assert table.all_of(C)[0] == C
    assert table.all_of(D) == (D,)


def test_a_run_has_one_identity_whichever_equal_code_made_it() -> None:
    table = EqualCode([row(A, B)])
    spec = record().spec
    old, new, other = (spec.model_copy(update={"code": code}) for code in (A, B, C))
    assert table.run_of(old) == table.run_of(new) != table.run_of(other) == other.identity
    assert (
        table.run_of(old, "known") == "known" or table.name(A) != A
    )  # the identity that is given is that of the spec's own code
    assert table.identities(new) == (new.identity, old.identity)


def test_a_record_of_equal_code_is_found_and_is_not_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = EqualCode([row(A, B), row("e" * 64, "f" * 64)])
    monkeypatch.setattr(meaning, "equal_code", lambda: table)
    one = record()
    spec = one.spec.model_copy(update={"code": A})
    code = one.code.model_copy(update={"parts": {"flow": "e" * 64, "task": C}})
    old = one.model_copy(update={"spec": spec, "identity": spec.identity, "code": code})
    Store(tmp_path).write(old)
    new = spec.model_copy(update={"code": B})
    found = Store(tmp_path).finished(new, table.identities(new))
    assert isinstance(found, Record)
    assert found.identity == old.identity
    assert Store(tmp_path).finished(new, [new.identity]) is None
    assert differing_from(old, Code(B, {"flow": "f" * 64, "task": D})) == ()
    assert differing_from(old, Code(D, {"flow": "f" * 64, "task": D})) == ("task",)  # flow is equal, by the table


def test_a_table_is_read_as_it_was_written_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_table(path, [row(B, C), row(A, B), row(A, B)])
    assert read_table(path) == [row(A, B), row(B, C)]
    path.write_text(path.read_text() + "short,digest,commit,proof\n")
    with pytest.raises(CompbenchError, match="line 4: expected old digest, new digest, commit and proof"):
        read_table(path)
    with pytest.raises(CompbenchError, match="cannot be read as a table of equal code"):
        read_table(tmp_path / "none.csv")


def test_the_tables_rows_are_sorted_digests_and_the_published_link_is_it() -> None:
    rows = read_table(TABLE)
    assert rows == sorted(set(rows), key=lambda one: (one.commit, one.proof, one.old, one.new))
    published = Path(equal_code.__file__).parents[2] / "leaderboards" / "equal_code.csv"
    assert not published.exists() or published.resolve() == TABLE.resolve()
