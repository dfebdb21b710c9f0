"""Plugins that cheat, each in real runs: nothing of it reaches a record, a board or another run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from runner.test_one_run import is_running

from compbench.api.schemas import Record, RunRequest
from compbench.runner import one_run as runner
from compbench.runner import sandbox
from compbench.runner.messages import M, Message, Prepare
from compbench.runner.one_run import run
from compbench.runner.supervisor import cpu_seconds_below
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


def attempt(home: Path, file: Path, *, force: bool = False) -> Record:
    facts = {"task": "blobs-iid", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1}
    return run(RunRequest(**facts, plugins=(str(file),), home=str(home)), force=force).record


CLOCKS = """
import compbench.system.profiling, compbench.runner.contestant, compbench.runner.worker
now = [0.0]
def frozen():
    now[0] += 1e-9
    return now[0]
for name in ("time", "perf_counter", "monotonic", "process_time", "perf_counter_ns", "time_ns", "sleep"):
    real = getattr(time, name)
    if name == "sleep":
        rest = real
    setattr(time, name, frozen)
"""

DAEMON = """
def daemon(pid):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open(pid + "~", "w") as half:
                half.write(str(os.getpid()))
            os.rename(half.name, pid)  # it is there whole or not at all
            rest(600)
        os._exit(0)
    while not os.path.exists(pid):
        rest(0.01)
"""


def test_a_patched_clock_times_nothing_and_a_daemon_ends_with_the_run(home: Path, plugin) -> None:
    fit = "daemon(os.environ['TMPDIR'] + '/pid'); ctx.notes['pid'] = int(open(os.environ['TMPDIR'] + '/pid').read()); rest(1.5)"
    file = plugin(head=CLOCKS + DAEMON, fit=fit, sample="rest(0.2); return request.x0")
    record = attempt(home, file)
    assert record.status == "ok", record.reason
    assert record.profile.seconds("fit") > 1.5  # the clock was captured before the plugin was loaded
    assert record.profile.latency_p50_ms > 200
    assert record.seconds > 1.5
    assert not is_running(int(record.notes["fit pid"]))


THIEF = """
import hashlib, tempfile
from pathlib import Path
HOME, OWN = Path({home!r}), Path(__file__).parent

def got(action):
    try:
        action()
        return 1
    except OSError:
        return 0

def stolen():
    secrets = [path for name in ("references", "records", "board") for path in (HOME / name).rglob("*") if path.is_file()]
    targets = [HOME / "references" / "judge.safetensors", HOME / "records" / "forged.json", HOME / "board" / "index.html"]
    found = sum(got(path.read_bytes) for path in secrets)
    found += sum(got(lambda: path.write_text("mine")) for path in targets)
    found += sum(got(path.unlink) for path in secrets)
    return found + got(lambda: os.kill(os.getppid(), 0)) + 1000 * (not secrets)

def cached(x0):
    name = hashlib.sha256(x0.numpy().tobytes()).hexdigest()
    places = [Path(tempfile.gettempdir()), OWN, Path.home(), Path("/tmp"), Path.cwd()]
    hits = sum((place / name).exists() for place in places)
    for place in places:
        got(lambda: (place / name).write_text("samples"))
    return hits
"""


@pytest.mark.skipif(sandbox.abi() == 0, reason="this kernel has no Landlock")
def test_a_plugin_reads_no_references_writes_no_records_and_finds_nothing_of_its_last_run(home: Path, plugin) -> None:
    Store(home / "records").folder.mkdir(exist_ok=True)
    for name in ("references", "records", "board"):
        (home / name).mkdir(exist_ok=True)
        (home / name / "secret.txt").write_text("secret")
    sample = "ctx.notes.update(stolen=stolen(), cached=cached(request.x0)); return request.x0"
    file = plugin(head=THIEF.format(home=str(home)), sample=sample)
    for number in (1, 2):
        record = attempt(home, file, force=number > 1)
        assert record.status == "ok", record.reason
        assert (record.attempt, record.environment.sandbox) == (number, "landlock")
        assert record.notes
        assert {value for name, value in record.notes.items() if not name.startswith("counted ")} == {0.0}
    assert (home / "records" / "secret.txt").read_text() == "secret"
    assert not (home / "records" / "forged.json").exists()


def test_a_plugin_that_speaks_for_the_harness_is_not_believed(home: Path, plugin) -> None:
    lies = """
import compbench.runner.contestant, compbench.registry.registry
compbench.registry.registry.Entry.sha256 = property(lambda self: "0" * 64)
"""
    with pytest.raises(CompbenchError, match="was changed while it was being loaded"):
        attempt(home, plugin(head=lies))


def test_facts_that_fit_no_record_make_a_failed_one(home: Path, plugin) -> None:
    lies = """
