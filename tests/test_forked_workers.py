"""Workers that fork from the process above them are what interpreters of their own would be, with the imports done."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import execnet
import pytest
from support.forked_workers import BY_EXECNET, Fork, fork_workers, load

PLANTED = {"planted_whole": "", "planted_broken": "x = 1 / 0", "planted_room/__init__": "", "planted_room/chair": "legs = 4"}


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A test file that imports modules, of which one cannot be imported."""
    for name, body in PLANTED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "test_planted.py"
    file.write_text("import planted_broken\nimport os, planted_whole\nfrom planted_room import chair\n")
    yield file
    for name in [name for name in sys.modules if name.startswith("planted_")]:
        del sys.modules[name]


def answer(fork: Fork, code: str) -> bytes:
    """What a fork writes of what it is asked to execute."""
    fork.stdin.write(f"{code!r}\n".encode())
    fork.stdin.flush()
    return fork.stdout.read()


def test_what_test_files_import_is_imported_and_what_cannot_be_is_left_to_the_worker(planted: Path) -> None:
    load([planted])
    assert {name for name in sys.modules if name.startswith("planted_")} == {
        "planted_whole",
        "planted_room",
        "planted_room.chair",
    }


def test_a_fork_executes_what_it_is_sent_in_a_main_module_of_its_own_and_ends_with_a_status() -> None:
    good, bad = Fork([]), Fork([])
    code = "import os, sys; name = 'here'; main = sys.modules['__main__']\n"
    code += "print(os.getppid(), main.name, hasattr(main, '__file__'), sys.argv, 'pytest' in sys.modules, end='', flush=True)"
    assert answer(good, code).decode() == f"{os.getpid()} here False ['-c'] True"
    assert answer(bad, "raise SystemExit") == b""
    assert (good.wait(), good.wait(), bad.wait()) == (0, 0, 1)


def test_a_fork_sees_the_end_of_its_input_while_later_forks_live() -> None:
    first = Fork([])
    second = Fork([first])
    first.stdin.close()
    assert first.stdout.read() == b""
    assert first.wait() != 0
    second.kill()
    assert second.wait() == -9


def test_the_next_workers_are_forks_and_those_after_them_interpreters(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execnet.gateway_io, BY_EXECNET, getattr(execnet.gateway_io, BY_EXECNET))
    options = SimpleNamespace(collectonly=False, tx=["popen"])
    config: Any = SimpleNamespace(option=options, args=[f"{planted}::test_a"], getoption=lambda name, default: "worksteal")
    was_on = gc.isenabled()
    fork_workers(config)
    assert gc.isenabled() or not was_on
    group = execnet.Group(execmodel="main_thread_only")
    workers = [group.makegateway("popen//execmodel=main_thread_only") for _ in range(2)]
    code = "import sys; channel.send(('planted_whole' in sys.modules, __name__))"
    assert [worker.remote_exec(code).receive() for worker in workers] == [(True, "__channelexec__"), (False, "__channelexec__")]
    group.terminate(timeout=10)
