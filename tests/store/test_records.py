import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from support.sample_records import record, score

from compbench.api.schemas import RECORD_FORMAT, Record, RunSpec
from compbench.store.format import MIGRATIONS, dump, parse
from compbench.store.records import Store, read_record, read_records
from compbench.system.errors import CompbenchError
from compbench.system.files import write_atomically

FORMATS = Path(__file__).parent / "fixtures" / "records"
"""A real record as each format wrote it; files here are never rewritten."""


def with_digest(raw: dict) -> bytes:
    """A file whose digest is right, whatever it says."""

    def lines(raw: dict) -> bytes:
        return (json.dumps(raw, sort_keys=True, indent=1) + "\n").encode()

    return lines({**raw, "digest": hashlib.sha256(lines(raw)).hexdigest()})


def test_records_that_share_names_of_fields_say_what_they_said(tmp_path: Path) -> None:
    written = [record(score("heldout_accuracy", 0.5), seed=seed) for seed in range(2)]
    paths = [Store(tmp_path).write(one) for one in written]
    first, second = map(read_record, paths)
    assert first.scores[0].model_fields_set is second.scores[0].model_fields_set
    for path, one in zip(paths, (first, second), strict=True):
        assert one.model_dump(exclude_unset=True) == parse(path.read_bytes()).model_dump(exclude_unset=True)
        assert dump(one) == path.read_bytes()
    named = set(second.spec.model_fields_set)
    assert first.spec.model_copy(update={"settings": {}, "novel": 1}).model_fields_set == named | {"settings", "novel"}
    assert second.spec.model_fields_set == named


def test_a_record_survives_the_round_trip() -> None:
    assert parse(dump(record())) == record()


def test_identity_is_the_hash_of_the_canonical_spec_whatever_the_order_of_settings() -> None:
    one, two = record(settings={"a": 1, "b": 2}).spec, record(settings={"b": 2, "a": 1}).spec
    assert one.identity == two.identity
    assert one.identity != record(settings={"a": 1, "b": 3}).spec.identity


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "no format number"),
        (b'{"format": 99}', "update it"),
        (b'{"format": -1}', "has no digest"),
        (b'{"format": 1}', "has no digest"),
        (b'{"format": 2}', "no digest"),
        (b"x" * (5 * 2**20), "bytes long"),
    ],
)
def test_parse_says_what_is_wrong_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(CompbenchError, match=message):
        parse(content)


def test_parse_rejects_nan() -> None:
    raw = record().model_dump(mode="json")
    for field in ({"seconds": float("nan")}, {"spec": {**raw["spec"], "settings": {"weight": float("inf")}}}):
        with pytest.raises(CompbenchError, match="is not JSON: it holds (NaN|Infinity)."):
            parse(with_digest({**raw, **field}))


def test_format_1_is_refused_even_with_a_digest() -> None:
    with pytest.raises(CompbenchError, match="has format 1, which this compbench does not read"):
        parse(with_digest({**record().model_dump(mode="json"), "format": 1}))


def test_the_digest_is_the_hash_of_all_other_lines() -> None:
    lines = dump(record()).splitlines(keepends=True)
    (own,) = [line for line in lines if line.startswith(b' "digest": ')]
    others = b"".join(line for line in lines if line != own)
    assert own == f' "digest": "{hashlib.sha256(others).hexdigest()}",\n'.encode()


def test_a_score_that_was_edited_is_found_out_by_both_readers(tmp_path: Path) -> None:
    path = tmp_path / "edited.json"
    path.write_bytes(dump(record(score(value=0.5))).replace(b'"value":0.5', b'"value":0.9'))
    with pytest.raises(CompbenchError, match="was changed"):
        parse(path.read_bytes())
    found, problems = read_records([path])
    assert not found
    assert "was changed" in problems[0].reason


def test_a_line_holds_a_whole_score() -> None:
    written = dump(record(score(value=0.5), score("seen_accuracy", 0.9))).decode().splitlines()
    assert [json.loads(line.rstrip(","))["value"] for line in written if line.startswith("  {")] == [0.5, 0.9]


def test_a_formatter_does_not_spoil_a_record() -> None:
    assert parse(json.dumps(json.loads(dump(record()))).encode()) == record()
    indented = (FORMATS / "format-8.json").read_bytes()
    assert parse(json.dumps(json.loads(indented)).encode()) == parse(indented)


@pytest.mark.parametrize("number", range(2, RECORD_FORMAT + 1))
def test_a_stored_record_of_each_format_says_to_both_readers_what_it_said(number: int, tmp_path: Path) -> None:
    name = f"format-{number}.json"
    found = parse((FORMATS / name).read_bytes())
    assert (found.format, found.identity, found.status) == (RECORD_FORMAT, found.spec.identity, "ok")
    assert (found.spec.task, found.spec.method) == ("shapes3d-heavy", "factored")
    assert found.score("heldout_accuracy").value == 0.03333333507180214
    assert found.profile.evaluations_per_sample == 4
    path = tmp_path / f"{found.name}.json"
    path.write_bytes((FORMATS / name).read_bytes())
    assert read_records([path]) == ([found], [])


