"""How often the speed gate is red or inconclusive on identical code, and how often it detects a true slowdown: real processes.

    python experiments/gate_rates.py identical --gates 100      other syntax, the same work: the race decides
    python experiments/gate_rates.py same --gates 5             other comments: the hash of the code's meaning decides
    python experiments/gate_rates.py slower --gates 30          a quarter more solver steps, so a quarter more work per request
    python experiments/gate_rates.py show                       counts with intervals, and verdicts on gates of resampled pairs

Base and head are git worktrees of the commit, each with its own environment, as `compbench gate --base-ref` makes them; the
head's method file is edited.  Each gate is the real race over fresh processes with the default tolerance and number of pairs.
Every gate is written to a file (--to) with its pairs as soon as it is done: a call continues where the last one ended, up to
--gates of its kind in all, and begins no gate after --minutes.  Ctrl-C and SIGTERM stop the script and leave no worktree behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from compbench.gate import rows as table
from compbench.gate import sides, worktree
from compbench.gate.regression import MOST_PAIRS, Plan, gate
from compbench.gate.sides import CellOptions, Side
from compbench.gate.speed import Lap, race
from compbench.gate.suite import Cell, Suite
from compbench.gate.turns import Label, Pair, run_pair
from compbench.runner.signals import interrupted_once
from compbench.system.home import home_beside

Kind = Literal["identical", "same", "slower"]
CELL = ("fkc", "gauss2d-fact-id")
"""A cell of the CI suite; its steps and requests are short, so its gates take the fewest CPU seconds."""
METHOD_FILE = Path("plugins/compbench-methods/compbench_methods/fkc.py")
EDITS = {
    "identical": ("    scheme: Literal", "    UNUSED: ClassVar[int] = 0\n    scheme: Literal"),
    "same": ("    scheme: Literal", "    # how positions are drawn\n    scheme: Literal"),
}
"""Edits of the head's method file: one changes its syntax but not its behaviour, the other only adds a comment."""
STEPS = 8
SLOWER = 1.25
TOLERANCE, PAIRS = 0.05, 3
DRAWS = 1000


def cells(kind: Kind) -> dict[Label, Cell]:
    """The cell of each side; the slower side answers with more solver steps."""
    method, task = CELL
    steps = {"base": STEPS, "head": round(STEPS * SLOWER) if kind == "slower" else STEPS}
    return {label: Cell(method=method, task=task, set={"budget.sample_steps": steps[label]}) for label in ("base", "head")}


@contextlib.contextmanager
def worktrees(kind: Kind) -> Iterator[dict[Label, Side]]:
    """Base and head, each a worktree of the last commit with its own environment; the head's method file is edited."""
    top = worktree.repository(Path.cwd())
    commit = worktree.commit_of(top, "HEAD")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found: dict[Label, Side] = {}
        for label in ("base", "head"):
            tree = stack.enter_context(worktree.checked_out(top, commit))
            if label == "head" and kind in EDITS:
                file = tree / METHOD_FILE
                file.write_text(edited(file.read_text(encoding="utf-8"), kind), encoding="utf-8")
            python = worktree.environment(tree, top, folder / f"{label}-environment")
            found[label] = Side(label, python, home_beside(folder / label, Path("/nonexistent")), own=False)
        hashes = [sides.code(side, [Cell(method=CELL[0], task=CELL[1])]) for side in found.values()]
        assert all(hashes), "a side has no hash of its code"
        assert (hashes[0] == hashes[1]) == (kind != "identical"), "the edit is not what it is meant to be"
        yield found


def edited(text: str, kind: Kind) -> str:
    """The method's file with the edit of a kind."""
    old, new = EDITS[kind]
    assert text.count(old) == 1, old
    return text.replace(old, new).replace("Annotated, Any,", "Annotated, Any, ClassVar,")


def verdict(laps: list[Lap]) -> str:
    """The gate's verdict on a race: red, inconclusive or pass."""
    if any(lap.regression for lap in laps):
        return "red"
    return "pass" if all(lap.comparison.finding == "not worse" for lap in laps) else "inconclusive"


def real_gate(kind: Kind, both: dict[Label, Side], seconds: float, kept: list[Pair]) -> str:
    """One gate of the cell with fresh processes; its pairs are added to `kept`."""
    asked, options = cells(kind), CellOptions(source="embedded", clock="cpu", seconds=seconds)
    if kind == "same":
        suite = Suite(cell=(asked["head"].model_copy(update={"gates": ("exact", "speed")}),))
        rows = gate(Plan(suite, options), both["head"], both["base"], None).rows
        return {"regression": "red"}.get(found := table.answer(rows), found)

    def timer(cell: str, begins: Label) -> Pair:
        kept.append(run_pair({label: (both[label], asked[label]) for label in both}, options, begins))
        return kept[-1]

    return verdict(race(["/".join(CELL)], timer, tolerance=TOLERANCE, pairs=PAIRS, max_pairs=MOST_PAIRS))


