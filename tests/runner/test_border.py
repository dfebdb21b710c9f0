"""What a contestant leaves, sends or breaks stays its own: nothing of it reaches another file, run or method."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from compbench.api.schemas import Record, RunRequest
from compbench.runner import processes, sandbox
from compbench.runner.attempt import LEAST_BYTES, MOST_BYTES, most_bytes
from compbench.runner.one_run import run
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.files import publish, remove_tree
from compbench.system.home import CLOSED, FROM_DATA, Home

inside = pytest.mark.skipif(sandbox.abi() == 0, reason="this kernel has no Landlock")


def attempt(home: Path, file: Path, **more: object) -> Record:
    facts = {"task": "blobs-iid", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1}
    return run(RunRequest(**{**facts, **more}, plugins=(str(file),), home=str(home)), force=True).record


NAMES = ("model.safetensors", "checkpoint.safetensors")
RUN = "Path(os.environ['TMPDIR']).parent / 'run'"
HEAD = "from pathlib import Path\n"
WRITES = (
    HEAD
    + """
def writes(*places):
    found = 0
    for place in places:
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
            (Path(place) / "mine").write_text("mine")
            found += 1
        except OSError:
            continue
    return found
"""
)


@inside
def test_a_contestant_writes_to_its_own_folder_and_nowhere_else(home: Path, plugin) -> None:
    for name in ("cache", "runs", "leases", "references", "records", "board", "data"):
        (home / name).mkdir(exist_ok=True)
    places = [
        str(home / name) for name in ("", "cache", "cache/data", "runs", "leases", "references", "records", "board", "data")
    ]
    places += [str(Path.home()), "/tmp", "/dev", str(Path.cwd())]
    body = f"ctx.notes['elsewhere'] = writes(*{places!r}); ctx.notes['own'] = writes(os.environ['TMPDIR'], {RUN})"
    record = attempt(home, plugin(head=WRITES, fit=body))
    assert record.status == "ok", record.reason
    assert (record.notes["fit elsewhere"], record.notes["fit own"]) == (0, 2)


@inside
def test_a_run_in_another_home_closes_the_users_own_too(home: Path, tmp_path: Path, plugin, monkeypatch) -> None:
    """As `reproduce` makes one inside of the user's, and the gate one elsewhere."""
    user, gated = tmp_path / "user", tmp_path / "gated"
    places = [user / name for name in ("references", "records", "board", "runs", "leases", "levels")] + [gated / "records"]
    for place in places:
        place.mkdir(parents=True)
        (place / "secret").write_text("secret")
    (home / "references").mkdir(exist_ok=True)
    (user / "inner").mkdir()
    (user / "inner" / "references").symlink_to(home / "references")
    monkeypatch.setenv("COMPBENCH_HOME", str(user))
    monkeypatch.setenv(CLOSED, json.dumps([str(gated / "records")]))
    head = "def readable(path):\n    try:\n        return bool(open(path).read())\n    except OSError:\n        return False\n"
    fit = f"ctx.notes['read'] = sum(readable(path + '/secret') for path in {list(map(str, places))!r})"
    record = attempt(user / "inner", plugin(head=head, fit=fit))
    assert (record.status, record.notes["fit read"]) == ("ok", 0), record.reason


@pytest.mark.parametrize("poison", ["other bytes", "a link"])
def test_a_copy_of_the_data_that_is_not_the_referees_is_made_again(tmp_path: Path, poison: str) -> None:
    home, outside = Home(tmp_path), tmp_path / "outside"
    (home.references / FROM_DATA).mkdir(parents=True)
    (home.references / FROM_DATA / "one.npz").write_bytes(b"pixels")
    home.share_data(tmp_path / "own")
    copy = home.cache / FROM_DATA / "one.npz"
    outside.write_bytes(b"pixels")
    copy.unlink()
    copy.write_bytes(b"poison") if poison == "other bytes" else copy.symlink_to(outside)
    home.share_data(tmp_path / "own")
    outside.write_bytes(b"poison")
    assert (tmp_path / "own" / FROM_DATA / "one.npz").read_bytes() == copy.read_bytes() == b"pixels"
    assert not copy.is_symlink()


