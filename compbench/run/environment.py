"""Where a run took place: versions and hardware; never a host name, a user or a path."""

from __future__ import annotations

import platform
from typing import Any

import compbench
from compbench.devices import cpu_name, num_cores
from compbench.run import sandbox
from compbench.schemas import Environment, RunRequest


def environment_of(
    request: RunRequest, device: str, facts: dict[str, Any], *, predecessors: int = 0, sandboxed: bool = True
) -> Environment:
    """The environment of a record; `facts` are what the contestant said of itself, which ran sandboxed or in this process."""
    return Environment(
        compbench=compbench.__version__,
        python=platform.python_version(),
        torch=str(facts.get("torch", "")),
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu_name(),
        cores=num_cores(),
        threads=int(facts.get("threads", 0)),
        device=device,
        slots=request.slots,
        sandbox=sandbox.kind() if sandboxed else "off",
        predecessors=predecessors,
        packages={str(name): str(version) for name, version in dict(facts.get("packages", {})).items()},
    )
