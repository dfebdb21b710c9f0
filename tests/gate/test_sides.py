"""Real processes of a side: the probe's facts, and the environment of a commit."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.seldom import seldom
from support.template import TEMPLATE
from support.toy_method import TOY, toy

from compbench.cli.main import main
from compbench.gate import forked_probe, sides, worktree
from compbench.gate.sides import CellOptions, Side


def head(tmp_path: Path, *plugins: Path) -> Side:
    return Side("head", Path(sys.executable), tmp_path / "home", plugins)


@pytest.mark.parametrize("fresh", seldom([False, True], but=[False]))
def test_facts_are_the_same_twice_and_are_what_the_method_does(tmp_path, fresh: bool) -> None:
    side = head(tmp_path, toy(tmp_path))
    [first] = sides.facts(side, [TOY], CellOptions())
    TEMPLATE.fresh = fresh
    assert sides.facts(side, [TOY], CellOptions()) == [first]
    assert isinstance(first, sides.Facts)
    product = 2 * 128**3
    assert first.values["parameters"] == 6
    assert first.values["flops_per_fit"] == 10 * product
    assert first.values["flops_per_sample"] == 10 * product / 8 + 2 * 2 * 2
    assert first.values["sampling_bytes"] >= 3 * 4 * 128**2  # a, a @ a and its quotient are held together
    assert first.values["sampling_bytes"] < 5 * 4 * 128**2


def test_a_side_that_cannot_says_why(tmp_path) -> None:
    path = tmp_path / "toy.py"
    path.write_text("raise RuntimeError('planted')")
    assert "planted" in str(sides.facts(head(tmp_path, path), [TOY], CellOptions())[0])
    assert "no-python" in str(sides.facts(Side("base", tmp_path / "no-python", tmp_path / "home"), [TOY], CellOptions())[0])


def test_an_order_that_ends_or_hangs_its_process_leaves_the_others() -> None:
    def act(text: str) -> dict[str, object]:
        order = json.loads(text)
        if order["end"]:
            os.kill(os.getpid(), order["end"])
        if order["limit"] == 1:
            time.sleep(60)
        return {"place": tempfile.gettempdir(), "pid": os.getpid()}

    def asked(place: Path | str, *, end: int = 0, limit: int = 60) -> dict[str, object]:
        return {"end": end, "limit": limit, "places": {"TMPDIR": str(place)}}

    orders = [asked("/", end=signal.SIGKILL), asked("/", limit=1), asked("/")]
    killed, hung, well = (forked_probe.answered(order, act) for order in orders)
    assert (killed, hung) == ({"error": "exit status -9"}, {"error": "not done after 1 s"})
    assert (well["place"], well["pid"] == os.getpid()) == ("/", False)
    assert "TMPDIR" not in os.environ or os.environ["TMPDIR"] != "/"


def test_the_base_never_sees_the_callers_path(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/head/source")
    assert "PYTHONPATH" not in Side("base", Path(sys.executable), tmp_path, own=False).environment()
    assert head(tmp_path).environment()["PYTHONPATH"] == "/head/source"


def test_scores_say_which_data_they_are_of(tmp_path, monkeypatch) -> None:
    score = {"name": "sw2", "metric": "sw2", "metric_version": 1, "direction": "lower", "primary": True, "value": 1.0}
    spec = {"seed": 3, "task_version": 2, "source": "official", "fingerprint": "f1"}
    (tmp_path / "record.json").write_text(json.dumps({"spec": spec, "scores": [score]}))
    monkeypatch.setattr(Side, "run", lambda *asked, **how: [{"status": "ok", "path": str(tmp_path / "record.json")}])
    found = sides.scores(head(tmp_path), TOY, CellOptions())
    assert (found.task_version, found.source, found.fingerprint) == (2, "official", "f1")


@pytest.mark.parametrize("written", [12, 13])
def test_scores_are_read_from_records_of_both_sides_formats(written: int, tmp_path, monkeypatch) -> None:
    """Format 12 has every field, and format 13 leaves out those at their defaults."""
    path = Path(__file__).parents[1] / "store" / "fixtures" / "records" / f"format-{written}.json"
    monkeypatch.setattr(Side, "run", lambda *asked, **how: [{"status": "ok", "path": str(path)}])
    (found,) = sides.scores(head(tmp_path), TOY, CellOptions()).scores.values()
    assert (found.metric, found.metric_version, found.direction) == ("accuracy", 1, "higher")
    assert found.values == {0: 0.03333333507180214}
    every = sides.all_scores(head(tmp_path), TOY, CellOptions())
    assert every["0 heldout_accuracy"] == [0.03333333507180214, 0.20000000298023224, None]


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


def commit(folder: Path, message: str, **more: int) -> None:
    toy(folder, **more)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)


@pytest.fixture
def repository(tmp_path) -> Path:
    """A plugin's repository, at its first commit."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'
        '[project]\nname = "toy"\nversion = "1"\n\n[project.entry-points."compbench.methods"]\ntoy = "toy"\n\n'
        '[tool.hatch.build.targets.wheel]\ninclude = ["toy.py"]\n'
    )
    commit(folder, "first", products=10)
    return folder


@pytest.fixture
def installed(repository, tmp_path, monkeypatch) -> None:
    """The repository's working tree as what is installed here, as an editable install has it."""
    described = tmp_path / "site" / "toy-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[compbench.methods]\ntoy = toy\n")
    for path in (described.parent, repository):
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", f"{repository}:{described.parent}")
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(repository)


