"""`board` on the published records, and on 2,000 and 10,000 made ones: CPU seconds in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.sample_records import record, score

from compbench.store.format import dump

PUBLISHED = Path(__file__).parents[2] / "leaderboards" / "records"
METRICS = ("accuracy", "accuracy_floor_hue", "accuracy_seen_judge", "fd_judge", "fid", "kid", "precision", "recall")
BOARD = """
import sys, time
from pathlib import Path
from compbench.board.build import Material, build
from compbench.store.records import read_records
folder, output = map(Path, sys.argv[1:])
records, problems = read_records(folder.glob("*.json"))
assert not problems
build(Material(records), output)
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


def _write(folder: Path, *, tasks: int, methods: int, seeds: int) -> None:
    folder.mkdir()
    for task in range(tasks):
        for method in range(methods):
            for seed in range(seeds):
                value = ((task + 4 * method + seed % 2) % 97) / 100
                scores = [score(f"{split}_{m}", value, ceiling=0.98) for split in ("heldout", "seen") for m in METRICS]
                found = record(*scores, task=f"task-{task}", method=f"method-{method}", seed=seed)
                (folder / f"{found.name}.json").write_bytes(dump(found))


@pytest.mark.slow
def test_the_published_board_takes_a_millisecond_of_cpu_for_each_record(tmp_path: Path) -> None:
    records = len(list(PUBLISHED.glob("*.json")))
    start = [sys.executable, "-P", "-c", "from compbench.cli.start import main; main()"]
    command = [*start, "board", "--records", str(PUBLISHED), "--output", str(tmp_path), "--link"]
    seconds = []
    for _ in range(3):
        before = os.times()
        subprocess.run(command, check=True, capture_output=True)
        after = os.times()
        seconds.append(after.children_user - before.children_user + after.children_system - before.children_system)
    print(f"\n{records:,} published records: `compbench board` {min(seconds):.2f} s CPU")
    assert min(seconds) < max(2.0, records / 1000)


@pytest.mark.slow
def test_a_board_of_two_thousand_records_takes_under_two_cpu_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    _write(folder, tasks=20, methods=20, seeds=5)
    seconds = _cpu_seconds(BOARD, folder, tmp_path / "board")
    print(f"\n2,000 records, {len(METRICS) * 2} scores each: board {seconds:.2f} s CPU")
    assert seconds < 2


@pytest.mark.slow
def test_a_board_of_ten_thousand_records_costs_little_more_than_reading_them(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    _write(folder, tasks=20, methods=100, seeds=5)
    plain, board = _cpu_seconds(PLAIN, folder), _cpu_seconds(BOARD, folder, tmp_path / "board")
    print(f"\n10,000 records, {len(METRICS) * 2} scores each: board {board:.2f} s CPU, json.loads {plain:.2f} s")
    assert board < 10 * plain  # these records have most fields at their defaults, so their JSON is short
