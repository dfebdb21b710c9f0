"""Fixtures that all tests share."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from support import template

from compbench.data.lattices import MPI3D, SHAPES3D, Images, Lattice
from compbench.home import FROM_DATA

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    template.install()


def pytest_runtest_setup(item: pytest.Item) -> None:
    template.TEMPLATE.fresh = item.get_closest_marker("fresh") is not None


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session, the same for all workers of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def _traced(shared: Path, lattice: Lattice) -> Images:
    """The embedded renderer of a lattice, whose buffers are traced once a session."""
    import torch

    from compbench.data.lattice import choose_source, open_images

    source = choose_source(lattice, shared, "embedded")
    with FileLock(shared / f"{lattice.name}.lock"):
        return open_images(lattice, source, data=shared, cache=shared, device=torch.device("cpu"))


@pytest.fixture(scope="session")
def shapes3d(shared: Path) -> Images:
    return _traced(shared, SHAPES3D)


@pytest.fixture(scope="session")
def mpi3d(shared: Path) -> Images:
    return _traced(shared, MPI3D)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Path:
    """A COMPBENCH_HOME for the whole session; its judges and what is made of data are those of all workers."""
    home = tmp_path_factory.mktemp("home")
    (home / "cache").mkdir()
    for name, folder in (("references", home), (FROM_DATA, home / "cache")):
        (shared / name).mkdir(exist_ok=True)
        (folder / name).symlink_to(shared / name, target_is_directory=True)
    return home


@pytest.fixture
def plugin(tmp_path: Path):
    """plugin(body) -> path of a file with a method `naughty` whose fit and sample are given as source."""

    def write(*, fit: str = "return None", sample: str = "return request.x0", head: str = "") -> Path:
        path = tmp_path / "naughty.py"
        path.write_text(
            '"""A method that misbehaves."""\n'
            "import os, signal, time\nimport torch\n"
            "from compbench.hookspecs import hookimpl\n"
            "from compbench.interfaces import Method, MethodSettings\n"
            f"{head}\n"
            "class Settings(MethodSettings):\n    pass\n\n"
            f"def fit(settings, problem, ctx):\n    {fit}\n\n"
            f"def sample(settings, model, request, ctx):\n    {sample}\n\n"
            "@hookimpl\ndef compbench_methods():\n"
            "    return (Method(name='naughty', settings=Settings, fit=fit, sample=sample),)\n"
        )
        return path

    return write


@pytest.fixture(scope="session")
def played(shared: Path):
    """Two episodes of OGBench's oracle, each from a process of its own; played once a session."""
    pytest.importorskip("ogbench")
    from compbench.data.cube_trajectories import generate

    kept = shared / "played.pickle"
    with FileLock(shared / "played.lock"):
        if not kept.exists():
            kept.write_bytes(pickle.dumps(generate(range(2), 0, num_workers=2)))
    return pickle.loads(kept.read_bytes())


@pytest.fixture
def forgotten() -> Iterator[None]:
    """torch's compiler as in a new process: nothing compiled, nothing counted."""
    import torch
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()
