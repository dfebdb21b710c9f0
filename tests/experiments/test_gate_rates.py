"""The experiment on the gate's real rates: what it plants, what it goes on from, what it says."""

import json
from pathlib import Path

import gate_rates
import pytest

from compbench.identity.meaning import executed
from compbench.registry import Registry

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
