"""Records made to break a board, or to push honest ones aside: each is passed over with a reason, the board stays as it was."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from pathlib import Path

import pytest
from support.sample_boards import whole
from support.sample_records import png, record, score

from compbench.api.schemas import Record
from compbench.board.aggregate import rows
from compbench.board.render_html import Picture, to_html
from compbench.board.site import rebuild
from compbench.store.format import MAX_RECORD_BYTES, dump
from compbench.store.records import Store
from compbench.store.verification import beside
from compbench.system.files import read_limited

HONEST = [record(score(value=0.5 + seed / 100), seed=seed) for seed in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of three honest records, with their board."""
    for own in HONEST:
        Store(tmp_path / "records").write(own, {"samples.png": png()})
    rebuild(tmp_path / "records", tmp_path / "site")
    return tmp_path / "records"


def board(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    pages, problems = rebuild(folder, folder.parent / "site")
    return {page.name: page.read_bytes() for page in pages}, [problem.reason for problem in problems]


def undigested(own: Record) -> dict:
    """The JSON object of a record, whose digest a forger renews when he is done."""
    raw = json.loads(dump(own))
    del raw["digest"]
    return raw


def digested(raw: dict) -> str:
    lines = json.dumps(raw, sort_keys=True, indent=1) + "\n"
    return json.dumps({**raw, "digest": hashlib.sha256(lines.encode()).hexdigest()}, sort_keys=True, indent=1) + "\n"


def forge(folder: Path, change) -> None:
    """Put a record of another seed into the store, changed, with an identity and a file name that fit the change."""
    raw = undigested(record(seed=7))
    change(raw)
    spec = raw["spec"]
    if raw["identity"] == record(seed=7).identity:
        raw["identity"] = hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    stem = f"{spec['task']}.{spec['method']}.{spec['preset']}.s{spec['seed']}.{raw['identity'][:12]}.{raw['attempt']}"
    (folder / f"{stem.replace('/', '_')}.json").write_text(digested(raw))


def test_the_forger_of_these_tests_is_good_enough(folder: Path) -> None:
    before, _ = board(folder)
    forge(folder, put("scores.0.value", 0.9))
    after, problems = board(folder)
    assert after != before
    assert problems == []


def put(key: str, value: object):
    def change(raw: dict) -> None:
        *way, last = key.split(".")
        for part in way:
            raw = raw[int(part)] if part.isdigit() else raw.setdefault(part, {})
        raw[last] = value

    return change


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "change",
    [
        put("spec.method", "<script>alert(1)</script>"),
        put("spec.method", "../../../etc/passwd"),
        put("spec.task", "a/b"),
        put("artifacts", [{"name": "../../secret.samples.png", "sha256": "0" * 64}]),
        put("artifacts", [{"name": f"{HONEST[0].name}.samples.png", "sha256": "0" * 64}]),
        put("scores.0.value", float("nan")),
        put("scores.0.value", float("inf")),
        put("scores.0.value", 1e308),
        put("scores.0.ceiling", -1e308),
        put("scores.0.n", 10**4000),
        put("scores.0.name", "heldout <b>"),
        put("scores.0.unit", "x" * 41),
        put("scores", [undigested(HONEST[0])["scores"][0]] * 2),
        put("scores", [undigested(HONEST[0])["scores"][0]] * 1000),
        put("profile.parameters", 10**300),
        put("profile.sample_samples_per_second", 1e300),
        put("seconds", float("inf")),
        put("seconds", -1),
        put("attempt", 10**9),
        put("environment.cpu", "x" * 1000),
        put("plugin.distribution", "x" * 1000),
        put("notes", {"clipped": float("nan")}),
        put("spec.settings", {"hidden": float("nan")}),
        put("spec.settings", {"hidden": nested(900)}),
        put("spec.seed", 2**31),
        put("identity", HONEST[0].identity),
        put("identity", "0" * 64),
        put("surprise", 1),
    ],
)
def test_a_record_that_no_run_writes_changes_nothing(folder: Path, change) -> None:
    before, _ = board(folder)
    forge(folder, change)
    after, problems = board(folder)
    assert after == before
    assert len(problems) == 1
    assert problems[0]
    assert "\n" not in problems[0]


