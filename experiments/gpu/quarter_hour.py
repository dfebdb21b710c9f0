"""Fifteen minutes of measurements on a GPU: the fastest way to compute, the costs of the board's rows, and the open faults.

    python experiments/gpu/quarter_hour.py --out FOLDER                          as many steps as fit into 13 minutes
    python experiments/gpu/quarter_hour.py --out FOLDER                          again: continues with the remaining steps
    python experiments/gpu/quarter_hour.py --dry-run                             lists the plan
    python experiments/gpu/quarter_hour.py --out FOLDER --device cpu --small     runs each step in tiny sizes, on a CPU

Steps run in order of importance, each with its own time limit; a failed step does not stop the others.  FOLDER has a log and a
result of each step, figures.jsonl (one line per measurement, `throughput.py`), profiles/ (`compbench profile`), records.tgz (runs
of `rows`) and summary.md, all written as they come.  Files of the runs are in FOLDER/home, and compiled code in FOLDER/compiled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from steps import GRACE_SECONDS, LEAST_SECONDS, ROOT, Ending, Step, ended, pack, run_steps, shared_card, take_published, written

WAYS = {
    "factored": ("harness", "whole", "torch-layout", "bf16-norms", "forced-layout", "autotuned", "eager"),
    "swarms of vectors": ("harness", "whole", "eager"),
    "peers": ("harness", "whole", "eager"),
    "200 networks": ("harness", "autotuned", "eager"),
    "factored samples": ("harness", "whole", "bf16-norms", "eager"),
    "noise network": ("harness", "whole"),
}
"""A map from a measurement (a row of `throughput.py`) to the ways in which it is computed; the first is the harness's."""

FIRST = (
    ("factored", "harness"),
    ("factored", "whole"),
    ("factored", "torch-layout"),
    ("swarms of vectors", "harness"),
    ("swarms of vectors", "whole"),
    ("peers", "harness"),
    ("peers", "whole"),
    ("200 networks", "harness"),
    ("factored samples", "harness"),
    ("factored samples", "whole"),
)
"""Pairs of measurement and way that come before the faults; all other pairs come after the profiles."""

MEASURE_SECONDS = {"autotuned": 150.0, "eager": 45.0}
"""Time limit in seconds of a measurement, by its way; 90 for others, whose first compilation takes up to a minute."""

FAULTS = {"cnn-decoder": 75.0, "scaffold": 100.0, "stop": 100.0, "fedprox": 90.0, "coind": 90.0}
"""Open faults (`faults.py`), with the time limit in seconds of each."""

PROFILED = (
    ("factored,mono", "shapes3d-heavy"),
    ("fkc,naive-ode", "gauss2d-fact-id"),
    ("low-rank,transformer-decoder", "bump-center"),
    ("ddm,dcfm-a,fedflow", "cmnist-noniid"),
    ("slice-cfg,coind,fkc", "shapes3d-heavy"),
    ("ddm,dcfm-a,fedflow", "blobs-noniid"),
    ("mono,coind", "planning-noniid"),
    ("factored,mono,coind", "dsprites-light"),
    ("factored,mono,coind", "emoji-medium"),
)
"""Methods and tasks of the board that are profiled at its preset, `standard`, in this order."""

SMALL_PROFILED = (("naive-ode", "gauss2d-fact-id"),)

PROFILE_SECONDS = 240.0

SMALL_SLACK = 6.0
"""Factor on the limits for tiny sizes on a CPU, where other work slows the steps down."""
ROWS, ROWS_SECONDS = "rows", 540.0
"""The last step, if time is left: the missing runs of `mpi3d-medium` on the board, fourteen at the same time."""


def plan(device: str, out: Path, *, small: bool = False) -> list[Step]:
    """All steps, the most important first."""
    compbench = (sys.executable, "-m", "compbench.cli.main")
    pairs = [(row, way) for row, ways in WAYS.items() for way in ways]
    measured = {pair: measurement(*pair, device, out, small=small) for pair in pairs}
    faults = [
        Step(f"fault-{name}", limit, (*script("faults.py", name, "--device", device), *(("--small",) if small else ())))
        for name, limit in FAULTS.items()
    ]
    preset = ("smoke", "--seconds", "0.05") if small else ("standard",)
    profile = (*compbench, "profile", "--preset", *preset, "--device", device, "--to", str(out / "profiles"), "--quiet")
    profiles = [
        Step(
            f"profile-{task}-{number}",
            PROFILE_SECONDS,
            (*profile, "--method", methods, "--task", task),
        )
        for number, (methods, task) in enumerate(SMALL_PROFILED if small else PROFILED)
    ]
    rows = ("--file", "core", "--preset", "standard", "--task", "mpi3d-medium", "--slots", "14", "--resume")
    if small:
        rows = ("--method", "naive-ode", "--task", "gauss2d-fact-id", "--preset", "smoke")
    steps = [
        Step("doctor", 60.0, (*compbench, "doctor", "--device", device)),
        *(measured[pair] for pair in FIRST),
        *faults,
        *profiles[:3],
        *(step for pair, step in measured.items() if pair not in FIRST),
        *profiles[3:],
        Step(ROWS, ROWS_SECONDS, (*compbench, "sweep", *rows, "--device", device, "--quiet")),
    ]
    return [step._replace(seconds=SMALL_SLACK * step.seconds) for step in steps] if small else steps


