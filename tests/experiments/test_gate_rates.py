"""The experiment on the gate's real rates: what it plants, what it goes on from, what it says."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import gate_rates
import pytest

from compbench.registry.meaning import executed
from compbench.registry.registry import Registry

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("kind", "differs"), [("identical", True), ("same", False)])
def test_an_edit_changes_the_meaning_of_the_syntax_or_nothing(kind, differs, tmp_path) -> None:
    text = (ROOT / gate_rates.METHOD_FILE).read_text()
    files = {"before": text, "after": gate_rates.edited(text, kind)}
    assert files["before"] != files["after"]
    hashes = set()
    for name, content in files.items():
        (tmp_path / name).mkdir()
        file = tmp_path / name / "fkc.py"
        file.write_text(content.replace('name="fkc"', 'name="fkd"').replace('"""Feynman', '"""fkd'))
        file = file.rename(file.with_name("fkd.py"))
        hashes.add(executed(Registry((file,)), method="fkd", task="gauss2d-fact-id", metrics=()))
    assert (len(hashes) == 2) == differs


def test_the_interval_of_a_rate_is_wilsons() -> None:
    assert gate_rates.interval(0, 100) == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert gate_rates.interval(27, 30) == pytest.approx((0.7438, 0.9654), abs=1e-4)


def test_gates_of_the_file_are_not_measured_again(tmp_path) -> None:
    file = tmp_path / "rates.jsonl"
    entry = {"kind": "identical", "verdict": "pass", "seconds": 60.0, "cpu_seconds": 30.0, "load": 2.0, "pairs": []}
    file.write_text(2 * f"{json.dumps(entry)}\n")
    gate_rates.measure("identical", 2, file, seconds=0.5, minutes=0.0)
    assert len(gate_rates.entries_of(file)) == 2
    lines: list[str] = []
    gate_rates.show(gate_rates.entries_of(file), lines.append)
    assert lines == ["identical: 2 of 2 pass, 34% to 100%", "  a gate, in the middle: 30 CPU s, 60 s (longest 60), load 2.0"]


WAITING = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import gate_rates

def environment(tree, top, folder):
    print(os.getpid(), flush=True)
    time.sleep(60)

gate_rates.worktree.environment = environment
sys.argv = ["gate_rates.py", "slower"]
gate_rates.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_measurement_that_is_stopped_leaves_no_worktree_and_no_folder(number: signal.Signals, tmp_path: Path) -> None:
    repository, scratch = tmp_path / "repository", tmp_path / "scratch"
    scratch.mkdir()

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True).stdout

    repository.mkdir()
    git("init", "--quiet")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "one")
    words = [sys.executable, "-c", WAITING, str(ROOT / "experiments")]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(words, cwd=repository, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline()
        assert len(git("worktree", "list").splitlines()) == 2
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == b"stopped; run the same command again to continue\n"
    assert len(git("worktree", "list").splitlines()) == 1
    assert list(scratch.iterdir()) == []
