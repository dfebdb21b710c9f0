"""Older code is marked on the board, by what newer records say."""

import hashlib

from support.sample_records import record, score

from compbench.api.schemas import Code, Environment, LossCurve, Record
from compbench.board.aggregate import rows
from compbench.board.groups import older_code
from compbench.board.notation import notes
from compbench.board.render_csv import rows_csv


def made(day: int, seed: int, *, threads: int = 2, method: str = "factored", device_class: str = "cpu", **parts: str) -> Record:
    hashed = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in parts.items()}
    code = hashlib.sha256(repr(parts).encode()).hexdigest()
    environment = Environment(compbench="0.2", python="3.12", threads=threads)
    more = {"code": Code(parts=hashed), "started": f"2026-01-{day:02d}", "environment": environment}
    return record(score(value=0.5), seed=seed, method=method, device_class=device_class, code=code, more=more)


def test_the_newest_code_is_not_older_and_what_changed_since_is_named() -> None:
    old = made(1, 0, method_="a", flow="a", task="a")
    new = made(2, 1, method_="a", flow="b", task="a")
    assert older_code([new, old]) == {old.name: ("flow",)}
    assert older_code([old]) == {}


def test_the_tasks_parts_are_compared_across_methods_and_the_others_within() -> None:
    old = made(1, 0, flow="a", task="a")
    other = made(2, 0, method="mono", flow="b", task="b")
    assert older_code([old, other]) == {old.name: ("task",)}


def test_what_gpus_run_is_not_compared_with_what_cpus_run() -> None:
    old, new = made(1, 0, flow="a", task="a"), made(2, 0, flow="b", task="b", device_class="NVIDIA H100 80GB HBM3")
    assert older_code([old, new]) == {}
    newer = made(3, 1, flow="c", task="b", device_class="NVIDIA H200")
    assert older_code([old, new, newer]) == {new.name: ("flow",)}


def test_a_record_that_says_no_parts_is_older() -> None:
    assert older_code([record()]) == {record().name: ("unknown",)}


def test_a_row_says_older_code_and_its_threads() -> None:
    (row,) = rows([made(1, 0, flow="a"), made(2, 1, flow="b", threads=1)])
    assert row.older == ("flow",)
    assert row.threads == (1, 2)
    assert "older code: flow changed since" in notes(row)
    assert "runs with 1 and 2 threads" in notes(row)
    header, *lines = (line.split(",") for line in rows_csv([row]).splitlines())
    assert {line[header.index("threads")] for line in lines} == {"1 2"}


def test_a_row_of_todays_code_alone_says_nothing_of_it() -> None:
    (row,) = rows([made(1, 0, flow="a"), made(2, 1, flow="a")])
    assert not any("code" in note or "threads" in note for note in notes(row))


def test_a_row_says_that_a_fit_of_it_was_unstable() -> None:
    up = LossCurve(name="fit", steps=(1, 2, 3), loss=(1.0, 9.0, 8.0), examples_per_second=(1.0, 1.0, 1.0))
    unstable = record(score(value=0.5), seed=1, more={"losses": (up,)})
    (row,) = rows([record(score(value=0.5)), unstable])
    assert "unstable fit, its loss did not recover: seed 1: fit rose 9-fold by step 2" in notes(row)
