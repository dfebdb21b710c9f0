"""Try this machine's device as a run uses it: start CUDA, close the sandbox, compile a function."""

from __future__ import annotations

from collections.abc import Iterator

from compbench.runner import sandbox
from compbench.runner.isolated import answer_of, scratch
from compbench.system import devices
from compbench.system.errors import CompbenchError
from compbench.system.files import Json
from compbench.system.home import Home


def probe(*, device: str = "auto", try_compiler: bool = False) -> dict[str, Json]:
    """Try the device in a child process inside a contestant's sandbox.

    Returns:
        `torch`, `device` and the facts that were found; `error` says in one line what failed.
    """
    try:
        with scratch() as folder:
            arguments, home = {"device": device, "try_compiler": try_compiler}, Home.of_user()
            return answer_of("compbench.diagnose.device_probe:look", arguments, dict[str, Json], folder, home=home, device=device)
    except CompbenchError as error:
        return {"error": str(error)[:300]}


def look(progress: object, *, device: str, try_compiler: bool) -> Iterator[dict[str, Json]]:
    """The report of `probe`; this runs in a separate process."""
    import torch

    from compbench.flow.compilation import compiles

    started = torch.cuda.is_initialized()
    found: dict[str, Json] = {"cuda_started": started, "sandbox": sandbox.kind()}
    found |= {"torch": torch.__version__, "cuda_of_torch": torch.version.cuda}
    try:
        place = devices.resolve(device)
        x = torch.ones(64, 64, device=place)
        found |= {"device": str(place), "name": devices.device_class(place), "works": float((x @ x).sum()) == 64.0**3}
        if place.type == "cuda":
            free, total = torch.cuda.mem_get_info(place)
            found |= {"free_bytes": free, "total_bytes": total, "count": torch.cuda.device_count()}
            found["bf16"] = devices.has_fast_bf16(place)
        if try_compiler:
            found["compiles"] = compiles(place.type)
    except CompbenchError as error:
        found["error"] = str(error)
    except Exception as error:  # any error is part of the report
        found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    yield found