def measurement(row: str, way: str, device: str, out: Path, *, small: bool) -> Step:
    """The step that measures one row of `throughput.py` in one way."""
    words = ("--row", row, "--way", way, "--device", device, "--out", str(out / "figures.jsonl"))
    sizes = ("--tiny", "--each", "0.1") if small else ("--each", "6")
    name = f"{row}-{way}".replace(" ", "-")
    return Step(name, MEASURE_SECONDS.get(way, 90.0), (*script("throughput.py", *words), *sizes))


def script(name: str, *words: str) -> tuple[str, ...]:
    """The command of a script next to this one."""
    return (sys.executable, str(ROOT / "experiments" / "gpu" / name), *words)


def figures(path: Path) -> list[dict[str, Any]]:
    """The measurements so far; if a row was measured twice in a way, the last one counts."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return list({(row["name"], row["way"]): row for row in map(json.loads, lines)}.values())


def best(found: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """For each measurement, the way with the shortest step, among ways that worked as intended (compiled if requested)."""
    chosen: dict[str, Mapping[str, Any]] = {}
    for row in found:
        if "error" in row or row.get("compiled") == 0.0:
            continue
        if row["name"] not in chosen or row["ms_a_step"] < chosen[row["name"]]["ms_a_step"]:
            chosen[row["name"]] = row
    return chosen


def summary(endings: Sequence[Ending], found: Sequence[Mapping[str, Any]]) -> str:
    """The results so far, as Markdown."""
    winners = best(found)
    lines = ["| measurement | way | ms a step | of the harness's | goal | first step, s | GiB | |", "|" + " --- |" * 8]
    harness = {row["name"]: row["ms_a_step"] for row in found if row["way"] == "harness" and "error" not in row}
    for row in found:
        name = row["name"]
        if "error" in row:
            lines.append(f"| {name} | {row['way']} | | | | | | {one_line(row['error'])} |")
            continue
        ratio = f"{row['ms_a_step'] / harness[name]:.2f}" if name in harness else ""
        first, memory = row.get("first_step_seconds"), (row.get("peak_memory_bytes") or 0) / 2**30
        mark = "best" if row is winners.get(name) else "not compiled" if row.get("compiled") == 0.0 else ""
        facts = [name, row["way"], f"{row['ms_a_step']:.3g}", ratio, row.get("goal_ms") or "", first and f"{first:.0f}"]
        lines.append("| " + " | ".join(str(fact or "") for fact in [*facts, f"{memory:.1f}", mark]) + " |")
    lines += ["", "| step | ended | seconds | limit |", "| --- | --- | --- | --- |"]
    lines += [f"| {one.name} | {one.how} | {one.seconds} | {one.limit} |" for one in endings]
    return "\n".join(lines) + "\n"


def one_line(text: str, most: int = 120) -> str:
    """The beginning of a message, as one line for a cell of a table."""
    return " ".join(text.split())[:most].replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("quarter_hour"), help="folder of all results")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=13, help="minutes for this call")
    parser.add_argument("--only", default="", help="steps with one of these words in their names: profile,rows")
    parser.add_argument("--small", action="store_true", help="tiny sizes, which only show that each step runs")
    parser.add_argument("--dry-run", action="store_true", help="list the plan and what is done")
    asked = parser.parse_args()
    out = asked.out.resolve()
    words = asked.only.split(",")
    steps = [step for step in plan(asked.device, out, small=asked.small) if any(word in step.name for word in words)]
    if asked.dry_run:
        for step in steps:
            done = ended(out, step)
            print(f"{step.seconds:5.0f} s  {done.how if done else 'left':9} {step.name:32} {' '.join(step.words[1:])}")
        print(f"{sum(step.seconds for step in steps) / 60:.0f} minutes at most, {len(steps)} steps")
        return
    home, begin, seconds = out / "home", time.monotonic(), 60 * asked.minutes
    compiled = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    environment = {"COMPBENCH_HOME": str(home), **{name: str(out / "compiled" / place) for name, place in compiled.items()}}
    published = frozenset(path.name for path in (ROOT / "leaderboards" / "records").glob("*.json"))

    def so_far() -> None:
        endings = [ending for step in steps if (ending := ended(out, step))]
        written(out / "summary.md", summary(endings, figures(out / "figures.jsonl")))
        pack(home / "records", out / "records.tgz", published)

    def go_on(some: Sequence[Step]) -> None:
        left = seconds - (time.monotonic() - begin)
        run_steps(some, out, left, environment=environment, after=so_far, say=lambda line: print(line, flush=True))

    go_on([step for step in steps if step.name != ROWS])
    rows = [step for step in steps if step.name == ROWS and ended(out, step) is None]
    if rows and seconds - (time.monotonic() - begin) > GRACE_SECONDS + LEAST_SECONDS:
        if not asked.small:
            take_published(home / "records")
        with shared_card() if asked.device != "cpu" else contextlib.nullcontext():
            go_on(rows)
    so_far()
    print((out / "summary.md").read_text())


if __name__ == "__main__":
    main()
