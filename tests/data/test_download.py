import errno
import fcntl
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy
import pytest

from compbench.data import download
from compbench.data.download import fetch, verify
from compbench.data.sources import DataSource, SourceFile
from compbench.system.errors import CompbenchError

CONTENT = bytes(range(256)) * 8000
SHA = hashlib.sha256(CONTENT).hexdigest()


class Mirror(BaseHTTPRequestHandler):
    """/a has the file and resumes, /plain does not resume, /other has another file, /missing has none."""

    cuts: list[int] = []
    asked: list[str] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        type(self).asked.append(f"{self.path} {wanted}".strip())
        if self.path == "/missing":
            self.send_error(404)
            return
        content = CONTENT[::-1] if self.path == "/other" else CONTENT
        first = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.path != "/plain" else 0
        if first >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        body = content[first:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if type(self).cuts:
            body = body[: type(self).cuts.pop(0)]
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def mirror() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    Mirror.asked, Mirror.cuts = [], []
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def source(*urls: str, sha256: str = SHA, size: int = len(CONTENT)) -> DataSource:
    return DataSource("thing", "a thing", (SourceFile("thing.bin", urls, size, sha256),), "", "")


def test_a_cut_download_goes_on_where_it_stopped(mirror: str, tmp_path: Path) -> None:
    Mirror.cuts = [1_000_000]
    (path,) = fetch(source(f"{mirror}/a"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert Mirror.asked == ["/a", "/a bytes=1000000-"]
    assert not list(tmp_path.glob("*.part"))


def test_a_mirror_is_asked_for_as_long_as_it_brings_something_new(mirror: str, tmp_path: Path) -> None:
    Mirror.cuts = [200_000] * 8
    fetch(source(f"{mirror}/a"), tmp_path)
    assert len(Mirror.asked) == 9


def test_a_mirror_that_brings_nothing_new_is_given_up_and_the_next_goes_on(mirror: str, tmp_path: Path) -> None:
    Mirror.cuts = [1_000_000, 0, 0, 0]
    (path,) = fetch(source(f"{mirror}/a", f"{mirror}/a?second"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert Mirror.asked[-1] == "/a?second bytes=1000000-"


def test_a_part_of_an_earlier_fetch_is_resumed(mirror: str, tmp_path: Path) -> None:
    Mirror.cuts = [1_000_000, 0, 0, 0]
    with pytest.raises(CompbenchError, match="1000000 bytes are kept; run the command again"):
        fetch(source(f"{mirror}/a"), tmp_path)
    fetch(source(f"{mirror}/a"), tmp_path)
    assert Mirror.asked[-1] == "/a bytes=1000000-"


def test_a_mirror_that_does_not_resume_starts_over(mirror: str, tmp_path: Path) -> None:
    Mirror.cuts = [1_000_000]
    (path,) = fetch(source(f"{mirror}/plain"), tmp_path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_part_of_another_file_is_dropped_and_fetched_from_the_start(mirror: str, tmp_path: Path, stale: bytes) -> None:
    (tmp_path / "thing.bin.part").write_bytes(stale)
    (path,) = fetch(source(f"{mirror}/a"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert Mirror.asked[-1] == "/a"


@pytest.mark.parametrize("first", ["missing", "other"])
def test_the_second_mirror_is_tried_if_the_first_has_not_the_right_file(mirror: str, tmp_path: Path, first: str) -> None:
    (path,) = fetch(source(f"{mirror}/{first}", f"{mirror}/a"), tmp_path)
    assert path.read_bytes() == CONTENT


def test_a_hash_mismatch_keeps_nothing_and_names_both_hashes(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match=f"SHA-256 is {SHA}, expected {'0' * 64}.*nothing was kept"):
        fetch(source(f"{mirror}/a", sha256="0" * 64), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thing.bin.lock"]


def test_a_mirror_with_a_file_of_another_size_is_not_read(mirror: str, tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match=f"offers {len(CONTENT)} bytes, expected 12"):
        fetch(source(f"{mirror}/a", size=12), tmp_path)
    assert not (tmp_path / "thing.bin.part").exists()


def test_a_copy_brought_by_hand_is_verified_in_the_same_way(mirror: str, tmp_path: Path) -> None:
    (tmp_path / "thing.bin").write_bytes(CONTENT)
    fetch(source(f"{mirror}/a"), tmp_path)
    assert Mirror.asked == []
    (tmp_path / "thing.bin").write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(CompbenchError, match="is wrong: SHA-256"):
        fetch(source(f"{mirror}/a"), tmp_path)
    assert [status.state for status in verify(source(), tmp_path)] == ["wrong"]


def test_a_file_of_unknown_hash_is_trusted_once_and_checked_from_then_on(tmp_path: Path) -> None:
    unknown = source("http://127.0.0.1:9/a", sha256="", size=0)
    path = tmp_path / "thing.bin"
    path.write_bytes(CONTENT)
    assert f"SHA-256 {SHA} is trusted and recorded" in verify(unknown, tmp_path)[0].detail
    assert (tmp_path / "thing.bin.sha256").read_text() == f"{SHA}  thing.bin\n"
    assert verify(unknown, tmp_path)[0].detail == "matches the hash of its first use"
    path.write_bytes(CONTENT[:-1] + b"x")
    (status,) = verify(unknown, tmp_path)
    assert status.state == "wrong"
    assert "delete thing.bin.sha256" in status.detail


@pytest.mark.parametrize(("count", "damage"), [(3, False), (2, False), (3, True)])
def test_an_npz_of_unknown_hash_must_have_the_right_structure_and_its_own_crc(tmp_path: Path, count: int, damage: bool) -> None:
    path = tmp_path / "thing.npz"
    numpy.savez(path, images=numpy.zeros((count, 64, 64, 3), numpy.uint8))
    if damage:
        content = bytearray(path.read_bytes())
        content[5000] ^= 1
        path.write_bytes(content)
    thing = DataSource("thing", "", (SourceFile("thing.npz", ("http://127.0.0.1:9/a",), num_images=3),), "", "")
    (status,) = verify(thing, tmp_path)
    assert (status.state == "ok") == (count == 3 and not damage)
    assert (tmp_path / "thing.npz.sha256").exists() == (status.state == "ok")


def test_offline_names_the_file_its_size_and_its_place(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match=rf"thing.bin of 'thing' is missing \({len(CONTENT)} bytes\).*{tmp_path}"):
        fetch(source("http://127.0.0.1:9/a"), tmp_path, offline=True)
    assert not list(tmp_path.iterdir())


def test_two_fetches_of_one_file_do_not_meet(mirror: str, tmp_path: Path) -> None:
    with (tmp_path / "thing.bin.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CompbenchError, match="being fetched by another process"):
            fetch(source(f"{mirror}/a"), tmp_path)


def test_too_small_a_disk_is_seen_before_anything_is_written(mirror: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(download, "SPARE_BYTES", 2**62)
    with pytest.raises(CompbenchError, match="GiB free"):
        fetch(source(f"{mirror}/a"), tmp_path)
    assert not (tmp_path / "thing.bin.part").exists()


def test_a_disk_that_fills_up_ends_the_fetch_and_is_named(mirror: str, tmp_path: Path, monkeypatch) -> None:
    def full(*args: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_transfer", full)
    with pytest.raises(CompbenchError, match="is full"):
        fetch(source(f"{mirror}/a"), tmp_path)


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompbenchError, match="cannot write in"):
        fetch(source("http://127.0.0.1:9/a"), tmp_path / "file")


def test_a_file_that_the_machine_cannot_read_is_kept_and_not_called_wrong(tmp_path: Path, monkeypatch) -> None:
    """/proc/self/mem is a plain file that nobody may read from its beginning."""
    monkeypatch.setattr(download, "_transfer", lambda *asked: True)  # the part is whole
    thing, unread = source("http://127.0.0.1:9/a", size=0), Path("/proc/self/mem")
    (tmp_path / "thing.bin").symlink_to(unread)
    (status,) = verify(thing, tmp_path)
    assert (status.state, status.sha256) == ("unreadable", "")
    assert status.detail.startswith("it could not be read (Input/output error); keep it, and check its rights, the disk")
    for name in ("thing.bin", "thing.bin.part"):
        (tmp_path / "thing.bin").rename(tmp_path / name)
        with pytest.raises(CompbenchError, match=rf"^{tmp_path}/{name}: it could not be read .*; keep it"):
            fetch(thing, tmp_path)
        assert (tmp_path / name).readlink() == unread
    assert not (tmp_path / "thing.bin.sha256").exists()


def test_no_mirror_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CompbenchError, match="copy the file into .* by hand"):
        fetch(source("http://127.0.0.1:9/a"), tmp_path)


def test_progress_hears_bytes_and_then_the_check(mirror: str, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    fetch(source(f"{mirror}/a"), tmp_path, progress=lambda *event: heard.append(event))
    assert heard[0][0] == "thing.bin"
    assert heard[-1] == ("thing.bin (checking)", len(CONTENT), len(CONTENT))
