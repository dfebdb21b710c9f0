"""The sandbox around a contestant; skipped where the kernel has no Landlock."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compbench.api.schemas import RunRequest
from compbench.runner import sandbox, worker
from compbench.runner.messages import Begin
from compbench.system import devices

pytestmark = pytest.mark.skipif(sandbox.abi() == 0, reason="this kernel has no Landlock")

HEAD = """
import ctypes, errno, json, os, resource, signal, socket, stat, sys, threading
from pathlib import Path
from compbench.system import devices
from compbench.runner import sandbox, worker
from compbench.api.schemas import RunRequest
root = Path(sys.argv[1])
names = []
def kept(name, *given):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*given) < 0:
        raise OSError(ctypes.get_errno(), name)
def name_myself():
    own = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
    own.write_text("cuda-EvtHandlr")
    names.append(own.read_text().strip())
def writable(top):
    # what an open descriptor points to is not the folder's
    for folder, _, files in os.walk(top):
        for name in files if os.path.basename(folder) != "fd" else ():
            try:
                os.close(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                continue
            yield os.path.realpath(os.path.join(folder, name))
sandbox.put_up(forbidden=[root / "references", root / "records" / "one.json"], writable=[root / "run"])
"""


TRIES = """
found = []
for body in json.load(sys.stdin):
    try:
        exec(body)
        found.append("")
    except Exception as error:
        found.append(errno.errorcode.get(getattr(error, "errno", None), repr(error)))
print(json.dumps(found))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return filled(tmp_path)


def filled(folder: Path) -> Path:
    for name in ("references", "records", "run", "data"):
        (folder / name).mkdir()
        (folder / name / "one.json").write_text(name)
    (folder / "way").symlink_to(folder / "references")
    (folder / "all").symlink_to(folder.parent)
    return folder


def inside(root: Path, *bodies: str) -> list[str]:
    """The names of the errors that bodies end with inside one sandbox, one after the other; "" for none."""
    command = [sys.executable, "-c", HEAD + TRIES, str(root)]
    done = subprocess.run(command, input=json.dumps(bodies), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


DENIED = (
    "(root / 'references' / 'one.json').read_text()",
    "(root / 'way' / 'one.json').read_text()",
    "(root / 'all' / root.name / 'references' / 'one.json').read_text()",
    "(root / 'run' / '..' / 'references' / 'one.json').read_text()",
    "os.link(root / 'references' / 'one.json', root / 'run' / 'mine.json')",
    "os.rename(root / 'references', root / 'run' / 'mine')",
    "(root / 'records' / 'one.json').read_text()",
    "(root / 'data' / 'one.json').write_text('x')",
    "(root / 'data' / 'two.json').write_text('x')",
    "(root / 'data' / 'one.json').unlink()",
    "os.truncate(root / 'data' / 'one.json', 0)",
    "os.system('cat ' + str(root / 'references' / 'one.json')) == 0 or open(root / 'references' / 'one.json')",
    "os.kill(os.getppid(), 0)",
    "socket.create_connection(('127.0.0.1', 9), timeout=1)",
    "os.mknod(root / 'run' / 'disk', 0o600 | stat.S_IFBLK, os.makedev(7, 0))",
    "os.mknod(root / 'run' / 'line', 0o600 | stat.S_IFCHR, os.makedev(5, 0))",
    "os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY)",
    "Path('/dev/shm/compbench-left').write_text('weights')",
    "os.setxattr(root / 'run' / 'one.json', 'user.weights', b'x')",
    "kept('shmget', 7, 4096, 0o1600)",
    "kept('semget', 7, 1, 0o1600)",
    "kept('msgget', 7, 0o1600)",
    "kept('mq_open', b'/weights', 0o102, 0o600, None)",
    "kept('syscall', sandbox.KEEPING[os.uname().machine][1][4], b'user', b'weights', b'x', 1, -4)",
)
WORKS = (
    "assert (root / 'data' / 'one.json').read_text() == 'data'",
    "(root / 'run' / 'two.json').write_text('x'); (root / 'run' / 'two.json').unlink()",
    "os.listdir(root), os.listdir('/')",
    "open('/dev/null', 'w').write('x')",
    "os.kill(os.getpid(), 0)",
    "import subprocess; subprocess.run(['true'], check=True)",
    "other = threading.Thread(target=name_myself); other.start(); other.join(); assert names == ['cuda-EvtHandlr']",
)
OPEN = {
    "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)": "prlimit",
    "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(os.getppid()))": "sched_setaffinity",
    "(root / 'data' / 'one.json').chmod(0o600)": "chmod",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))": "UDP",
    "there = socket.socket(socket.AF_UNIX); there.connect(str(root / 'helper'))": "Unix sockets",
}
"""Body -> the word of the security page for it."""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """How each of these bodies ends: one process tries them all, for what is denied changes nothing for the next."""
    root = filled(tmp_path_factory.mktemp("root"))
    bodies = (*DENIED, *WORKS, *OPEN)
    with socket.socket(socket.AF_UNIX) as helper:
        helper.bind(str(root / "helper"))
        helper.listen()
        return dict(zip(bodies, inside(root, *bodies), strict=True))


