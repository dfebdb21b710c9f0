"""Run commands with time limits one after the other within a budget; results are written at once, and a second call continues.

In a folder, NAME.log has the output of a step, and NAME.json how it ended: `ok`, `failed`, `too long` (its own limit) or
`cut off` (the budget).  Only steps that were cut off are run again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
GRACE_SECONDS = 20
"""Time between asking a step to stop and killing it, in which runs save checkpoints."""
LEAST_SECONDS = 10
"""A step is not started if less time than this is left."""


class Step(NamedTuple):
    """A command: its name, its time limit in seconds, and its words."""

    name: str
    seconds: float
    words: tuple[str, ...]


class Ending(NamedTuple):
    """How a step ended."""

    name: str
    how: str
    seconds: float
    limit: float
    status: int | None


def ended(folder: Path, step: Step) -> Ending | None:
    """How a step ended in an earlier call, if it need not be run again."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = Ending(**json.loads((folder / f"{step.name}.json").read_text()))
        return None if found.how == "cut off" else found
    return None


def run_steps(
    steps: Sequence[Step],
    folder: Path,
    seconds: float,
    *,
    environment: Mapping[str, str] | None = None,
    after: Callable[[], object] = lambda: None,
    say: Callable[[str], object] = print,
) -> list[Ending]:
    """Run the remaining ones of some steps.

    Args:
        steps: what to run, the most important first.
        folder: folder of the results.
        seconds: time for all steps.
        environment: environment variables that the steps get in addition to ours.
        after: called after each step.
        say: called with a line for each step.

    Returns:
        how each step ended, in this call or before; a step that was not begun is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begin, found = time.monotonic(), []
    for step in steps:
        ending = ended(folder, step)
        if ending is None:
            left = seconds - (time.monotonic() - begin) - GRACE_SECONDS
            if left < min(LEAST_SECONDS, step.seconds):
                continue
            say(f"{step.name}: up to {min(left, step.seconds):.0f} s of {seconds - (time.monotonic() - begin):.0f} s left")
            ending = run_step(step, folder, min(left, step.seconds), environment or {})
            say(f"{step.name}: {ending.how} after {ending.seconds:.0f} s")
            after()
        found.append(ending)
    return found


def run_step(step: Step, folder: Path, limit: float, environment: Mapping[str, str]) -> Ending:
    """Run a command in its own process group and write down how it ended; a command that is stopped may save first."""
    begin = time.monotonic()
    with (folder / f"{step.name}.log").open("w") as log:
        try:
            process = subprocess.Popen(
                step.words,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment},
            )
            status = _waited(process, limit)
        except OSError as error:
            print(error, file=log)
            status = 127
    how = {0: "ok", None: "too long" if limit >= step.seconds else "cut off"}.get(status, "failed")
    ending = Ending(step.name, how, round(time.monotonic() - begin, 1), round(limit, 1), status)
    written(folder / f"{step.name}.json", json.dumps(ending._asdict()) + "\n")
    return ending


def _waited(process: subprocess.Popen[Any], limit: float) -> int | None:
    """The exit status; None if the process had to be stopped."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=limit)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_SECONDS)
            break
    return None


def written(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text)
    part.replace(path)


@contextlib.contextmanager
def shared_card() -> Iterator[bool]:
    """Run NVIDIA's multi-process service during a block, if the driver has it, so that kernels of several processes run at once.

    Yields whether the service runs.  No setting of the card is changed.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    started = bool(control) and subprocess.run([control, "-d"], check=False).returncode == 0
    try:
        yield started
    finally:
        if started:
            subprocess.run([control], input=b"quit\n", check=False, stdout=subprocess.DEVNULL)


def take_published(records: Path, published: Path = ROOT / "leaderboards" / "records") -> frozenset[str]:
    """Copy missing published records into a store, so that a sweep does only what the board lacks; return their names."""
    records.mkdir(parents=True, exist_ok=True)
    names = frozenset(path.name for path in published.glob("*.json"))
    for name in names:
        if not (records / name).exists():
            shutil.copy(published / name, records / name)
    return names


def pack(records: Path, target: Path, known: frozenset[str] = frozenset()) -> int:
    """Write records and pictures, except those in `known`, to one archive, whole or not at all; return the number of files."""
    found = sorted(path for path in records.rglob("*") if path.is_file()) if records.is_dir() else []
    files = [path for path in found if path.name not in known]
    part = target.with_suffix(".part")
    with tarfile.open(part, "w:gz", compresslevel=4) as archive:
        for path in files:
            archive.add(path, path.relative_to(records.parent))
    part.replace(target)
    return len(files)
