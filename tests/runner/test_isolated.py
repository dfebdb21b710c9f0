"""Verbs that run a method's code outside of a run do it behind a contestant's border, and get plain data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.sample_records import record

from compbench.cli.main import main
from compbench.gate import sides
from compbench.gate.sides import CellOptions, Side
from compbench.gate.suite import Cell
from compbench.runner import sandbox
from compbench.runner.isolated import scratch, values_of
from compbench.runner.processes import Ended
from compbench.store.records import Store
from compbench.system.home import Home
from compbench.testing.outside import check

pytestmark = pytest.mark.skipif(sandbox.abi() == 0, reason="this kernel has no Landlock")

THIEF = """
from pathlib import Path
def got(action):
    try:
        action()
        return 1
    except OSError:
        return 0
HOME, OUTSIDE = Path({home!r}), Path({outside!r})
stolen = sum(got(lambda: (HOME / name / "secret.txt").read_text()) for name in {names!r})
stolen += got(lambda: OUTSIDE.write_text("mine")) + got(lambda: (HOME / "cache" / "mine").write_text("mine"))
assert got(lambda: (Path(os.environ["TMPDIR"]) / "own").write_text("own"))
assert not stolen, f"{{stolen}} stolen"
"""
NAMES = ("references", "records", "board", "runs", "leases", "levels")


@pytest.fixture
def thief(tmp_path: Path, plugin, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin that cannot be imported where it could read a secret of the user's home or write elsewhere."""
    home = tmp_path / "home"
    for name in (*NAMES, "cache"):
        (home / name).mkdir(parents=True)
        (home / name / "secret.txt").write_text("secret")
    monkeypatch.setenv("COMPBENCH_HOME", str(home))
    return plugin(head=THIEF.format(home=str(home), outside=str(tmp_path / "outside"), names=NAMES))


def test_the_thief_steals_where_nothing_is_closed(thief: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.OFF, "off")
    assert "8 stolen" in CliRunner().invoke(main, ["info", "naughty", "--plugin", str(thief)]).output


def test_info_reads_a_method_behind_the_border(thief: Path) -> None:
    done = CliRunner().invoke(main, ["info", "naughty", "--plugin", str(thief), "--json"])
    assert done.exit_code == 0, done.output


def test_plugins_are_loaded_behind_the_border(thief: Path) -> None:
    done = CliRunner().invoke(main, ["plugins", "--plugin", str(thief), "--json"])
    assert '"name": "naughty", "state": "ok"' in done.output


def test_check_runs_a_method_behind_the_border(thief: Path) -> None:
    report = check("naughty", plugins=[thief], only=["settings"], device="cpu")
    assert [one.found for one in report.failures] == []


def test_the_gates_probe_runs_a_method_behind_the_border(thief: Path, tmp_path: Path) -> None:
    side = Side("head", Path(sys.executable), tmp_path / "side", (thief,))
    cell = Cell(method="naughty", task="gauss2d-fact-id", seeds="0")
    [found] = sides.facts(side, [cell], CellOptions())
    assert isinstance(found, sides.Facts), found
    assert found.values["parameters"] is None


def test_diagnose_loads_a_method_behind_the_border(thief: Path, tmp_path: Path) -> None:
    home, one = Home(tmp_path / "home"), record(method="naughty")
    path = Store(home.records).write(one)
    (home.runs / one.identity).mkdir()
    (home.runs / one.identity / "model.safetensors").write_bytes(b"weights")
    done = CliRunner().invoke(main, ["diagnose", str(path), "--plugin", str(thief)])
    assert done.output == "compbench: method 'naughty' has no `build`, so its stored weights cannot be loaded.\n"


@pytest.mark.parametrize("head", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_a_plugin_that_ends_its_process_is_broken_and_the_others_are_loaded(head: str, plugin) -> None:
    done = CliRunner().invoke(main, ["plugins", "--plugin", str(plugin(head=head)), "--json"])
    states = {row["name"]: row for row in json.loads(done.output)}
    assert states["naughty"]["state"] == "broken"
    assert states["naughty"]["reason"].startswith("the method ")
    assert {row["state"] for name, row in states.items() if name != "naughty"} == {"ok"}


def test_an_answer_of_another_kind_is_refused_in_one_line(tmp_path: Path) -> None:
    with scratch() as folder, pytest.raises(Ended, match="sent an invalid answer: .*valid integer") as caught:
        list(values_of("compbench.cli.plugins:loaded", {"plugins": [], "first": 0}, int, folder, home=Home(tmp_path)))
    assert "\n" not in caught.value.reason
    assert not folder.parent.exists()
