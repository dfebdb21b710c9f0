"""Half an hour on a GPU: commands of less than ten minutes each, what was made packed as it comes.

    python experiments/gpu/half_hour.py first --out FOLDER     facts, sandbox and CUDA, GPU tests, smoke runs, contract
    python experiments/gpu/half_hour.py core  --out FOLDER     what the published board lacks, side by side; again goes on
    python experiments/gpu/half_hour.py speed --out FOLDER     throughput with and without each fast path, memory, kernels
    python experiments/gpu/half_hour.py paper --out FOLDER     rows at `paper`, cheapest first; again goes on

Read FOLDER/first.txt before going on: if the device does not work inside the sandbox, records made without it are no
submissions.  Each step has a limit of its own, and all of them together end `--reserve` seconds before `--minutes` are over.
`core` takes the published records for done, and runs side by side share the card by NVIDIA's multi-process service where there
is one: kernels of one run of `standard` fill a small part of a card.  Afterwards: tar xzf FOLDER/records.tgz, `compbench
verify`, `compbench submit`.  `--device cpu` goes through the same steps on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FLOWS = "mono,factored,slice-cfg,naive-ode,naive-sde,fkc,mcmc"
SILOS = "centralised,fedflow,ddm,dfd,dcfm-a,dcfm-b"
DECODERS = "low-rank,stripes,*-decoder"
GRACE_SECONDS = 45
"""Between asking a step to stop and killing it: fourteen runs that save their checkpoints took longer than half a minute."""
PACK_SECONDS = 60
"""Between two times of packing while a step runs: a command that is cut off leaves what was packed."""


class Step(NamedTuple):
    """A command, and the most seconds that it may take."""

    seconds: float
    words: tuple[str, ...]


def steps_of(stage: str, device: str, out: Path) -> list[Step]:
    """The commands of a stage, the most important first."""
    python, compbench = (sys.executable,), (sys.executable, "-m", "compbench.cli.main")

    def sweep(seconds: float, preset: str, methods: str, tasks: str, *more: str) -> Step:
        words = ("sweep", "--preset", preset, "--device", device, "--method", methods, "--task", tasks, "--quiet", *more)
        return Step(seconds, compbench + words)

    if stage == "first":
        tests = ("tests/flow/test_smc_gpu.py", "tests/experiments/test_many.py", "tests/flow/test_compiled_sampling.py")
        tests += ("tests/benchmarks/test_training_speed.py", "tests/benchmarks/test_gpu_speed.py")
        return [
            Step(120, (*compbench, "doctor", "--device", device)),
            Step(30, ("nvidia-smi",)),
            sweep(60, "smoke", "factored", "gauss2d-fact-id"),
            Step(150, (*python, "-m", "pytest", "-q", "-n", "0", "-m", "gpu", *tests)),
            sweep(150, "smoke", FLOWS, "gauss2d-fact-id,shapes3d-light", "--slots", "6"),
            sweep(60, "smoke", "*-oracle", "gmm-id", "--slots", "4"),
            sweep(100, "smoke", SILOS, "blobs-noniid,cmnist-noniid", "--slots", "6"),
            sweep(60, "smoke", DECODERS, "bump-center", "--slots", "6"),
            sweep(60, "smoke", "factored,mono", "shapes3d-extend", "--slots", "2"),
            Step(200, (*compbench, "check", "--all", "--device", device)),
        ]
    if stage == "speed":
        throughput = (str(ROOT / "experiments" / "gpu" / "throughput.py"), "--device", device, "--out", str(out / "speed.jsonl"))
        return [
            Step(420, (*python, *throughput, "--seconds", "400")),
            Step(
                60, (*compbench, "run", "--method", "fkc", "--task", "gauss2d-fact-id", "--preset", "paper", "--device", device)
            ),
            Step(60, (*compbench, "profile", "--method", "factored", "--task", "shapes3d-heavy", "--preset", "paper")),
        ]
    if stage == "core":
        core = ("sweep", "--file", "core", "--preset", "standard", "--device", device, "--slots", "14", "--resume", "--quiet")
        return [Step(540, compbench + core)]
    return [
        sweep(200, "paper", "naive-ode,naive-sde,fkc", "gauss2d-*,gmm-*", "--seed", "0-2", "--slots", "6", "--chain"),
        sweep(80, "paper", "naive-ode-oracle,naive-sde-oracle,fkc-oracle", "gauss2d-*,gmm-*", "--seed", "0-2", "--slots", "6"),
        sweep(150, "paper", DECODERS, "bump-center,bump-corner", "--seed", "0-1", "--slots", "6"),
        sweep(60, "paper", "*-decoder", "rotation", "--slots", "6"),
        sweep(240, "paper", SILOS, "blobs-*", "--slots", "6"),
        sweep(540, "paper", "factored,mono", "shapes3d-heavy", "--resume"),
    ]


def run_steps(
    steps: Sequence[Step],
    log: Path,
    seconds: float,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[int | None]:
    """Run one step after the other, each within its limit and all within `seconds`.

    Args:
        steps: what to run.
        log: where their output goes, with a line before and after each.
        seconds: for all of them.
        meanwhile: called each minute while a step runs.

    Returns:
        exit status of each; None for those that were stopped or never begun.
    """
    begin, found = clock(), []
    with log.open("a", buffering=1) as out:
        for step in steps:
            left = min(step.seconds, seconds - (clock() - begin) - GRACE_SECONDS)
            out.write(f"\n== {' '.join(step.words)}  [{clock() - begin:.0f} s]\n")
            status = _run(step.words, out, left, meanwhile) if left > 0 else None
            out.write(f"-- {'stopped' if status is None else f'exit {status}'} at {clock() - begin:.0f} s\n")
            print(f"{'stopped' if status is None else status:>7}  {clock() - begin:4.0f} s  {' '.join(step.words)}", flush=True)
            found.append(status)
    return found


def _run(words: Sequence[str], out: object, seconds: float, meanwhile: Callable[[], object]) -> int | None:
    """Exit status of a command in a process group of its own; None if it had to be stopped."""
    try:
        process = subprocess.Popen(words, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)  # type: ignore[call-overload]
    except OSError as error:
        print(error, file=out)  # type: ignore[call-overload]
        return 127
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            return process.wait(timeout=min(left, PACK_SECONDS))
        except subprocess.TimeoutExpired:
            meanwhile()
    for number in (signal.SIGTERM, signal.SIGKILL):  # compbench saves checkpoints at the first
        os.killpg(process.pid, number)
        try:
            process.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        break
    return None


@contextlib.contextmanager
def shared_card() -> Iterator[bool]:
    """NVIDIA's multi-process service around a block, where the driver has it: kernels of several processes run at once.

    Yields whether it runs.  No setting of the card is changed.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    started = bool(control) and subprocess.run([control, "-d"], check=False).returncode == 0
    try:
        yield started
    finally:
        if started:
            subprocess.run([control], input=b"quit\n", check=False, stdout=subprocess.DEVNULL)


