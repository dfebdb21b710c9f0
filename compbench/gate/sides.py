"""Base and head are two interpreters, each with its own compbench; both run the same measurements in separate processes.

Each side has its own home, so that neither sees the other's caches, and starts its processes in an empty folder without the
caller's PYTHONPATH, so that `import compbench` finds the version installed there.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from compbench.gate.suite import Cell
from compbench.runner import sandbox, supervisor
from compbench.runner.processes import MALLOC, last_line, own_places
from compbench.runner.supervisor import STOP
from compbench.sweep.parse import parse_seeds
from compbench.system.devices import num_cores, thread_variables
from compbench.system.files import Json
from compbench.system.home import CLOSED, Home, home_beside

Answer = dict[str, Any]
"""The answer of a probe: the fields of a JSON object."""

SUPERVISOR = Path(supervisor.__file__)
"""The supervisor is run as a file, because a base may be older than this module."""
PROBE = Path(__file__).with_name("probe.py")
FORKED_PROBE = Path(__file__).with_name("forked_probe.py")
PROBE_SECONDS = 900
RUN_SECONDS = 3600.0
"""Longest time in seconds that a process may take; a process that takes longer counts as hanging."""
LOOK_SECONDS = 0.5
"""The gate checks at this interval whether a wait should end."""
LEAKING = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Environment variables through which one side could import the other side's code."""


class Unable(Exception):
    """A side could not carry out an order; one line says why."""


class CouldNotRun(Exception):
    """The gate itself could not work, for example without an environment for the base.  Exit status 4."""


