"""A SLURM of one machine, for tests: sbatch, srun, squeue, sacct, scancel and scontrol over a folder of files.

`install(folder)` puts the commands there.  A job, or each member of a job array, runs the submitted script in the background
with the environment that SLURM gives it; `supervise` stands for the node's daemon.  As with a real SLURM, a signal goes to
every process of a step, a member that ends leaves the queue only when its processes are gone, there may be no accounting
(`NO_ACCOUNTING`), and a requeued member waits a little (`REQUEUE_SECONDS`).
"""

from __future__ import annotations

import contextlib
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

COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol")
NO_ACCOUNTING, REQUEUE_SECONDS = "FAKE_SLURM_NO_ACCOUNTING", "FAKE_SLURM_REQUEUE_SECONDS"
QUEUED = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING")


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
        state.write_text("PENDING BeginTime")
        time.sleep(float(os.environ.get(REQUEUE_SECONDS, "0")))
        restarts += 1
    ended = folder / f"{name}.ended"
    state.write_text(ended.read_text() if ended.exists() else "COMPLETED" if code == 0 else "FAILED NonZeroExitCode")


def srun(*words: str) -> None:
    """Run the command after srun's own options, with its process number noted: signals go to steps, not to the script."""
    command = words[next(position for position, word in enumerate(words) if word == sys.executable) :]
    Path(os.environ["FAKE_SLURM"], f"{os.environ['SLURM_JOB_ID']}.step").write_text(str(os.getpid()))
    if place := os.environ.get(template.PLACE):
        command = (command[0], "-P", template.__file__, "module", place, *command[command.index("-m") + 1 :])
    os.execv(command[0], command)


def squeue(*words: str) -> None:
    """Members by name, state and reason; without `-t all` those that have not ended."""
    found = members(words[words.index("-j") + 1])
    if not found:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    for path in found:
        name, _, reason = path.read_text().partition(" ")
        if name in QUEUED or "all" in words:
            print(f"{path.stem}|{name}|{reason or 'None'}")


def sacct(*words: str) -> None:
    if os.environ.get(NO_ACCOUNTING):
        sys.exit("Slurm accounting storage is disabled")
    for path in members(words[words.index("-j") + 1]):
        name, _, reason = path.read_text().partition(" ")
        print(f"{path.stem}|{name}|{reason or 'None'}")


def scancel(*words: str) -> None:
    """End members, or signal them: every process of the step gets it.  A cancelled member is COMPLETING until it is gone."""
    number = signal.Signals[words[words.index("--signal") + 1]] if "--signal" in words else signal.SIGTERM
    for path in members(next(word for word in words if word[0].isdigit())):
        if path.read_text().split()[0] not in QUEUED:
            continue
        if "--signal" not in words:
            end(path, "CANCELLED")
        signal_step(path.with_suffix(".step"), number)


def end(path: Path, as_what: str) -> None:
    """Let a member end with these words."""
    path.with_suffix(".ended").write_text(as_what)
    path.write_text("COMPLETING")


def scontrol(verb: str, job: str) -> None:
    """requeue: the member's supervisor starts it again.  preempt, for tests: the cluster ends it.  show config: a limit."""
    if verb == "show":
        print("MaxArraySize            = 1001")
    elif verb == "requeue":
        for path in members(job):
            path.with_suffix(".requeue").touch()
    else:
        for path in members(job):
            number = {"suspend": signal.SIGSTOP, "resume": signal.SIGCONT, "preempt": signal.SIGTERM}[verb]
            if verb == "preempt":
                end(path, "PREEMPTED")
            else:
                path.write_text("SUSPENDED" if verb == "suspend" else "RUNNING")
            signal_step(path.with_suffix(".step"), number)


def signal_step(path: Path, number: int) -> None:
    """Signal all processes of a step, in whatever session they are."""
    for _ in range(100):
        if path.exists():
            break
        time.sleep(0.05)
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text("utf-8", "replace").rsplit(")", 1)[1].split()[1])
    step = [int(path.read_text())]
    for parent in step:
        step += [pid for pid, above in parents.items() if above == parent]
    for pid in step:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