def take_published(records: Path, published: Path = ROOT / "leaderboards" / "records") -> frozenset[str]:
    """Put the published records where they are missing, so that a sweep does what the board lacks; their names."""
    records.mkdir(parents=True, exist_ok=True)
    names = frozenset(path.name for path in published.glob("*.json"))
    for name in names:
        if not (records / name).exists():
            shutil.copy(published / name, records / name)
    return names


def pack(records: Path, target: Path, known: frozenset[str] = frozenset()) -> int:
    """Records and their pictures, but for those of `known` names, as one archive, whole or not at all; how many files."""
    found = sorted(path for path in records.rglob("*") if path.is_file()) if records.is_dir() else []
    files = [path for path in found if path.name not in known]
    part = target.with_suffix(".part")
    with tarfile.open(part, "w:gz", compresslevel=4) as archive:
        for path in files:
            archive.add(path, path.relative_to(records.parent))
    part.replace(target)
    return len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["first", "core", "speed", "paper"])
    parser.add_argument("--out", type=Path, required=True, help="folder for what is made")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9.5, help="from the start until all is packed")
    parser.add_argument("--reserve", type=float, default=30, help="seconds for packing")
    asked = parser.parse_args()
    from compbench.system.home import Home

    asked.out.mkdir(parents=True, exist_ok=True)
    out, home = asked.out.resolve(), Home.of_user()
    known = take_published(home.records) if asked.stage == "core" else frozenset()

    def packed() -> int:
        return pack(home.records, out / "records.tgz", known)

    steps, seconds = steps_of(asked.stage, asked.device, out), 60 * asked.minutes - asked.reserve
    with shared_card() if asked.stage in ("core", "paper") else contextlib.nullcontext():
        statuses = run_steps(steps, out / f"{asked.stage}.txt", seconds, meanwhile=packed)
    count = packed()
    print(f"{count} files of records packed; {statuses.count(0)} of {len(statuses)} steps went well: see {out}/{asked.stage}.txt")


if __name__ == "__main__":
    main()