def suite(folder: Path, *gates: str) -> str:
    """A suite file of the toy's one cell."""
    path = folder.parent / "suite.toml"
    path.write_text(f'[[cell]]\nmethod = "toy"\ntask = "gmm-id"\nseeds = "0"\ngates = {json.dumps(gates)}\n')
    return str(path)


def worktrees(folder: Path) -> int:
    words = ["git", "worktree", "list"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout.count("\n")


@pytest.mark.slow  # `.ci/run` itself gates each commit against the one before it in this way
@pytest.mark.usefixtures("installed")
def test_a_commit_is_compared_with_the_one_before_in_an_environment_of_its_own(repository) -> None:
    commit(repository, "More evaluations", evaluations=2)
    result = CliRunner().invoke(main, ["gate", "--base-ref", "HEAD~1", "--suite", suite(repository, "exact"), "--json"])
    rows = {row["what"]: row for row in json.loads(result.output.splitlines()[-1])["rows"]}
    assert (result.exit_code, rows["evaluations"]["base"], rows["evaluations"]["head"]) == (1, 1, 2)
    assert rows["samples"]["verdict"] == "pass"
    assert worktrees(repository) == 1  # the base's is gone


@pytest.mark.usefixtures("installed")
def test_an_unknown_commit_and_a_base_without_a_project_have_their_statuses(repository) -> None:
    words = ["gate", "--method", "toy", "--task", "gmm-id"]
    unknown = CliRunner().invoke(main, [*words, "--base-ref", "nowhere"])
    assert (unknown.exit_code, "--base-ref nowhere" in unknown.output) == (2, True)
    git(repository, "rm", "-q", "pyproject.toml")
    git(repository, "commit", "-q", "-m", "No project")
    bare = CliRunner().invoke(main, [*words, "--base-ref", "HEAD"])
    assert (bare.exit_code, "pyproject.toml" in bare.output) == (4, True)


def test_a_plugin_file_of_the_repository_is_the_commits_own(tmp_path) -> None:
    top, tree = tmp_path / "top", tmp_path / "tree"
    assert worktree.counterpart(top / "plugins" / "a.py", top, tree) == tree / "plugins" / "a.py"
    assert worktree.counterpart(tmp_path / "elsewhere.py", top, tree) == tmp_path / "elsewhere.py"


def started(temporary: Path) -> list[int]:
    """Numbers of the processes that wrote themselves down in their own folder, once both of a probe have."""
    limit = time.monotonic() + 100
    while time.monotonic() < limit:
        with contextlib.suppress(FileNotFoundError):  # pip's folders go away while they are looked through
            for marker in temporary.glob("*/*/scratch/*/tmp/processes"):
                if len(found := marker.read_text().split()) >= 2:
                    return list(map(int, found))
        time.sleep(0.1)
    raise AssertionError("no probe began")


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", ["exact", "speed"])
def test_stopped_by_term_it_leaves_no_process_and_no_folder(kind, repository, tmp_path, monkeypatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))  # the user's, which stays
    stray = """
def work():
    import os, subprocess, time
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open(os.environ["TMPDIR"] + "/processes", "a") as file:
        file.write(f"{os.getpid()} {child.pid} ")
    time.sleep(600)
"""
    (repository / "toy.py").write_text((repository / "toy.py").read_text() + stray)
    words = ["-P", "-m", "compbench.cli.main", "gate", "--base-ref", "HEAD", "--suite", suite(repository, kind)]
    with subprocess.Popen([sys.executable, *words], cwd=repository, stderr=subprocess.PIPE, text=True) as gate:
        processes = started(temporary)
        assert any(temporary.glob("compbench-*/base/toy.py"))
        gate.terminate()
        gate.terminate()  # a second one does not disturb the first one's work
        said = gate.communicate(timeout=60)[1]
    assert (gate.returncode, said.splitlines()[-1]) == (130, "compbench: stopped.")
    assert [number for number in processes if Path(f"/proc/{number}").exists()] == []
    assert list(temporary.iterdir()) == []
    assert worktrees(repository) == 1


@pytest.mark.parametrize("is_there", seldom([True, False], but=[False]), ids=["with its folder", "whose folder is gone"])
def test_the_worktree_of_a_killed_gate_goes_with_the_next_and_a_living_one_stays(
    repository, tmp_path, monkeypatch, is_there: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    code = "import os, sys; from pathlib import Path; from compbench.gate.worktree import checked_out\n"
    code += "with checked_out(Path(sys.argv[1]), 'HEAD') as place: print(place, flush=True); input()"
    words = [sys.executable, "-c", code, str(repository)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed, living = (
        subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    places = [Path(one.stdout.readline().strip()) for one in (killed, living)]
    killed.kill()
    killed.wait()
    if not is_there:
        shutil.rmtree(places[0].parent)
    assert worktrees(repository) == 3
    with worktree.checked_out(repository, "HEAD") as own:
        assert (own / "toy.py").is_file()
        assert worktrees(repository) == 3  # the repository itself, the living one's and this
        assert [place.exists() for place in places] == [False, True]
    living.communicate("\n", timeout=60)
    assert worktrees(repository) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_planted_slowdown_is_caught_and_identical_code_is_not(repository) -> None:
    commit(repository, "Much work", products=40)
    words = ["gate", "--suite", suite(repository, "speed"), "--clock", "cpu", "--tolerance", "0.1", "--json"]
    assert CliRunner().invoke(main, [*words, "--base-ref", "HEAD"]).exit_code in (0, 3)
    commit(repository, "Slower", products=60)
    found = CliRunner().invoke(main, [*words, "--base-ref", "HEAD~1"])
    assert found.exit_code == 1, found.output
