"""Images of a factor grid by index: from the official file if it is there, otherwise from the embedded renderer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compbench.api.interfaces import Source
from compbench.data.lattices import Images, Lattice
from compbench.data.sources import SOURCES, recorded_sha256
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors, save_tensors
from compbench.system.home import FROM_DATA

if TYPE_CHECKING:
    import torch


def choose_source(lattice: Lattice, folder: Path, asked: str) -> Source:
    """The official source if its file is there or requested, otherwise the embedded one.

    Raises:
        CompbenchError: the official data is requested but missing, or the file is not the official one.
    """
    file = SOURCES[lattice.source].files[0]
    path = folder / file.name
    if asked == "embedded" or (asked == "auto" and not path.is_file()):
        return Source("embedded", f"{lattice.name} renderer", f"renderer-{lattice.renderer_version}")
    if not path.is_file():
        raise CompbenchError(
            f"--source official: {file.name} is not in the data folder; `compbench data fetch {lattice.source}` gets it."
        )
    found = recorded_sha256(path, file)
    if file.sha256 and found != file.sha256:
        raise CompbenchError(
            f"{path} has SHA-256 {found[:16]}..., the official file {file.sha256[:16]}...; "
            f"move it away, or use --source embedded."
        )
    return Source("official", file.name, found[:32])


def open_images(
    lattice: Lattice,
    source: Source,
    *,
    data: Path,
    cache: Path,
    device: torch.device,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Images:
    """The images of a factor grid on a device.

    An official dataset that fits on the GPU stays there as uint8; on a CPU it is read by index from the file.
    """
    if source.kind == "embedded":
        return _renderer(lattice, cache, device, progress)
    from compbench.data.readers import open_official

    path = data / SOURCES[lattice.source].files[0].name
    return open_official(lattice, path, device, progress=progress)


def _renderer(lattice: Lattice, cache: Path, device: torch.device, progress: Callable[[str, int, int], None]) -> Images:
    """A renderer, with its traced buffers kept in the cache (tracing takes 3 to 11 seconds on one core)."""
    path = cache / FROM_DATA / f"{lattice.name}-buffers-{lattice.renderer_version}.safetensors"
    renderer: Any = _renderer_class(lattice)
    if path.is_file():
        try:
            return renderer.from_buffers(load_tensors(path)[0], device=device)
        except CompbenchError:
            path.unlink()  # a damaged cache file is written again
    made = renderer(device=device, progress=lambda done, total: progress("render", done, total))
    save_tensors(path, made.buffers(), {})
    return made


def _renderer_class(lattice: Lattice) -> Any:
    if lattice.name == "mpi3d":
        from compbench.data.mpi3d_renderer import MPI3DRenderer

        return MPI3DRenderer
    from compbench.data.shapes3d_renderer import Shapes3DRenderer

    return Shapes3DRenderer
