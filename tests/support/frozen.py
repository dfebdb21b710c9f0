"""Digests of all code that is installed, kept in `tests/registry/frozen.json` so that no change of one goes unseen.

python tests/support/frozen.py              writes today's digests, if a version or the table explains each that changed
python tests/support/frozen.py moved REF    prints the methods that `.ci/run` checks on this commit
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compbench.gate.code_probe import codes, facts_here
from compbench.registry.equal_code import EqualCode, equal_code

PATH = Path(__file__).parents[1] / "registry" / "frozen.json"
DIGITS = 16
"""Of a digest; enough to tell some thousands apart."""
SHARE = 12
"""One of so many methods whose code stayed is checked with a commit, each by its turn."""
Frozen = dict[str, Any]


def today() -> Frozen:
    """Versions by kind and name, and digests by task and method: that on a CPU, and that on GPUs where it is another."""
    facts = facts_here()
    found = codes(facts, foreign=False)
    digests: dict[str, dict[str, str]] = {}
    works = set(facts["works"])  # of other pairs there are no records
    for task in sorted(facts["metrics"]):
        for method in sorted(name for name in facts["versions"]["methods"] if f"{name}/{task}" in works):
            cpu, gpu = (found[f"{method}/{task}/{device}"][0][:DIGITS] for device in ("cpu", "gpu"))
            digests.setdefault(task, {})[method] = cpu if cpu == gpu else f"{cpu} {gpu}"
    scoring = {task: list(metrics) for task, metrics in facts["metrics"].items()}
    return {"versions": facts["versions"], "metrics": scoring, "digests": digests}


def stored() -> Frozen:
    found: Frozen = json.loads(PATH.read_text())
    return found


def known_equal(table: EqualCode) -> Callable[[str, str], bool]:
    """Whether two frozen digests, each of a CPU and of GPUs, are the same or equal by the table."""
    prefixes = {digest[:DIGITS]: table.name(digest) for row in table.rows for digest in (row.old, row.new)}

    def same(one: str, other: str) -> bool:
        devices = zip((one.split() * 2)[:2], (other.split() * 2)[:2], strict=True)
        return all(prefixes.get(was, was) == prefixes.get(now, now) for was, now in devices)

    return same


def unexplained(before: Frozen, after: Frozen, table: EqualCode) -> list[str]:
    """Pairs "method on task" whose digest changed though no version went up and the table does not say that the code is equal."""
    same = known_equal(table)

    def versions(found: Frozen, method: str, task: str) -> list[object]:
        own = found["versions"]
        scoring = found["metrics"].get(task, ())
        return [own["methods"].get(method), own["tasks"].get(task), [own["metrics"].get(name) for name in scoring]]

    return [
        f"{method} on {task}"
        for task, row in after["digests"].items()
        for method, digest in row.items()
        if (was := before["digests"].get(task, {}).get(method)) is not None
        and not same(was, digest)
        and versions(before, method, task) == versions(after, method, task)
    ]


def moved(before: Frozen, after: Frozen, turn: int, table: EqualCode) -> list[str]:
    """Methods whose code on any task is another or new, and by turn every `SHARE`-th of the others; sorted."""
    same = known_equal(table)
    was, now = (
        {(method, task): digest for task, row in found["digests"].items() for method, digest in row.items()}
        for found in (before, after)
    )
    changed = {pair[0] for pair, digest in now.items() if pair not in was or not same(was[pair], digest)}
    others = sorted({method for method, _ in now} - changed)
    return sorted(changed | set(others[turn % SHARE :: SHARE]))


def at(ref: str) -> Frozen:
    """The digests that a commit stored; none where it has no such file, so that all methods count as moved."""
    shown = subprocess.run(["git", "show", f"{ref}:./{PATH.name}"], cwd=PATH.parent, capture_output=True, text=True)
    return json.loads(shown.stdout) if shown.returncode == 0 else {"digests": {}}


def by_task(pairs: list[str]) -> str:
    """Pairs "method on task" in a few words: each task with its only method, or with how many."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        method, _, task = pair.partition(" on ")
        found.setdefault(task, []).append(method)
    words = [f"{own[0] if len(own) == 1 else f'{len(own)} methods'} on {task}" for task, own in found.items()]
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more tasks" if len(words) > 5 else "")


def write() -> None:
    """Store today's digests.  They are compared with the last commit's, so code that was never committed may change freely."""
    now = today()
    bad = unexplained(at("HEAD"), now, equal_code())
    if bad:
        sys.exit(
            f"{len(bad)} codes changed without a version or an entry in the table of equal code: {by_task(bad)}. "
            "Raise the version, or prove it: compbench verify --equal HEAD~1 HEAD --write"
        )
    PATH.write_text(json.dumps(now, indent=0, sort_keys=True) + "\n")


def main(words: list[str]) -> None:
    match words:
        case []:
            write()
        case ["moved", ref]:
            counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=PATH.parent, capture_output=True, text=True)
            print(*moved(at(ref), stored(), int(counted.stdout), equal_code()), sep="\n")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
