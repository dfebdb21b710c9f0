"""What this machine's device does for a run, tried in a process of its own: `python -m compbench.run.device_probe FOLDER`.

Prints one JSON object.  CUDA is started, the sandbox closes around the process, and then a tensor is made and a compiled
function runs, as in a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from compbench.files import Json
from compbench.run.processes import own_places

SECONDS = 300
"""Longest wait: a first start of CUDA, and a first compilation."""


def probe(folder: Path, *, device: str = "auto") -> dict[str, Json]:
    """Try the device in a child that may write to `folder` alone.

    Returns:
        `torch`, `device` and what worked; `error` says in one line what did not.
    """
    words = [sys.executable, "-m", "compbench.run.device_probe", str(folder), device]
    env = {**os.environ, **own_places(folder)}
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"the device did not answer within {SECONDS} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        tail = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return {"error": tail[:300]}
    return dict(json.loads(lines[-1]))


def look(folder: Path, device: str) -> dict[str, Json]:
    """What `probe` reports, found in this process; the sandbox stays around it."""
    from compbench import devices
    from compbench.run import sandbox

    found: dict[str, Json] = {"cuda_started": devices.start_cuda() if device != "cpu" else False}
    import torch

    found |= {"torch": torch.__version__, "cuda_of_torch": torch.version.cuda}
    from compbench.flow.compilation import compiles

    sandbox.put_up(forbidden=(folder / "references",), writable=(folder,))
    found["sandbox"] = sandbox.kind()
    try:
        place = devices.resolve(device)
        x = torch.ones(64, 64, device=place)
        found |= {"device": str(place), "name": devices.device_class(place), "works": float((x @ x).sum()) == 64.0**3}
        if place.type == "cuda":
            free, total = torch.cuda.mem_get_info(place)
            found |= {"free_bytes": free, "total_bytes": total, "count": torch.cuda.device_count()}
            found["bf16"] = devices.has_native_bf16(place)
        found["compiles"] = compiles(place.type)
    except Exception as error:  # whatever it is, it is the answer
        found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    return found


if __name__ == "__main__":
    print(json.dumps(look(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "auto")))
