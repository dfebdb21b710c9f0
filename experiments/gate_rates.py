"""How often the speed gate is red or inconclusive on identical code, and how often it sees a true slowdown: real processes.

    python experiments/gate_rates.py identical --gates 100      hours of a busy machine, 40 minutes of two idle cores
    python experiments/gate_rates.py slower --gates 30          a quarter more solver steps, hence a quarter more work a request
    python experiments/gate_rates.py show                       counts, and what the gate would say of pairs drawn from all these

Each gate is the gate's own race over fresh processes of this environment, without the shortcut for equal code, at its default
tolerance and pairs.  Every pair is kept in a file (--to), so that several calls add up and `show` can draw from them again.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from compbench.gate.regression import MOST_PAIRS
from compbench.gate.sides import CellOptions, Side, home_of
from compbench.gate.speed import Lap, race
from compbench.gate.suite import Cell
from compbench.gate.turns import Label, Pair, run_pair

Kind = Literal["identical", "slower"]
CELLS = (("fkc", "gauss2d-fact-id"), ("factored", "shapes3d-heavy"))
"""Cells that the suite races: many small steps, and a UNet."""
STEPS = 8
SLOWER = 1.25
TOLERANCE, PAIRS = 0.05, 3
DRAWS = 1000


def cells(name: tuple[str, str], kind: Kind) -> dict[Label, Cell]:
    """The cell of each side; the slower one answers with more solver steps."""
    method, task = name
    steps = {"base": STEPS, "head": round(STEPS * SLOWER) if kind == "slower" else STEPS}
    return {label: Cell(method=method, task=task, set={"budget.sample_steps": steps[label]}) for label in ("base", "head")}


def verdict(laps: list[Lap]) -> str:
    """What the gate says of a race: red, inconclusive or pass."""
    if any(lap.regression for lap in laps):
        return "red"
    return "pass" if all(lap.comparison.finding == "not worse" for lap in laps) else "inconclusive"


def real_gate(name: tuple[str, str], kind: Kind, folder: Path, kept: list[Pair]) -> str:
    """One gate of one cell with fresh processes; its pairs are added to `kept`."""
    both = cells(name, kind)
    sides = {label: Side(label, Path(sys.executable), home_of(folder / label, Path("/nonexistent"))) for label in both}
    options = CellOptions(source="embedded", clock="cpu", seconds=1.0)

    def timer(cell: str, begins: Label) -> Pair:
        kept.append(run_pair({label: (sides[label], both[label]) for label in both}, options, begins))
        return kept[-1]

    return verdict(race(["/".join(name)], timer, tolerance=TOLERANCE, pairs=PAIRS, max_pairs=MOST_PAIRS, seconds=math.inf))


def drawn_gate(pairs: list[dict[str, float]], generator: random.Random) -> str:
    """What the gate says of pairs drawn, with replacement, from those that were measured."""

    def timer(cell: str, begins: Label) -> Pair:
        ratios = generator.choice(pairs)
        return Pair(dict.fromkeys(ratios, 1.0), {row: math.exp(ratio) for row, ratio in ratios.items()}, ratios)

    return verdict(race(["drawn"], timer, tolerance=TOLERANCE, pairs=PAIRS, max_pairs=MOST_PAIRS, seconds=math.inf))


def measure(kind: Kind, gates: int, file: Path) -> None:
    """Run gates, the cells by turns, and write each down as soon as it is done."""
    for number in range(gates):
        name, kept, start = CELLS[number % len(CELLS)], [], time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = real_gate(name, kind, Path(folder), kept)
        entry = {
            "kind": kind,
            "cell": "/".join(name),
            "verdict": found,
            "seconds": round(time.monotonic() - start, 1),
            "pairs": [dict(pair.log_ratios) for pair in kept],
        }
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(entry) + "\n")
        print(f"{number + 1}/{gates} {entry['cell']}: {found}, {len(kept)} pairs, {entry['seconds']:.0f} s", flush=True)


def show(entries: list[dict[str, Any]], say: Callable[[str], None] = print) -> None:
    """Counts of the real gates, the spread of their pairs, and the rates of gates drawn from these."""
    for kind in ("identical", "slower"):
        for cell in sorted({entry["cell"] for entry in entries if entry["kind"] == kind}):
            own = [entry for entry in entries if (entry["kind"], entry["cell"]) == (kind, cell)]
            pairs = [pair for entry in own for pair in entry["pairs"]]
            generator = random.Random(0)
            drawn = Counter(drawn_gate(pairs, generator) for _ in range(DRAWS))
            counts = Counter(entry["verdict"] for entry in own)
            longest = max(entry["seconds"] for entry in own)
            say(f"{kind} {cell}: {len(own)} gates {dict(counts)}, {len(pairs)} pairs, longest {longest:.0f} s")
            for row in sorted(set.intersection(*(set(pair) for pair in pairs))):
                values = [pair[row] for pair in pairs]
                centre = math.fsum(values) / len(values)
                spread = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / max(1, len(values) - 1))
                say(f"  {row}: mean {math.expm1(centre):+.1%}, standard deviation of a pair {spread:.1%}")
            say(f"  of {DRAWS} gates of drawn pairs: {', '.join(f'{name} {drawn[name] / DRAWS:.1%}' for name in sorted(drawn))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["identical", "slower", "show"])
    parser.add_argument("--gates", type=int, default=100)
    parser.add_argument("--to", type=Path, default=Path("gate_rates.jsonl"))
    asked = parser.parse_args()
    if asked.what == "show":
        show([json.loads(line) for line in asked.to.read_text(encoding="utf-8").splitlines()])
    else:
        measure(asked.what, asked.gates, asked.to)


if __name__ == "__main__":
    main()
