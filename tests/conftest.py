"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import template

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    template.install()


def pytest_runtest_setup(item: pytest.Item) -> None:
    template.TEMPLATE.fresh = item.get_closest_marker("fresh") is not None


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A COMPBENCH_HOME that keeps its judges for the whole session, and shares them with the other workers of pytest-xdist."""
    home = tmp_path_factory.mktemp("home")
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = tmp_path_factory.getbasetemp().parent / "references"
        shared.mkdir(exist_ok=True)
        (home / "references").symlink_to(shared, target_is_directory=True)
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
def played():
    """Two episodes of OGBench's oracle, each from a process of its own."""
    pytest.importorskip("ogbench")
    from compbench.data.cube_trajectories import generate

    return generate(range(2), 0, num_workers=2)
