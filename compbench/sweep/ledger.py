"""Files of a job array in COMPBENCH_HOME/slurm/NAME: its job number, and for each member a ledger of the runs it finished.

Nodes write, and the submitting machine reads; nothing is unpickled from the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from compbench.api.executor import RunResult
from compbench.system.errors import CompbenchError
from compbench.system.files import read_json, write_atomically

ARRAY_FILE = "array.json"
MAX_BYTES = 2**26


class ArrayFacts(BaseModel):
    """A submitted array.

    Attributes:
        job: its job number.
        shares: for each member, the positions of its runs in the sweep.
        submitted: when, in UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str = Field(pattern=r"^\d{1,20}$")
    shares: tuple[tuple[int, ...], ...]
    submitted: str = Field(max_length=40)

    @property
    def num_runs(self) -> int:
        return sum(map(len, self.shares))

    def member(self, number: int) -> str:
        """SLURM's name for a member; a single member is a plain job."""
        return self.job if len(self.shares) == 1 else f"{self.job}_{number}"

    def save(self, folder: Path) -> None:
        write_atomically(folder / ARRAY_FILE, self.model_dump_json().encode())


def arrays(slurm: Path) -> list[tuple[Path, ArrayFacts]]:
    """The arrays that were submitted from a home, oldest first; other folders are skipped."""
    found = []
    for path in slurm.glob(f"*/{ARRAY_FILE}"):
        with contextlib.suppress(CompbenchError, OSError):
            found.append((path.parent, read_json(path, ArrayFacts, MAX_BYTES, "list of an array's members")))
    return sorted(found, key=lambda one: (one[1].submitted, one[0].name))


def ledger_of(folder: Path, number: int) -> Path:
    """A member's ledger."""
    return folder / f"finished.{number}.jsonl"


def tell(ledger: Path, index: int, result: RunResult) -> None:
    """Add a line to a ledger with the result of the run at a position of the member's share.  The record is in the store."""
    line = json.dumps({"index": index, **result._asdict()}) + "\n"
    with contextlib.suppress(OSError), ledger.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read() == b"\n" else f"\n{line}"  # a line cut short by a kill stays separate
        file.write(line.encode())


def read_ledger(path: Path) -> dict[int, RunResult]:
    """The last result that a member reported for each position of its share.  Incomplete lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError:
        return {}
    found = {}
    for line in lines:
        if line.endswith("\n"):
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                facts = json.loads(line)
                index = facts.pop("index")
                found[index] = RunResult(**facts)
    return found


def reported(folder: Path, shares: Sequence[Sequence[int]]) -> dict[int, RunResult]:
    """The results that all members reported, by position in the sweep."""
    return {
        share[position]: result
        for number, share in enumerate(shares)
        for position, result in read_ledger(ledger_of(folder, number)).items()
        if 0 <= position < len(share)
    }