def test_a_lock_in_the_shared_data_stops_no_run(home: Path, plugin) -> None:
    """A process that opened the data there itself left it; a contestant may not write to it."""
    folder = home / "cache" / FROM_DATA
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "one.lock").touch()
    (folder / "one.npz").write_bytes(b"pixels")
    own = f"({RUN}).parent / 'cache/data'"
    fit = f"own = {own}; (own / 'one.lock').write_text(''); ctx.notes['read'] = (own / 'one.npz').stat().st_size"
    record = attempt(home, plugin(head=HEAD, fit=fit))
    assert (record.status, record.notes.get("fit read")) == ("ok", len(b"pixels")), record.reason


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint.safetensors", "samples.png"])
def test_a_link_in_the_runs_folder_overwrites_nothing_and_is_not_followed(home: Path, tmp_path: Path, plugin, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    fit = f"p = {RUN} / {name!r}; p.parent.mkdir(exist_ok=True); p.is_symlink() or p.symlink_to({str(outside)!r})"
    record = attempt(home, plugin(head=HEAD, fit=fit))
    assert outside.read_text() == "precious"
    assert record.status == ("failed" if name == "model.safetensors" else "ok"), record.reason
    found = home / "runs" / record.identity / name
    assert not found.exists()
    assert not found.is_symlink()


LINKS = """
from pathlib import Path
OWN = Path(os.environ["TMPDIR"]).parent
def link(name, target):
    place = OWN / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        place.rename(place.with_name(f"{name.replace('/', '-')}-was"))
    place.is_symlink() or place.symlink_to(target)
"""


def state(folder: Path) -> dict[str, tuple[str, bytes]]:
    """All below a folder: modes, links and contents."""
    return {
        str(path.relative_to(folder)): (oct(path.lstat().st_mode), b"" if path.is_dir() else path.read_bytes())
        for path in sorted(folder.rglob("*"))
    }


@inside
@pytest.mark.parametrize(
    ("when", "name"),
    [("at its import", "run"), ("at its import", "cache/data"), ("in its fit", "run"), ("in its samples", "run")],
)
def test_a_link_in_place_of_a_folder_leads_the_parent_nowhere(home: Path, tmp_path: Path, plugin, when: str, name: str) -> None:
    """The parent published, linked, deleted and changed modes through such links."""
    victim = tmp_path / "victim"
    (home / "references" / FROM_DATA).mkdir(parents=True, exist_ok=True)
    (home / "references" / FROM_DATA / "one.npz").write_bytes(b"the referee's")
    for place in ("one.npz", "checkpoint.safetensors", "model.safetensors", "compiled.bin"):
        (victim / "data" / place).parent.mkdir(parents=True, exist_ok=True)
        for folder in (victim, victim / "data"):
            (folder / place).write_bytes(b"precious")
            (folder / place).chmod(0o400)
    before, call = state(victim), f"link({name!r}, {str(victim)!r})"
    bodies = {"at its import": {"head": LINKS + call}, "in its fit": {"fit": call}}
    own = bodies.get(when, {"sample": f"{call}; return request.x0"})
    record = attempt(home, plugin(**{"head": LINKS, **own}))
    assert state(victim) == before
    kept = home / "runs" / record.identity
    assert not kept.exists() or b"precious" not in {path.read_bytes() for path in kept.iterdir()}
    assert (home / "references" / FROM_DATA / "one.npz").read_bytes() == b"the referee's"
    assert not list(home.glob("compbench-*"))


@inside
def test_weights_and_checkpoints_of_another_run_are_not_published_as_ones_own(home: Path, plugin) -> None:
    other = home / "runs" / ("0" * 64)
    other.mkdir(parents=True)
    for name in NAMES:
        (other / name).write_bytes(b"the secret of another run")
    record = attempt(home, plugin(head=LINKS, fit=f"link('run', {str(other)!r}); time.sleep(2.5); raise ValueError('the end')"))
    assert (record.status, record.reason) == ("failed", "ValueError: the end")
    assert not (home / "runs" / record.identity).exists()


@inside
def test_no_shared_memory_of_a_run_is_there_after_it_or_in_the_next(home: Path, plugin) -> None:
    """Weights in /dev/shm were an earlier run's training, which nothing counted."""
    name = Path("/dev/shm") / f"compbench-test-{os.getpid()}"
    head = "from pathlib import Path\nimport multiprocessing\n"
    head += f"PLACE = Path({str(name)!r})\n"
    head += "def left():\n    try:\n        found = PLACE.exists()\n        PLACE.write_text('weights')\n"
    head += "        multiprocessing.Lock()\n        return 2 * found\n    except OSError:\n        return 1\n"
    for _ in range(2):
        record = attempt(home, plugin(head=head, fit="ctx.notes['left'] = left()"))
        assert record.status == "ok", record.reason
        assert record.notes["fit left"] in (0, 1)  # it has a place of its own, or none
        assert not name.exists()


@inside
def test_what_is_lent_can_be_read_and_not_written(home: Path, plugin) -> None:
    killed = "ctx.checkpoints.save({'w': torch.ones(1)}, {}); time.sleep(2.5); raise ValueError('half way')"
    head = WRITES + "OWN = Path(os.environ['TMPDIR']).parent\nLENT = OWN.with_name(OWN.name + '-lent')\n"
    went_on = (
        "ctx.notes['read'] = len(found[0]); ctx.notes['lent'] = len(list(LENT.iterdir())); ctx.notes['wrote'] = writes(LENT)"
    )
    begin = "found = ctx.checkpoints.load()"
    fit = f"{begin}\n    if found:\n        {went_on}\n    elif hasattr(ctx.checkpoints, 'path'):\n        {killed}"
    file = plugin(head=head, fit=fit)
    assert attempt(home, file).status == "failed"
    request = RunRequest(
        task="blobs-iid", method="naughty", preset="smoke", device="cpu", threads=1, plugins=(str(file),), home=str(home)
    )
    record = run(request, force=True, resume=True).record
    assert record.status == "ok", record.reason
    assert [record.notes[f"fit {name}"] for name in ("read", "lent", "wrote")] == [1, 1, 0]


def test_a_finished_run_deletes_all_its_checkpoints_however_many(home: Path, plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compbench.system.plugin_folder.MOST_FILES", 2)
    file = plugin(fit="return None")
    folder = home / "runs" / attempt(home, file).identity
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(5):
        (folder / f"checkpoint.round-{number}.done.safetensors").touch()
    assert attempt(home, file).status == "ok"
    assert not list(folder.glob("checkpoint*"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_larger_than_the_network_could_need_is_not_published(home: Path, plugin, name: str) -> None:
    body = f"p = {RUN} / {name!r}; p.touch(); os.truncate(p, {LEAST_BYTES + 1}); time.sleep(2.5)"
    record = attempt(home, plugin(head=HEAD, fit=body + ("; raise ValueError('the end')" if name == NAMES[1] else "")))
    said = f"{name} cannot be published: it is not a regular file of at most {LEAST_BYTES} bytes."
    assert (record.status, record.reason) == ("failed", said if name == NAMES[0] else "ValueError: the end")
    assert not (home / "runs" / record.identity / name).exists()


def test_the_largest_file_follows_the_backbone_between_two_bounds() -> None:
    assert most_bytes(10**5, 1) == LEAST_BYTES
    assert most_bytes(10**7, 1) == 16 * 4 * 4 * 10**7 * 2
    assert most_bytes(10**9, 10) == MOST_BYTES


def test_a_pipe_in_place_of_weights_hangs_no_one(home: Path, plugin) -> None:
    fit = f"p = {RUN}; p.mkdir(exist_ok=True); [(p / n).exists() or os.mkfifo(p / n) for n in {NAMES}]"
    record = attempt(home, plugin(head=HEAD, fit=fit), time_limit=60.0)
    assert record.status == "failed"
    assert "not a regular file" in record.reason


def test_a_folder_three_thousand_deep_is_deleted_and_the_next_run_goes_on(home: Path, plugin) -> None:
    deep = "os.chdir(os.environ['TMPDIR']); [os.path.exists('d') or os.mkdir('d') or os.chdir('d') for _ in range(3000)]"
    for fit in (deep, "return None"):
        assert attempt(home, plugin(fit=fit)).status == "ok"
    assert not list(home.glob("compbench-*"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"sample": "return request.x0.double() * 0 + 1e300"}, "must be finite, 100.0%"),
        ({"sample": "return torch.zeros(2**25, dtype=torch.float64)"}, "answer is invalid"),
        ({"sample": "os.kill(os.getpid(), signal.SIGSEGV)"}, "SIGSEGV"),
        ({"sample": "return torch.eye(2).to_sparse()"}, "RuntimeError"),
        ({"fit": "os.ftruncate(1, 2**38); os._exit(7)"}, "exit status 7"),
    ],
)
def test_an_answer_or_an_end_that_cannot_be_used_is_a_failed_record_with_its_reason(
    home: Path, plugin, body: dict[str, str], reason: str
) -> None:
    record = attempt(home, plugin(**body))
    assert record.status == "failed"
    assert reason in record.reason


CONTROL = """
import gc, json, struct
from compbench.runner.channel import Channel
control = [found for found in gc.get_objects() if isinstance(found, Channel)][0].socket
def say(text, length=None):
    control.sendall(struct.pack("<4sIQ", b"cbf1", len(text) if length is None else length, 0) + text)
"""


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "Opened", "fit": Infinity}',
        '{"kind": "Opened", "fit": ' + "[" * 400 + "]" * 400 + "}",
        '{"kind": "Evaluated"}',
        '{"kind": "Nothing"}',
        "[]",
        '{"kind": "Measured", "profile": {}, "facts": {}}',
    ],
)
def test_a_message_that_is_none_ends_the_run_as_failed(home: Path, plugin, text: str) -> None:
    record = attempt(home, plugin(head=CONTROL, fit=f"say({text.encode()!r}); time.sleep(60)"))
    assert record.status == "failed"
    assert "the contestant" in record.reason
    assert "\n" not in record.reason


