"""Measure CPU seconds and memory of commands in stores of many records, optionally against another commit's code.

    python experiments/store_growth.py                                         # empty, 10,000 and 50,000 records
    python experiments/store_growth.py --sizes 10000 --before HEAD~20          # and the ratio to an older commit

A store is filled with copies of the published records under other seeds, each with its own identity, written as compbench writes
them.  Each row has the ratio to the same command in the first store.  Both codes run the same commands in turn in stores of the
same files, so that other work on the machine affects both.  Figures are CPU seconds (user and system, of all processes) and the
largest resident set of any process.  Stores are in a temporary folder, which is deleted at the end.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.store.records import Store, collector_paused, read_record

ROOT = Path(__file__).parent.parent
FIRST_SEED = 1000
"""Copies have seeds from this number on, so that no published seed is written twice."""
CHEAP_SEED, THERE_SEED, NUM_THERE = 900, 100_000, 200
"""The cheap run's seed; then the first seed and the number of its copies, which a sweep finds as existing runs."""
CHEAP = ("--method", "naive-ode-oracle", "--task", "gauss2d-fact-id", "--preset", "smoke", "--device", "cpu")
RUN, SWEEP = "a cheap run", f"{NUM_THERE} runs that are there"
COMMANDS = {
    RUN: ("run", *CHEAP, "--seed", f"{CHEAP_SEED}"),
    SWEEP: ("sweep", *CHEAP, "--seed", f"{THERE_SEED}-{THERE_SEED + NUM_THERE - 1}"),
    "20 chained runs": ("sweep", *CHEAP, "--quiet", "--chain", "--seed", "0-19"),
    "dry-run of core": ("sweep", "--file", "core", "--preset", "standard", "--device", "cpu", "--dry-run"),
    "show a record": ("show", "RECORD"),
    "compare on a task": ("compare", "mono", "factored", "--task", "shapes3d-heavy"),
    "compare two methods": ("compare", "mono", "factored"),
    "board": ("board",),
}
"""The commands, in the order in which they run; RECORD is the name of a record of the store."""
OF_RECORDS = ("show", "compare", "board")
"""Verbs that need records, so that they are not run in an empty store."""


class Cost(NamedTuple):
    """The cost of a command: CPU seconds, and the largest resident set in MiB."""

    seconds: float
    memory: float


def copies(records: Sequence[Record], number: int) -> Iterator[Record]:
    """`number` copies of records; each has another seed and thus another identity."""

    def all_of_them() -> Iterator[Record]:
        for seed in count(FIRST_SEED):
            for record in records:
                yield copy_of(record, seed)

    return islice(all_of_them(), number)


def copy_of(record: Record, seed: int) -> Record:
    """The record with another seed and without pictures."""
    spec = record.spec.model_copy(update={"seed": seed})
    return record.model_copy(update={"spec": spec, "identity": spec.identity, "attempt": 1, "artifacts": ()})


def fill(folder: Path, records: Sequence[Record], number: int) -> None:
    """Write copies until the store has `number` records."""
    store = Store(folder)
    folder.mkdir(parents=True, exist_ok=True)
    distinct = {(one.spec.model_copy(update={"seed": 0}).identity): one for one in records}
    with collector_paused():
        for record in copies(list(distinct.values()), max(0, number - len(store.names()))):
            store.write(record)


def repeat(home: Path) -> None:
    """Write copies of the home's cheap run under other seeds, as if it had been run with each."""
    store = Store(home / "records")
    task, method = CHEAP[3], CHEAP[1]
    (path,) = (path for path in store.paths() if path.name.startswith(f"{task}.{method}.smoke.s{CHEAP_SEED}."))
    done = read_record(path)
    for seed in range(THERE_SEED, THERE_SEED + NUM_THERE):
        store.write(copy_of(done, seed))


def measured(words: Sequence[str], home: Path, code: Path | None) -> Cost:
    """The cost of a command, by the code of this checkout or of another one."""
    paths = [str(code), *map(str, sorted((code / "plugins").iterdir()))] if code else []
    env = {**os.environ, "COMPBENCH_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    with (home / "said.txt").open("wb") as said:
        command = [sys.executable, "-m", "compbench.cli.main", *words]
        process = subprocess.Popen(command, env=env, cwd=home, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {(home / 'said.txt').read_text()[-500:]}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def checkout(commit: str, folder: Path) -> Path:
    """The files of a commit, in a folder."""
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "compbench", "plugins", "leaderboards/equal_code.csv"], cwd=ROOT,
                            check=True, capture_output=True).stdout  # fmt: skip
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="0,10000,50000", help="records in a store, separated by commas")
    parser.add_argument("--before", default="", metavar="COMMIT", help="also run the commands by the code of this commit")
    parser.add_argument("--only", default="", help="only commands whose names contain this text")
    asked = parser.parse_args()
    records, _ = Store(ROOT / "leaderboards" / "records").read()
    first: dict[tuple[str, str], Cost] = {}
    with tempfile.TemporaryDirectory(prefix="compbench-growth-") as folder:
        sides: dict[str, Path | None] = {"after": None}
        if asked.before:
            sides = {"before": checkout(asked.before, Path(folder, "before")), **sides}
        print("records  command                " + "  ".join(f"{side:>24}" for side in sides), " before / after", flush=True)
        filled = Path(folder, "records")
        for size in sorted(map(int, asked.sizes.split(","))):
            fill(filled, records, size)
            one = next(iter(Store(filled).names()), "").removesuffix(".json")
            homes = {side: Path(folder, f"{side}-{size}") for side in sides}
            for home in homes.values():
                shutil.copytree(filled, home / "records", copy_function=os.link)  # hard links, because nothing changes a record
            for name, words in COMMANDS.items():
                if (asked.only not in name and name != RUN) or (words[0] in OF_RECORDS and not size):
                    continue
                shown, costs = [], dict[str, Cost]()
                for side, code in sides.items():
                    if name == SWEEP:
                        repeat(homes[side])
                    asked_for = [one if word == "RECORD" else word for word in words]
                    costs[side] = cost = measured(asked_for, homes[side], code)
                    grown = cost.seconds / first.setdefault((side, name), cost).seconds
                    shown.append(f"{cost.seconds:6.1f} s ({grown:4.1f}) {cost.memory:5.0f} MB")
                ratio = f"{costs['before'].seconds / costs['after'].seconds:15.1f}" if asked.before else ""
                print(f"{size:7}  {name:21}  {'  '.join(shown)}{ratio}", flush=True)


if __name__ == "__main__":
    main()
