"""Compiled code that a run passes on to later runs of the same code: compiling a UNet takes a minute, loading it takes seconds.

A contestant leaves torch's bundle of compiled code in its folder; the parent keeps the bundle and provides it to contestants of
the same method, file, settings, budget, device and torch.  No other method ever gets it, because to run it is to run the code of
its author.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.system.errors import CompbenchError
from compbench.system.files import publish
from compbench.system.plugin_folder import PluginFolder

if TYPE_CHECKING:
    from compbench.api.schemas import Plugin, RunSpec

CODE_FILE = "compiled.bin"
"""File with compiled code, both in the folder that a contestant may read and in the folder that it writes to."""

MOST_BYTES = 2**30


class KeptCode:
    """The parent's side: all seeds of a spec share one cache entry."""

    def __init__(self, cache: Path, spec: RunSpec, plugin: Plugin) -> None:
        facts = {**spec.model_dump(mode="json", exclude={"seed"}), "torch": version("torch")}
        text = json.dumps([facts, plugin.distribution, plugin.file_sha256], sort_keys=True)
        self.path = cache / f"compiled-{hashlib.sha256(text.encode()).hexdigest()[:24]}.bin"

    def lend(self, folder: Path) -> None:
        """Copy the kept code into a folder that a contestant may read."""
        with contextlib.suppress(CompbenchError, OSError):
            publish(self.path, folder / CODE_FILE, limit=MOST_BYTES)

    def keep(self, folder: PluginFolder) -> None:
        """Keep the code that a contestant left, if it is a regular file; the cache may be deleted at any time."""
        with contextlib.suppress(CompbenchError, OSError):
            folder.publish(CODE_FILE, self.path, limit=MOST_BYTES)


def take_up(folder: Path) -> bool:
    """Load the cached artifacts on the contestant's side; return whether that succeeded."""
    import torch

    if not hasattr(torch.compiler, "load_cache_artifacts"):  # before torch 2.7
        return False
    try:
        return torch.compiler.load_cache_artifacts((folder / CODE_FILE).read_bytes()) is not None
    except FileNotFoundError:
        return False
    except Exception as error:  # it is compiled again; torch logs damaged code itself
        warnings.warn(f"compiled code cannot be loaded: {error}", stacklevel=2)
        return False


def leave(folder: Path) -> None:
    """Write the code that this process compiled or loaded into the contestant's folder."""
    import torch

    if not hasattr(torch.compiler, "save_cache_artifacts"):  # before torch 2.7
        return
    if (found := torch.compiler.save_cache_artifacts()) is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CODE_FILE).write_bytes(found[0])