def test_how_many_parameters_a_mixture_had_is_not_known_before_format_4() -> None:
    old = json.loads((FORMATS / "format-3.json").read_bytes())
    counted = old["profile"]["parameters"]
    assert MIGRATIONS[3](old)["profile"]["parameters"] == counted
    mixture = {**old, "spec": {**old["spec"], "method": "ddm"}}
    assert MIGRATIONS[3](mixture)["profile"] == {**old["profile"], "parameters": None}
    assert MIGRATIONS[3]({**mixture, "profile": None})["profile"] is None


def test_there_is_a_stored_record_of_each_format_and_a_migration_from_each_older_one() -> None:
    stored = {json.loads(path.read_bytes())["format"] for path in FORMATS.glob("*.json")}
    assert stored == set(range(2, RECORD_FORMAT + 1))
    assert set(MIGRATIONS) == set(range(2, RECORD_FORMAT))


def test_a_bad_file_in_the_store_never_hides_the_good_ones(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    (tmp_path / "bad.json").write_text("{")
    found, problems = store.read()
    assert [one.identity for one in found] == [record().identity]
    assert [problem.path.name for problem in problems] == ["bad.json"]


def test_a_record_is_never_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(record())
    with pytest.raises(CompbenchError, match="never overwritten"):
        store.write(record())


def test_attempts_count_past_files_that_cannot_be_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write(record())
    path.write_text("{")
    assert store.next_attempt(record().spec, record().identity) == 2


def test_an_attempt_after_a_gap_is_found_and_the_folder_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, one = Store(tmp_path), record(attempt=5)
    store.write(one)
    monkeypatch.setattr("os.listdir", lambda folder: pytest.fail("listed"))
    monkeypatch.setattr("os.scandir", lambda folder: pytest.fail("listed"))
    assert store.finished(one.spec, [one.identity]) == one
    assert store.commit(one, {"samples.png": b"picture"}).attempt == store.next_attempt(one.spec, one.identity) - 1 == 6
    assert [found.attempt for found in store.attempts(one.spec, one.identity)] == [5, 6]


def test_a_committed_record_is_the_one_on_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = (store.commit(record(), {"samples.png": content}) for content in (b"one", b"two"))
    assert (first.attempt, second.attempt) == (1, 2)
    assert read_record(store.path_of(second)) == second
    assert store.picture(second) == b"two"


def test_a_full_disk_leaves_nothing_behind_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CompbenchError, match="No space left on device; nothing was changed"):
        write_atomically(tmp_path / "record.json", b"{}")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_is_not_the_recorded_one_is_not_shown(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write(record(), {"samples.png": b"picture"})
    written = parse(path.read_bytes())
    assert store.picture(written) == b"picture"
    (tmp_path / written.artifacts[0].name).write_bytes(b"another")
    assert store.picture(written) is None


def test_a_field_more_or_less_needs_a_new_format() -> None:
    """If this fails: raise RECORD_FORMAT, write a migration, and store a record of the new format."""
    stored = (FORMATS / f"format-{RECORD_FORMAT}.json").read_bytes()
    assert dump(parse(stored)) == stored


def models_of(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in a field's type, as in tuple[Score, ...]."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_of(part)


def defaults(model: type[BaseModel]) -> dict[str, object]:
    """The default of each field that a record may leave out, also in the models inside, as JSON; a spec is written whole."""
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        for inner in set(models_of(field.annotation)) - {RunSpec}:
            found |= defaults(inner)
        if not field.is_required() and name != "format":
            found[f"{model.__name__}.{name}"] = to_jsonable_python(field.get_default(call_default_factory=True))
    return found


def test_a_field_that_is_left_out_has_the_default_that_it_had_when_it_was_left_out() -> None:
    """A changed default would change what records of format 13 say: give new records another field instead.

    A new field's default belongs into defaults.json.
    """
    assert defaults(Record) == json.loads((FORMATS.parent / "defaults.json").read_text())
    whole, short = ((FORMATS / f"format-{number}.json").read_bytes() for number in (12, 13))
    assert parse(short) == parse(whole)
    assert len(short) < 0.8 * len(whole)


def test_a_record_has_its_whole_spec_whose_hash_is_its_identity() -> None:
    raw = json.loads(dump(record()))
    canonical = json.dumps(raw["spec"], sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert hashlib.sha256(canonical.encode()).hexdigest() == raw["identity"]


def test_a_folder_of_records_that_may_not_be_listed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("compbench.store.records.os.listdir", refused)
    with pytest.raises(CompbenchError, match=f"could not list {tmp_path}: Permission denied"):
        Store(tmp_path).names()


def test_a_finished_run_is_found_behind_its_killed_attempts_that_were_removed(tmp_path: Path) -> None:
    store, one = Store(tmp_path), record(attempt=20)
    store.write(one)
    found = store.finished(one.spec, [one.identity])
    assert found is not None
    assert found.attempt == 20
