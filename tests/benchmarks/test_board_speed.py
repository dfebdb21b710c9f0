"""`board` on 10,000 record files: CPU seconds in a fresh process, as a ratio to plain json.loads of the same files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.sample_records import record, score

from compbench.store.format import dump

METRICS = ("accuracy", "accuracy_floor_hue", "accuracy_seen_judge", "fd_judge", "fid", "kid", "precision", "recall")
BOARD = """
import sys, time
from pathlib import Path
from compbench.board.build import build
from compbench.store.records import read_records
folder, output = map(Path, sys.argv[1:])
records, problems = read_records(folder.glob("*.json"))
assert len(records) == 10_000 and not problems
build(records, output, papers=None, pictures=lambda record: None)
print(time.process_time())
"""
PLAIN = """
import json, sys, time
from pathlib import Path
kept = [json.loads(path.read_bytes()) for path in sorted(Path(sys.argv[1]).glob("*.json"))]
print(time.process_time())
"""


def _cpu_seconds(script: str, *arguments: Path) -> float:
    """CPU seconds of a fresh interpreter, start-up included; the best of three."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    runs = [subprocess.run(command, check=True, capture_output=True, text=True, env=environment) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


@pytest.mark.slow
def test_a_board_of_ten_thousand_records_costs_little_more_than_reading_them(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    for task in range(20):
        for method in range(100):
            for seed in range(5):
                value = ((task + 7 * method + 31 * seed) % 97) / 97
                scores = [score(f"{split}_{m}", value, ceiling=0.98) for split in ("heldout", "seen") for m in METRICS]
                found = record(*scores, task=f"task-{task}", method=f"method-{method}", seed=seed)
                (folder / f"{found.name}.json").write_bytes(dump(found))
    plain, board = _cpu_seconds(PLAIN, folder), _cpu_seconds(BOARD, folder, tmp_path / "board")
    print(f"\n10,000 records, {len(METRICS) * 2} scores each: board {board:.2f} s CPU, json.loads {plain:.2f} s")
    assert board < 4 * plain
