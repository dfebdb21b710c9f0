"""Digests of code that gives the same bits: a record made by either of two equal codes counts for both.

The table is `equal_code.csv` next to this file (`leaderboards/equal_code.csv` is a link to it): old digest, new digest, the
commit that changed the code, and the proof.  `compbench verify --equal OLD NEW --write` proves that two commits give the same
bits and adds their digests to the table; `compbench verify --equal-code` proves the whole table again.  Digests are those of
whole runs (`RunSpec.code`) and of parts of the code (`Code.parts`); a digest that is not in the table equals only itself.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import RunSpec
from compbench.system.errors import CompbenchError

TABLE = Path(__file__).with_name("equal_code.csv")
DIGEST = re.compile(r"[0-9a-f]{64}")
COMMITS = re.compile(r"[0-9a-f]{40}(\.\.[0-9a-f]{40})?")


class Equal(NamedTuple):
    """One row of the table.

    Attributes:
        old, new: digests of code, 64 hex digits.
        commit: the commit whose code has the new digest, if the code of its first parent has the old one; else "OLD..NEW".
        proof: "meaning" (today's hash of both sources is the same) or "bits" (both give the same samples and scores).
    """

    old: str
    new: str
    commit: str
    proof: str


class EqualCode:
    """Which digests are equal, by the rows of a table and their transitive closure."""

    def __init__(self, rows: Iterable[Equal] = ()) -> None:
        self.rows = tuple(rows)
        neighbours: dict[str, set[str]] = defaultdict(set)
        for row in self.rows:
            neighbours[row.old].add(row.new)
            neighbours[row.new].add(row.old)
        self._classes: dict[str, tuple[str, ...]] = {}
        for start in neighbours:
            if start not in self._classes:
                found, waiting = {start}, [start]
                while waiting:
                    further = neighbours[waiting.pop()] - found
                    found |= further
                    waiting += further
                self._classes |= dict.fromkeys(found, tuple(sorted(found)))

    def all_of(self, digest: str) -> tuple[str, ...]:
        """The digest, followed by all digests that are equal to it."""
        return digest, *(other for other in self._classes.get(digest, ()) if other != digest)

    def name(self, digest: str) -> str:
        """A common name for equal digests: two digests are equal if their names are the same."""
        return self._classes.get(digest, (digest,))[0]

    def identities(self, spec: RunSpec) -> tuple[str, ...]:
        """The identity of a run, followed by the identities of the same run with equal code."""
        first, *others = self.all_of(spec.code)
        assert first == spec.code
        return spec.identity, *(spec.model_copy(update={"code": other}).identity for other in others)

    def run_of(self, spec: RunSpec, identity: str = "") -> str:
        """A common identity for a run and the same run with equal code; `identity` is the spec's identity, if it is known."""
        name = self.name(spec.code)
        return identity or spec.identity if name == spec.code else spec.model_copy(update={"code": name}).identity


@lru_cache(maxsize=1)
def equal_code() -> EqualCode:
    """The table that is installed with compbench.  Raises CompbenchError: it cannot be read."""
    return EqualCode(read_table(TABLE))


def read_table(path: Path) -> list[Equal]:
    """The rows of a table.

    Raises:
        CompbenchError: the file cannot be read, or a row does not consist of two digests, a commit and a proof.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [Equal(**row) for row in csv.DictReader(file)]
    except (OSError, TypeError, ValueError, csv.Error) as error:
        raise CompbenchError(f"{path} cannot be read as a table of equal code: {str(error)[:200]}.") from error
    for number, row in enumerate(rows, 2):
        if not (DIGEST.fullmatch(row.old) and DIGEST.fullmatch(row.new) and COMMITS.fullmatch(row.commit) and row.proof):
            raise CompbenchError(f"{path}, line {number}: expected old digest, new digest, commit and proof.")
    return rows


def write_table(path: Path, rows: Iterable[Equal]) -> None:
    """Write a table, sorted, each row once."""
    lines = [",".join(row) for row in sorted(set(rows), key=lambda row: (row.commit, row.proof, row.old, row.new))]
    path.resolve().write_text("\n".join([",".join(Equal._fields), *lines, ""]), encoding="utf-8")
