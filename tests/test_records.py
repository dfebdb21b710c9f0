import json
from pathlib import Path

import pytest
from boards.sample_records import record

from compbench.errors import CompbenchError
from compbench.records import Store, dump, parse, write_atomically


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
        (b'{"format": 1}', "not a record"),
        (b"x" * (5 * 2**20), "bytes long"),
    ],
)
def test_parse_says_what_is_wrong_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(CompbenchError, match=message):
        parse(content)


def test_parse_rejects_nan() -> None:
    raw = json.loads(dump(record()))
    raw["seconds"] = float("nan")
    with pytest.raises(CompbenchError, match="seconds"):
        parse(json.dumps(raw).encode())


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
    assert store.next_attempt(record().identity) == 2


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