def drawn_gate(pairs: list[dict[str, float]], generator: random.Random) -> str:
    """The gate's verdict on pairs drawn with replacement from the measured ones."""

    def timer(cell: str, begins: Label) -> Pair:
        ratios = generator.choice(pairs)
        return Pair(dict.fromkeys(ratios, 1.0), {row: math.exp(ratio) for row, ratio in ratios.items()}, ratios)

    return verdict(race(["drawn"], timer, tolerance=TOLERANCE, pairs=PAIRS, max_pairs=MOST_PAIRS, seconds=math.inf))


def measure(kind: Kind, gates: int, file: Path, *, seconds: float, minutes: float) -> None:
    """Run the gates that the file lacks, and write each down as soon as it is done."""
    until, done = time.monotonic() + 60 * minutes, sum(entry["kind"] == kind for entry in entries_of(file))
    if done >= gates:
        return
    with interrupted_once(), worktrees(kind) as both:
        while done < gates and time.monotonic() < until:
            kept: list[Pair] = []
            start, cpu = time.monotonic(), cpu_seconds()
            found, done = real_gate(kind, both, seconds, kept), done + 1
            entry = {
                "kind": kind,
                "cell": "/".join(CELL),
                "verdict": found,
                "seconds": round(time.monotonic() - start, 1),
                "cpu_seconds": round(cpu_seconds() - cpu, 1),
                "load": round(os.getloadavg()[0], 1),
                "pairs": [dict(pair.log_ratios) for pair in kept],
            }
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(entry) + "\n")
            took = f"{entry['seconds']:.0f} s, {entry['cpu_seconds']:.0f} CPU s, load {entry['load']}"
            print(f"{kind} {done}/{gates}: {found}, {len(kept)} pairs, {took}", flush=True)


def entries_of(file: Path) -> list[dict[str, Any]]:
    """The gates that were measured so far."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def cpu_seconds() -> float:
    """CPU seconds of all ended child processes of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interval(hits: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a rate of `hits` in n."""
    z = 1.96
    centre, half = (hits + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def show(entries: list[dict[str, Any]], say: Callable[[str], None] = print) -> None:
    """Print counts of the real gates, the spread of their pairs, and the rates of gates resampled from these pairs."""
    for kind in ("identical", "same", "slower"):
        own = [entry for entry in entries if entry["kind"] == kind]
        if not own:
            continue
        for name, hits in sorted(Counter(entry["verdict"] for entry in own).items()):
            low, high = interval(hits, len(own))
            say(f"{kind}: {hits} of {len(own)} {name}, {low:.0%} to {high:.0%}")
        middle = {key: sorted(entry[key] for entry in own)[len(own) // 2] for key in ("seconds", "cpu_seconds", "load")}
        longest = max(entry["seconds"] for entry in own)
        took = f"{middle['cpu_seconds']:.0f} CPU s, {middle['seconds']:.0f} s (longest {longest:.0f}), load {middle['load']}"
        say(f"  a gate, in the middle: {took}")
        pairs = [pair for entry in own for pair in entry["pairs"]]
        if not pairs:
            continue
        generator = random.Random(0)
        drawn = Counter(drawn_gate(pairs, generator) for _ in range(DRAWS))
        for row in sorted(set.intersection(*(set(pair) for pair in pairs))):
            values = [pair[row] for pair in pairs]
            centre = math.fsum(values) / len(values)
            spread = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / max(1, len(values) - 1))
            say(f"  {row}: {len(pairs)} pairs, mean {math.expm1(centre):+.1%}, standard deviation of a pair {spread:.1%}")
        say(f"  of {DRAWS} gates of drawn pairs: {', '.join(f'{name} {drawn[name] / DRAWS:.1%}' for name in sorted(drawn))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["identical", "same", "slower", "show"])
    parser.add_argument("--gates", type=int, default=100, help="number of gates of the kind, including those in the file")
    parser.add_argument("--to", type=Path, default=Path("gate_rates.jsonl"))
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per process, as a suite's speed_seconds")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no gate after this many minutes")
    asked = parser.parse_args()
    if asked.what == "show":
        show(entries_of(asked.to))
    else:
        try:
            measure(asked.what, asked.gates, asked.to, seconds=asked.seconds, minutes=asked.minutes)
        except KeyboardInterrupt:
            sys.exit("stopped; run the same command again to continue")


if __name__ == "__main__":
    main()