@pytest.mark.parametrize("body", DENIED)
def test_inside_the_sandbox_this_is_denied(ends: dict[str, str], body: str) -> None:
    assert ends[body] in ("EACCES", "EPERM", "EXDEV")


@pytest.mark.parametrize("body", WORKS)
def test_inside_the_sandbox_this_still_works(ends: dict[str, str], body: str) -> None:
    assert ends[body] == ""


@pytest.mark.parametrize("body", OPEN)
def test_what_the_security_page_calls_open_is_open(ends: dict[str, str], body: str) -> None:
    """What is closed one day is to be taken off the page."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    assert OPEN[body] in page.split("## Not protected")[1]
    assert ends[body] == ""


def test_inside_the_sandbox_no_terminal_of_the_user_is_written_to(root: Path) -> None:
    ours, theirs = os.openpty()
    assert inside(root, f"os.open({os.ttyname(theirs)!r}, os.O_WRONLY | os.O_NOCTTY)") == ["EACCES"]
    os.close(ours)
    os.close(theirs)


def test_inside_the_sandbox_nothing_of_proc_is_writable_but_what_the_process_s_own_threads_have(root: Path) -> None:
    own = "os.path.realpath('/proc/self/task') + '/'"
    others = f"others = [path for path in writable('/proc') if not path.startswith({own})]; assert not others, others"
    way_out = "(Path('/proc/self/task') / str(os.getpid()) / f'root{root}/data/one.json').write_text('x')"
    assert inside(root, others, way_out) == ["", "EACCES"]


def test_without_a_sandbox_nothing_changes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.OFF, "off")
    assert sandbox.kind() == "off"
    assert inside(root, "(root / 'references' / 'one.json').read_text()") == [""]


@pytest.mark.parametrize(
    ("device", "order"), [("auto", ["cuda", "sandbox"]), ("cuda", ["cuda", "sandbox"]), ("cpu", ["sandbox"])]
)
def test_cuda_is_started_before_the_sandbox_stands(
    root: Path, monkeypatch: pytest.MonkeyPatch, device: str, order: list[str]
) -> None:
    class Stop(Exception):
        pass

    def stand(home: object, folder: object) -> None:
        done.append("sandbox")
        raise Stop

    done: list[str] = []
    monkeypatch.setattr(devices, "start_cuda", lambda: done.append("cuda"))
    monkeypatch.setattr(worker, "confine", stand)
    request = RunRequest(method="mono", task="blobs", home=str(root), device=device)
    with pytest.raises(Stop):
        worker._serve_contestant(Begin(request=request, folder=str(root)), None, None, None)
    assert done == order
