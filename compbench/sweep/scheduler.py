"""Ask SLURM about a job: which members are queued, why a member waits, how a member ended.  Every call has a time limit.

`squeue` and `scontrol` ask the controller, which every cluster has; `sacct` asks the accounting database, which many lack.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from compbench.system.errors import CompbenchError

COMMAND_SECONDS = 60.0
"""Longest wait for a SLURM command, in seconds."""
NO_SUCH_JOB = "Invalid job id"
"""The controller's error for a job that it has forgotten (`MinJobAge` after its end)."""


class Silent(CompbenchError):
    """SLURM did not answer, or refused; the message quotes it."""


class State(NamedTuple):
    """A member's state, and the reason that SLURM gives for it; "" if it gives none."""

    name: str
    reason: str


def queued(job: str) -> dict[str, State]:
    """The members in the queue, in any state; a member that is not in the queue has ended.

    Raises:
        Silent: the controller does not answer, so no state is known.
    """
    try:
        return _states(_answer("squeue", "-h", "-r", "-j", job, "-o", "%i|%T|%r"))
    except Silent as error:
        if NO_SUCH_JOB in str(error):
            return {}
        raise


def endings(job: str) -> dict[str, State]:
    """How members ended, as far as SLURM knows: the controller remembers it for some minutes, the accounting database longer."""
    commands = [
        ("sacct", "-n", "-X", "-P", "-j", job, "-o", "JobID,State,Reason"),
        ("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%i|%T|%r"),
    ]
    found: dict[str, State] = {}
    for words in commands:
        try:
            found |= _states(_answer(*words))
        except Silent:
            continue
    return found


def summary(states: Iterable[State]) -> str:
    """A summary such as "3 running, 1 pending (Resources)"; members that do not run have a reason."""
    counts = Counter((state.name, "" if state.name == "RUNNING" else state.reason) for state in states)
    order = sorted(counts.items(), key=lambda item: (item[0][0] != "RUNNING", item[0]))
    return ", ".join(f"{number} {name.lower()}{f' ({reason})' if reason else ''}" for (name, reason), number in order)


def cancel(job: str) -> None:
    """Ask SLURM to cancel a job.

    Raises:
        Silent: SLURM refused or did not answer.
    """
    try:
        _answer("scancel", job)
    except Silent as error:
        if NO_SUCH_JOB not in str(error):
            raise


def max_array_size() -> int:
    """The greatest number of members that an array may have on this cluster; 0 if it is not known."""
    try:
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _answer("scontrol", "show", "config"), re.MULTILINE)
    except Silent:
        return 0
    return int(found[1]) if found else 0


def environment(variables: Mapping[str, str]) -> tuple[str, int]:
    """SLURM's name of this member's job, and how often it was requeued.

    submitit submits a single member as a plain job, not as an array of one.
    """
    array = variables.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{variables['SLURM_ARRAY_TASK_ID']}" if array else variables.get("SLURM_JOB_ID", "")
    return job, int(variables.get("SLURM_RESTART_COUNT", "0"))


def _answer(*words: str) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Silent(f"{words[0]} did not answer for {COMMAND_SECONDS:g} s.") from error
    except OSError as error:
        raise Silent(f"{words[0]} cannot be started: {error}.") from error
    if done.returncode:
        message = " ".join(done.stderr.split())[-300:] or f"exit status {done.returncode}"
        raise Silent(f"{words[0]}: {message}")
    return done.stdout


def _states(text: str) -> dict[str, State]:
    """Members by name; lines of another form, such as a banner of the site, are skipped."""
    found = {}
    for line in text.splitlines():
        match line.split("|"):
            case [name, state, reason] if re.fullmatch(r"\d+(_\d+)?", name.strip()):
                found[name.strip()] = State(state.strip(), "" if reason.strip() in ("None", "Unknown") else reason.strip())
    return found