def test_a_copy_under_another_name_counts_once(folder: Path) -> None:
    before, _ = board(folder)
    first = next(iter(Store(folder).paths()))
    (folder / "copy.json").write_bytes(first.read_bytes())
    after, problems = board(folder)
    assert after == before
    assert "under another name" in problems[0]


def test_a_string_of_a_gigabyte_is_refused_unread(folder: Path) -> None:
    before, _ = board(folder)
    path = folder / "large.json"
    with path.open("wb") as file:
        file.truncate(2**30)  # sparse: costs nothing, unless it is read
    assert path.stat().st_size > MAX_RECORD_BYTES
    beside(folder).mkdir()
    os.link(path, beside(folder) / "large.json")
    after, problems = board(folder)
    assert after == before
    assert [problem.split(";")[0] for problem in problems] == ["is 1073741824 bytes long"] * 2


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_what_is_no_plain_file_is_not_opened(folder: Path, kind: str) -> None:
    before, _ = board(folder)
    path = folder / "odd.json"
    if kind == "link":
        path.symlink_to(next(iter(Store(folder).paths())))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    after, problems = board(folder)
    assert after == before
    assert problems == ["is not a regular file; symbolic links, pipes and devices are refused."]


def test_a_picture_is_not_taken_from_a_link(folder: Path) -> None:
    own = HONEST[0]
    picture = next(folder.glob(f"{own.name}*.png"))
    stored = next(one for one in Store(folder).read()[0] if one.identity == own.identity)
    assert Store(folder).picture(stored) == png()
    secret = folder.parent / "secret.png"
    secret.write_bytes(picture.read_bytes())
    picture.unlink()
    picture.symlink_to(secret)
    assert Store(folder).picture(stored) is None


def test_a_picture_of_a_million_pixels_a_side_is_not_shown() -> None:
    header = struct.pack(">IIBBBBB", 10**6, 10**6, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    (row,) = rows(HONEST)
    assert "data:image/png" in to_html(whole([row]), (), {(row.section, row.method): Picture(0, png())})
    assert "data:image/png" not in to_html(whole([row]), (), {(row.section, row.method): Picture(0, bomb)})


def test_a_limit_holds_for_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10)
    assert read_limited(path, 10) == b"x" * 10


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (record(score(value=1.0, metric_version=99), method="evil"), "version 99 of metric 'accuracy'"),
        (record(score(value=0.0, direction="lower"), method="evil"), "says that lower is better"),
        (record(score(value=1.0), method="evil", task_version=99), "version 99 of 'shapes3d-heavy'"),
    ],
)
def test_claims_of_another_compbench_are_passed_over(folder: Path, hostile: Record, reason: str) -> None:
    before, _ = board(folder)
    Store(folder).write(hostile)
    after, problems = board(folder)
    assert after == before
    assert reason in problems[0]


def test_one_record_does_not_change_what_a_board_ranks_by() -> None:
    evil = record(score("heldout_aaa", 1.0, metric="aaa", primary=True), method="evil")
    board = {row.method: row for row in rows([*HONEST, evil])}
    assert board["factored"].primary == "heldout_accuracy"
    assert board["factored"].rank.rank == 1
    assert board["evil"].rank is None


def test_anothers_method_of_the_same_name_is_another_row() -> None:
    theirs = record(score(value=1.0), seed=0, code="b" * 64, more={"started": "9999-01-01", "plugin": {"distribution": "evil"}})
    board = rows([*HONEST, theirs])
    honest = next(row for row in board if len(row.seeds) == 3)
    assert honest.scores["heldout_accuracy"].mean == pytest.approx(0.51)
    assert {row.variant for row in board} == {"from ", "from evil"}


def test_enormous_numbers_within_bounds_still_make_a_board(folder: Path) -> None:
    large = [
        record(
            score("heldout_fd_judge", value=1e18, primary=True),
            score("heldout_kid", -1e18),
            seed=seed,
            method="large",
            speed=1e18,
        )
        for seed in range(3)
    ]
    for own in large:
        Store(folder).write(own)
    pages, problems = board(folder)
    assert problems == []
    assert b"inf" not in pages["board.csv"]
    assert b"nan" not in pages["board.csv"]