@dataclass(frozen=True)
class Side:
    """One of the two sides of a comparison.

    Attributes:
        label: its name in the report.
        python: its interpreter.
        home: its COMPBENCH_HOME; the folder is made here.
        plugins: files of methods that are not installed.
        own: whether the side is this process's own environment, with its PYTHONPATH.
        stopping: once it is set, running processes are killed and no other starts.
    """

    label: str
    python: Path
    home: Path
    plugins: tuple[Path, ...] = ()
    own: bool = True
    stopping: threading.Event = field(default_factory=threading.Event)

    def environment(self, threads: int = 1) -> dict[str, str]:
        """Environment variables of its processes.  Temporary files are next to its home; compiled code stays in the user's cache.

        Plugins of a side cannot read the user's own records and references.
        """
        compiled = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
        kept = {key: value for key, value in os.environ.items() if self.own or key not in LEAKING}
        closed = json.dumps([str(path) for path in self.closed])
        fixed = {"COMPBENCH_HOME": str(self.home), CLOSED: closed, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
        places = {"TORCHINDUCTOR_CACHE_DIR": str(compiled), **kept, "TMPDIR": str(self.home / "scratch")}
        return {**places, **MALLOC, **thread_variables(threads), **fixed}

    @property
    def closed(self) -> tuple[Path, ...]:
        """Folders of its home and of the user's home that its plugins may not read."""
        return Home(self.home).closed

    def run(self, arguments: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None) -> Any:
        """Run a module or a file, and return the JSON on its last line of output.  Raises Unable if there is none."""
        scratch = self.home / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        words = [str(self.python), "-P", str(SUPERVISOR), "0", *arguments]
        env = environment or self.environment()
        ended = supervised(words, seconds=seconds, env=env, cwd=scratch, stopping=self.stopping)
        try:
            return json.loads(ended.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise Unable(f"exit status {ended.returncode}: {last_line(ended.stderr) or 'it printed nothing'}") from error


def supervised(
    words: Sequence[str], *, seconds: float, env: Mapping[str, str], cwd: Path, stopping: threading.Event
) -> subprocess.CompletedProcess[str]:
    """Run a command under the supervisor: however the wait for it ends, no process of the command is left.

    Raises:
        Unable: it cannot be started, takes too long, or was asked to stop.
    """
    deadline = time.monotonic() + seconds
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise Unable(f"{words[0]}: {error.strerror or error}") from error
    try:
        while not stopping.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                printed, complaints = process.communicate(timeout=LOOK_SECONDS)
                return subprocess.CompletedProcess(words, process.returncode, printed, complaints)
            if time.monotonic() > deadline:
                raise Unable(f"did not finish within {seconds:g} s")
        raise Unable("stopped")
    finally:
        if process.poll() is None:
            process.send_signal(STOP)
            process.communicate()


class CellOptions(NamedTuple):
    """How cells are measured: device, data, clock, seconds, precision and number of threads."""

    device: str = "cpu"
    source: str = "auto"
    clock: str = "wall"
    seconds: float = 1.0
    precision: str = "fp32"
    threads: int = 1


class Facts(NamedTuple):
    """Exact facts by name, and the torch version and CPU for which their bytes and hashes hold."""

    values: Answer
    machine: str


class ScoreBySeed(BaseModel):
    """One score of the records of some seeds, and the facts that are needed to compare it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: str
    metric_version: int = Field(ge=1)
    direction: Literal["higher", "lower"]
    values: dict[int, float] = Field(description="by seed")


class Scores(NamedTuple):
    """Scores of the records of some seeds, the task's version, and the data of the scores ("" if not recorded)."""

    scores: dict[str, ScoreBySeed]
    task_version: int
    source: str = ""
    fingerprint: str = ""


def facts(side: Side, cells: Sequence[Cell], options: CellOptions) -> list[Facts | Unable]:
    """Exact facts of cells, on the CPU with one thread, each in a forked process; or the reason why there are none."""
    options = options._replace(device="cpu", threads=1)
    orders = [
        {**order_of(side, cell, options, "facts"), "limit": PROBE_SECONDS, "places": places_of(side, cell)} for cell in cells
    ]
    words = [str(FORKED_PROBE), str(PROBE), json.dumps(orders)]
    try:
        answers = side.run(words, seconds=PROBE_SECONDS * (len(cells) + 1))
    except Unable as error:
        return [error for _ in cells]
    return [
        Unable(answer["error"]) if "error" in answer else Facts(answer["facts"], f"torch {answer['torch']}, {answer['cpu']}")
        for answer in answers
    ]


def code(side: Side, cells: Sequence[Cell]) -> dict[str, str]:
    """Hashes of all code that runs of some cells execute on a side, by "method/task"; {} if its compbench cannot compute them."""
    pairs = sorted({(cell.method, cell.task) for cell in cells})
    order = {"kind": "code", "pairs": pairs, "plugins": [str(path) for path in side.plugins]}
    try:
        found: dict[str, str] = side.run([str(PROBE), json.dumps(order)], seconds=PROBE_SECONDS).get("code", {})
    except Unable:
        return {}
    return found


def described(side: Side, cell: Cell, options: CellOptions) -> Answer:
    """The circumstances of a cell's costs (`probe.described`); the process also fills the caches.  Raises Unable."""
    return _probe(side, cell, options, "described")


def costs(side: Side, cell: Cell, options: CellOptions, count: int, *, on_gpu: bool) -> list[Answer]:
    """Costs of a cell from `count` processes, one after the other (`probe.costs`).

    On a CPU the processes are forked from one that has only loaded torch.  On a GPU each process is new, and a first one that
    does not count compiles code for the others.

    Raises:
        Unable: a process failed; the message has the reason.
    """
    if on_gpu:
        return [_probe(side, cell, options, "costs") for _ in range(count + 1)][1:]
    order = {**order_of(side, cell, options, "costs"), "limit": PROBE_SECONDS, "places": places_of(side, cell)}
    words = [str(FORKED_PROBE), str(PROBE), json.dumps([order] * count)]
    answers: list[Answer] = side.run(words, seconds=PROBE_SECONDS * count, environment=side.environment(options.threads))
    for answer in answers:
        if "error" in answer:
            raise Unable(str(answer["error"]))
    return answers


class Command(NamedTuple):
    """A probe's command without its interpreter, and its environment."""

    words: list[str]
    environment: dict[str, str]


def command_of(side: Side, cell: Cell, options: CellOptions, kind: str) -> Command:
    """The command that starts a probe."""
    own = side.environment(options.threads) | places_of(side, cell)
    return Command([str(PROBE), json.dumps(order_of(side, cell, options, kind))], own)


def places_of(side: Side, cell: Cell) -> dict[str, str]:
    """Variables that keep temporary files and compiled code in the folder of a cell's method."""
    return own_places(folder_of(side, cell))


def order_of(side: Side, cell: Cell, options: CellOptions, kind: str) -> dict[str, Json]:
    """The order for a probe, which runs in a contestant's sandbox and can write only to a folder of its method."""
    border = {"file": sandbox.__file__, "folder": str(folder_of(side, cell)), "closed": [str(path) for path in side.closed]}
    return {
        "border": border,
        "kind": kind,
        "method": cell.method,
        "task": cell.task,
        "overrides": cell.set,
        "preset": cell.preset,
        "seed": parse_seeds(cell.seeds)[0],
        "plugins": [str(path) for path in side.plugins],
        "home": str(side.home),
        **options._asdict(),
    }


def folder_of(side: Side, cell: Cell) -> Path:
    """The folder that a cell's method may write to."""
    return side.home / "scratch" / hashlib.sha256(cell.method.encode()).hexdigest()[:12]


def _probe(side: Side, cell: Cell, options: CellOptions, kind: str) -> Answer:
    words, environment = command_of(side, cell, options, kind)
    answer: Answer = side.run(words, seconds=PROBE_SECONDS, environment=environment)
    if "error" in answer:
        raise Unable(answer["error"])
    return answer


def scores(side: Side, cell: Cell, options: CellOptions) -> Scores:
    """Scores of all seeds of a cell, by `compbench sweep` of that side.

    Raises:
        Unable: a seed has no finished record; the message has the reason.
    """
    records = _records(side, cell, options)
    spec = records[0]["spec"]
    return Scores(_gathered(records, cell.scores), spec["task_version"], spec["source"], spec["fingerprint"])


def all_scores(side: Side, cell: Cell, options: CellOptions) -> dict[str, list[float | None]]:
    """Every score of a cell's records with its ceiling and floor, by seed and name.  Raises Unable as `scores` does."""
    return {
        f"{record['spec']['seed']} {score['name']}": [score["value"], score.get("ceiling"), score.get("floor")]
        for record in _records(side, cell, options)
        for score in record["scores"]
    }


def _records(side: Side, cell: Cell, options: CellOptions) -> list[Answer]:
    """The records of all seeds of a cell; missing ones are run.

    A side may have an older or a newer format than this one, so its records are plain JSON here: fields at their defaults may be
    absent.
    """
    words = ["compbench.cli.main", "sweep", "--method", cell.method, "--task", cell.task, "--preset", cell.preset]
    words += ["--seed", cell.seeds, "--device", options.device, "--source", options.source, "--chain", "--quiet", "--json"]
    if options.device == "cpu":
        words += ["--slots", str(num_cores())]  # one thread per run, so that sums have the same order on every machine
    for path in side.plugins:
        words += ["--plugin", str(path)]
    for name, value in cell.set.items():
        words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    results = side.run(words, seconds=RUN_SECONDS)
    bad = next((result for result in results if result["status"] != "ok"), None)
    if bad is not None:
        raise Unable(f"seed {bad['seed']}: {bad['status']}: {bad['reason'][:300]}")
    return [json.loads(Path(result["path"]).read_text(encoding="utf-8")) for result in results]


def _gathered(records: list[Answer], wanted: tuple[str, ...]) -> dict[str, ScoreBySeed]:
    """The wanted scores (or else the primary one) of all records, except where a score is unavailable."""
    found: dict[str, ScoreBySeed] = {}
    for record in records:
        for score in record["scores"]:
            if (score["name"] in wanted if wanted else score.get("primary")) and score["value"] is not None:
                known = found.setdefault(score["name"], _valueless(score))
                known.values[int(record["spec"]["seed"])] = score["value"]
    missing = sorted(set(wanted) - set(found))
    if missing or not found:
        there = ", ".join(sorted(score["name"] for score in records[0]["scores"] if score["value"] is not None))
        raise Unable(f"has no score '{missing[0] if missing else 'that ranks'}'; it has {there or 'none'}")
    return found


def _valueless(score: dict[str, Json]) -> ScoreBySeed:
    version = score.get("metric_version", 1)
    return ScoreBySeed(metric=score["metric"], metric_version=version, direction=score["direction"], values={})


def head_of(folder: Path, data: Path, plugins: tuple[Path, ...]) -> Side:
    """The side of this interpreter."""
    return Side("head", Path(sys.executable), home_beside(folder / "head", data), plugins)
