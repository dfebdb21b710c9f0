"""A real SLURM of one machine: munged, slurmctld and slurmd in a folder, started by hand as root, without systemd or accounting.

Debian: `apt-get install slurm-wlm munge` (`.ci/slow` does).  Nothing is written outside of the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CPUS = 4
"""The node claims this number: members of these tests sleep most of the time."""

CONFIGURATION = """\
ClusterName=compbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
KillWait=30
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=first Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""
"""A requeued job waits for the life of a credential, which is two minutes unless it is said: `cred_expire`."""


def why_not() -> str:
    """Why no SLURM can be started here; "" if one can."""
    missing = [name for name in (*DAEMONS, "sbatch", "srun", "squeue") if shutil.which(name) is None]
    if missing:
        return f"no {missing[0]} on PATH: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "slurmd is started as root here"


@contextlib.contextmanager
def started(folder: Path) -> Iterator[dict[str, str]]:
    """Start the daemons; what must be in the environment to reach them.  They end with the block."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    host = socket.gethostname().split(".")[0]
    controller, node = _free_ports(2)
    text = CONFIGURATION.format(host=host, folder=folder, controller=controller, node=node, cpus=CPUS)
    (folder / "slurm.conf").write_text(text)
    names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "log-file": "munged.log"}
    names["seed-file"] = "munge.seed"
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    env = {**os.environ, **variables}
    try:
        _run(["munged", "--force", *(f"--{option}={folder / name}" for option, name in names.items())], env)
        _run(["slurmctld"], env)
        _run(["slurmd"], env)
        end = time.monotonic() + 60
        while "idle" not in subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True).stdout:
            if time.monotonic() > end:
                raise RuntimeError((folder / "slurmctld.log").read_text()[-2000:])
            time.sleep(0.2)
        yield variables
    finally:
        subprocess.run(["scancel", "--user=root", "--full"], env=env, capture_output=True, timeout=60)
        for name in reversed(DAEMONS):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGTERM)


def _run(words: list[str], env: dict[str, str]) -> None:
    subprocess.run(words, env=env, check=True, timeout=60, stdin=subprocess.DEVNULL)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