def test_a_message_of_one_byte_at_a_time_does_not_stretch_the_time_limit(home: Path, plugin, monkeypatch) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 1.0)
    fit = "say(b'{', 1000); [(time.sleep(0.2), control.sendall(b' ')) for _ in range(900)]"
    record = attempt(home, plugin(head=CONTROL, fit=fit), time_limit=3.0)
    assert record.status == "timeout"
    assert record.seconds < 3 + 1 + 40  # the bytes last 180


@pytest.mark.parametrize("end", ["raise ValueError(wild)", "print(wild, flush=True); os._exit(7)"])
def test_escape_sequences_of_a_plugin_reach_no_record(home: Path, plugin, end: str) -> None:
    record = attempt(home, plugin(fit=f"wild = '\\x1b[2J\\x1b]0;owned\\x07 <script>'; {end}"))
    assert record.status == "failed"
    assert "owned" in record.traceback
    assert not any(ord(letter) < 32 and letter != "\n" for letter in record.reason + record.traceback)


def test_an_oracle_that_changes_its_mind_gets_no_truth(home: Path, plugin) -> None:
    head = """
class Sly(Method):
    asked = 0
    def __getattribute__(self, name):
        if name == "oracle":
            Sly.asked += 1
            return Sly.asked > 1
        return super().__getattribute__(name)
"""
    file = plugin(head=head, fit="assert problem.oracle is None")
    file.write_text(file.read_text().replace("return (Method(", "return (Sly("))
    record = attempt(home, file, task="gauss2d-fact-id")
    assert record.status == "ok", record.reason
    assert not record.oracle


def test_a_run_folder_that_is_a_file_fails_that_run_alone(home: Path) -> None:
    request = RunRequest(task="blobs-iid", method="mono", preset="smoke", device="cpu", threads=1, seed=77, home=str(home))
    first = run(request)
    folder = home / "runs" / first.record.identity
    remove_tree(folder)
    folder.write_text("squat")
    again = run(request, force=True).record
    assert again.status == "failed"
    assert "could not write" in again.reason
    assert run(request.model_copy(update={"seed": 78})).record.status == "ok"
    assert Store(home / "records").finished(first.record.spec, [first.record.identity]) == first.record


def test_publishing_copies_a_plain_file_whole_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(bytes(range(256)) * 100)
    publish(tmp_path / "made", tmp_path / "there" / "kept")
    assert (tmp_path / "there" / "kept").read_bytes() == (tmp_path / "made").read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / "made")
    for name in ("link", "absent", "there"):
        with pytest.raises(CompbenchError, match="cannot be published"):
            publish(tmp_path / name, tmp_path / "there" / "other")
    with pytest.raises(CompbenchError, match="at most 10 bytes"):
        publish(tmp_path / "made", tmp_path / "there" / "other", limit=10)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["kept"]