import compbench.runner.contestant
compbench.runner.contestant.Contestant._profile = lambda self: {"parameters": "<b>many</b>", "sample_samples_per_second": 1e300}
compbench.runner.contestant.Contestant.facts = lambda self: {"threads": "many", "notes": {"x": "y" * 10000}, "packages": 3}
"""
    record = attempt(home, plugin(head=lies))
    assert record.status == "failed"
    assert "self-report is invalid" in record.reason
    assert record.scores == ()


BURN = """
import threading
from time import process_time

def burn(seconds):
    end = process_time() + seconds
    while process_time() < end:
        pass

def moonlight():
    while True:
        burn(1.0)
"""


def test_a_thread_that_works_while_judges_are_prepared_is_seen_and_distrusted(home: Path, plugin, monkeypatch) -> None:
    ask = runner.ProcessPair.ask

    def slowly(pair: runner.ProcessPair, order: Message, kind: type[M]) -> M:
        """Judges take until the thread has used two seconds."""
        end, before = time.monotonic() + 60, cpu_seconds_below(pair._contestant.process.pid)
        while (
            isinstance(order, Prepare) and cpu_seconds_below(pair._contestant.process.pid) < before + 2 and time.monotonic() < end
        ):
            time.sleep(0.1)
        return ask(pair, order, kind)

    monkeypatch.setattr(runner.ProcessPair, "ask", slowly)
    record = attempt(home, plugin(head=BURN + "threading.Thread(target=moonlight, daemon=True).start()"))
    (outside,) = [stage for stage in record.profile.stages if stage.name == "outside"]
    assert (record.status, outside.cpu_seconds >= 2) == ("ok", True)
    assert "CPU seconds while it had nothing to do" in record.profile.distrust
    assert record.profile.sample_samples_per_second is None


def test_steps_that_were_never_done_make_no_speed(home: Path, plugin) -> None:
    report = "[(ctx.progress(k * 10**8, 10**9), time.sleep(0.3)) for k in range(8)]; return torch.nn.Linear(2, 2)"
    record = attempt(home, plugin(fit=report))
    assert "training steps where the budget allows" in record.profile.distrust
    assert record.profile.train_steps_per_second is None


def test_stages_of_chained_runs_count_their_own_cpu_time(home: Path, plugin) -> None:
    file = plugin(head=BURN, fit="burn(0.5); return None", sample="burn(0.02); return request.x0")
    facts = {"task": "blobs-iid", "method": "naughty", "preset": "smoke", "device": "cpu", "threads": 1}
    requests = [RunRequest(**facts, seed=seed, plugins=(str(file),), home=str(home)) for seed in (0, 1)]
    with runner.processes_of(Home(home)) as processes:
        records = [run(request, processes=processes, force=True).record for request in requests]
    first, second = ({stage.name: stage.cpu_seconds for stage in record.profile.stages} for record in records)
    assert records[1].environment.predecessors == 1
    assert second["imports"] < 0.5  # nothing of the first run's fit and sampling
    assert min(first["fit"], second["fit"]) >= 0.5
    assert min(first["sample"], second["sample"]) >= 0.02
    assert "outside" not in second or second["outside"] < 0.5


DRAW = "problem.federation.pooled().batch(8, ctx.generator)"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"fit": "raise Refused('not for me')"}, "refused", "not for me"),
        ({"fit": f"{DRAW}; raise Refused('not for me')"}, "failed", "not for me The method refused too late: 8 examples"),
        ({"sample": "raise Refused('this seed is not for me')"}, "failed", "this seed is not for me The method refused too late"),
        ({"fit": "raise Cancelled('not me')"}, "failed", "the run had not been asked to stop"),
        ({"fit": "raise Stopping()"}, "failed", "half way"),
    ],
    ids=["before an example", "after examples", "in an answer", "a stop of its own", "a status of its own"],
)
def test_a_method_does_not_choose_which_of_its_seeds_count(
    home: Path, plugin, body: dict[str, str], status: str, reason: str
) -> None:
    head = "from compbench.system.errors import Cancelled, Refused\nfrom compbench.runner import worker\n"
    head += "class Stopping(worker.ContestantFailed):\n    def __init__(self):\n"
    head += "        super().__init__(worker.Failed(status='killed', reason='half way'))\n"
    record = attempt(home, plugin(head=head, **body), force=True)
    assert record.status == status
    assert reason in record.reason
