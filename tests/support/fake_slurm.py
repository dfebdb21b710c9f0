"""A SLURM of one machine, for tests: sbatch, srun, sacct, scancel and scontrol over a folder of files.

`install(folder)` puts the commands there.  A job, or each member of a job array, runs the submitted script in the background
with the environment that SLURM gives it; `supervise` stands for the node's daemon.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

try:
    from support import template
except ImportError:  # a command of the cluster: the folder of this file is on the path
    import template

COMMANDS = ("sbatch", "srun", "sacct", "scancel", "scontrol")


def install(folder: Path) -> dict[str, str]:
    """Write the commands; returns what must be in the environment to find them."""
    commands = folder / "bin"
    commands.mkdir(parents=True)
    for name in COMMANDS:
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{__file__}" {name} "$@"\n')
        path.chmod(0o755)
    return {"PATH": f"{commands}:{os.environ['PATH']}", "FAKE_SLURM": str(folder)}


def members(job: str) -> list[Path]:
    """State files of the job, or the members, that a job number, or NUMBER_INDEX, names."""
    folder = Path(os.environ["FAKE_SLURM"])
    return sorted([*folder.glob(f"{job}.state"), *folder.glob(f"{job}_*.state")])


def sbatch(script: str) -> None:
    """Members run a copy, as on a real cluster: submitit moves its own as soon as it is told the job's number."""
    folder = Path(os.environ["FAKE_SLURM"])
    job = str(100 + len(list(folder.glob("*.submitted"))))
    text = Path(script).read_text()
    copy = folder / f"{job}.submitted"
    copy.write_text(text)
    array = re.search(r"#SBATCH --array=0-(\d+)", text)
    for name in [f"{job}_{index}" for index in range(int(array[1]) + 1)] if array else [job]:
        (folder / f"{name}.state").write_text("PENDING")
        subprocess.Popen(
            [sys.executable, "-S", __file__, "supervise", str(copy), name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    print(f"Submitted batch job {job}")


def supervise(script: str, name: str) -> None:
    """Run one member until it ends and no one wants it queued again."""
    folder = Path(os.environ["FAKE_SLURM"])
    state = folder / f"{name}.state"
    job, _, index = name.partition("_")
    error = re.search(r"#SBATCH --error=(.*)", Path(script).read_text())[1].strip("'")
    log = error.replace("%j", job).replace("%A", job).replace("%a", index).replace("%t", "0")
    restarts = 0
    while True:
        given = {"SLURM_JOB_ID": name, **({"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": index} if index else {})}
        given |= {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
        given |= {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_RESTART_COUNT": str(restarts)}
        with open(log, "ab") as output:
            process = subprocess.Popen(["bash", script], env={**os.environ, **given}, stdout=output, stderr=output)
        state.write_text("RUNNING")
        code = process.wait()
        if not (again := folder / f"{name}.requeue").exists():
            break
        again.unlink()
        restarts += 1
    cancelled = (folder / f"{name}.cancelled").exists()
    state.write_text("CANCELLED by 0" if cancelled else "COMPLETED" if code == 0 else "FAILED")


def srun(*words: str) -> None:
    """Run the command after srun's own options, with its process number noted: signals go to steps, not to the script."""
    command = words[next(position for position, word in enumerate(words) if word == sys.executable) :]
    Path(os.environ["FAKE_SLURM"], f"{os.environ['SLURM_JOB_ID']}.step").write_text(str(os.getpid()))
    if place := os.environ.get(template.PLACE):
        command = (command[0], "-P", template.__file__, "module", place, *command[command.index("-m") + 1 :])
    os.execv(command[0], command)


def sacct(*words: str) -> None:
    print("JobID|State|NodeList")
    for position, word in enumerate(words):
        if word == "-j":
            for path in members(words[position + 1]):
                print(f"{path.stem}|{path.read_text()}|localhost")


def scancel(*words: str) -> None:
    number = signal.Signals[words[words.index("--signal") + 1]] if "--signal" in words else signal.SIGTERM
    for path in members(next(word for word in words if word[0].isdigit())):
        if "--signal" not in words:
            path.with_suffix(".cancelled").touch()
        signal_step(path.with_suffix(".step"), number)


def scontrol(verb: str, job: str) -> None:
    """requeue: the member is ended, and its supervisor starts it again."""
    assert verb == "requeue"
    for path in members(job):
        path.with_suffix(".requeue").touch()


def signal_step(path: Path, number: int) -> None:
    for _ in range(100):
        if path.exists():
            break
        time.sleep(0.05)
    try:
        os.kill(int(path.read_text()), number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
