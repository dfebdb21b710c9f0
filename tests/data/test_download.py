import fcntl
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compbench.data.download import fetch, verify
from compbench.data.sources import SOURCES, DataSource, SourceFile
from compbench.errors import CompbenchError

CONTENT = bytes(range(256)) * 8000
SHA = hashlib.sha256(CONTENT).hexdigest()


class Mirror(BaseHTTPRequestHandler):
    cut_after = 0
    ranges: list[str] = []

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        asked = self.headers.get("Range", "")
        type(self).ranges.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        body = CONTENT[first:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).cut_after:
            body, type(self).cut_after = body[: type(self).cut_after], 0
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture
def mirror() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    Mirror.ranges, Mirror.cut_after = [], 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def source(*urls: str, sha256: str = SHA, size: int = len(CONTENT)) -> DataSource:
    return DataSource("thing", "a thing", (SourceFile("thing.bin", urls, size, sha256),), "", "")


def test_a_cut_download_goes_on_where_it_stopped(mirror: str, tmp_path: Path) -> None:
    Mirror.cut_after = 1_000_000
    (path,) = fetch(source(f"{mirror}/a"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert Mirror.ranges == ["", "bytes=1000000-"]
    assert not list(tmp_path.glob("*.part"))


def test_the_second_mirror_is_tried_if_the_first_has_nothing(mirror: str, tmp_path: Path) -> None:
    (path,) = fetch(source(f"{mirror}/missing", f"{mirror}/a"), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_hash_mismatch_keeps_nothing_under_the_name(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="expected 000000.*nothing was kept"):
        fetch(source(f"{mirror}/a", sha256="0" * 64), tmp_path)
    assert not (tmp_path / "thing.bin").exists()


def test_a_copy_brought_by_hand_is_verified_in_the_same_way(mirror: str, tmp_path: Path) -> None:
    (tmp_path / "thing.bin").write_bytes(CONTENT)
    fetch(source(f"{mirror}/a"), tmp_path)
    assert Mirror.ranges == []
    (tmp_path / "thing.bin").write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(CompbenchError, match="is wrong: SHA-256"):
        fetch(source(f"{mirror}/a"), tmp_path)
    assert [status.state for status in verify(source(), tmp_path)] == ["wrong"]


def test_a_file_of_unknown_hash_is_trusted_once_and_checked_from_then_on(mirror: str, tmp_path: Path) -> None:
    unknown = source(f"{mirror}/a", sha256="", size=0)
    (path,) = fetch(unknown, tmp_path)
    assert verify(unknown, tmp_path)[0].detail == "matches the hash of its first use"
    path.write_bytes(CONTENT[:-1] + b"x")
    assert verify(unknown, tmp_path)[0].state == "wrong"


def test_offline_names_the_file_its_size_and_its_place(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match=rf"thing.bin \({len(CONTENT)} bytes\).*{tmp_path}"):
        fetch(source("http://127.0.0.1:9/a"), tmp_path, offline=True)


def test_two_fetches_of_one_file_do_not_meet(mirror: str, tmp_path: Path) -> None:
    with (tmp_path / "thing.bin.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CompbenchError, match="being fetched by another process"):
            fetch(source(f"{mirror}/a"), tmp_path)


def test_no_mirror_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="bring it by hand"):
        fetch(source("http://127.0.0.1:9/a"), tmp_path)


def test_every_source_says_where_it_is_from() -> None:
    for one in SOURCES.values():
        assert one.citation
        assert one.licence
        assert all(file.urls for file in one.files)
