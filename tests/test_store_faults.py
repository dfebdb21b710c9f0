"""A store under sixteen writers, killed writers and a disk that fills up in the middle of a file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path

from boards.sample_records import record

from compbench.errors import Unwritable
from compbench.records import Store, Taken

TESTS = Path(__file__).parent


def test_of_sixteen_writers_of_one_attempt_one_wins_and_its_picture_is_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outcomes: list[object] = []
    together = threading.Barrier(16)

    def write(number: int) -> None:
        together.wait()
        try:
            store.write(record(), {"samples.png": b"%d" % number})
            outcomes.append(number)
        except Taken as taken:
            outcomes.append(taken)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, int)]
    (found,), problems = store.read()
    assert problems == []
    assert found.artifacts[0].sha256 == hashlib.sha256(b"%d" % winner).hexdigest()
    assert (tmp_path / found.artifacts[0].name).read_bytes() == b"%d" % winner
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_writer_left_is_swept_up_and_its_number_used_again(tmp_path: Path) -> None:
    code = "import os, signal, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
    code += "from boards.sample_records import record; from compbench import records\n"
    code += "records.dump = lambda record: os.kill(os.getpid(), signal.SIGKILL)\n"
    code += "records.Store(Path(sys.argv[1])).write(record(), {'samples.png': b'half'})\n"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(TESTS)], check=False)
    assert killed.returncode == -9
    store, one = Store(tmp_path), record()
    assert store.paths() == []
    assert store.next_attempt(one.identity) == 2
    other = record(seed=1)
    store.write(other, {"samples.png": b"whole"})
    store.sweep_up(other.identity)
    store.sweep_up(one.identity)
    assert store.next_attempt(one.identity) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{other.name}.json", f"{other.name}.samples.png"]


def test_a_record_that_the_disk_has_no_room_for_is_absent_and_can_be_written_later(tmp_path: Path) -> None:
    code = "import resource, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
    code += "from boards.sample_records import record; from compbench.records import Store\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    code += "try: Store(Path(sys.argv[1])).write(record(), {'samples.png': b'small'})\n"
    code += "except Exception as error: print(type(error).__name__, error)\n"
    full = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(TESTS)], capture_output=True, text=True, check=True)
    assert full.stdout.startswith(f"{Unwritable.__name__} could not write {tmp_path}")
    store = Store(tmp_path)
    assert store.read() == ([], [])
    store.write(record(), {"samples.png": b"small"})
    assert len(store.read()[0]) == 1
