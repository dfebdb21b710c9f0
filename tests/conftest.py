"""Fixtures that all tests share."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import sys
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from support import template
from support.balance import balanced
from support.browser import MISSING
from support.forked_workers import fork_workers
from support.rewriting import files_of, rewrite_once

from compbench.data.lattices import SHAPES3D, Images
from compbench.system.home import FROM_DATA

os.environ.setdefault("OMP_NUM_THREADS", "1")

MANY = 100
"""A session of more test files than this has some whose processes are forks of the template."""


def pytest_configure(config: pytest.Config) -> None:
    if worker := getattr(config, "workerinput", None):
        template.TEMPLATE.share(worker["testrunuid"], os.getppid())
    else:
        rewrite_once(config)
        _place_template(config)
        fork_workers(config)
    if worker or not config.getoption("numprocesses", None):
        gc.disable()  # until all is collected: a quarter of the time of imports goes into collections that find nothing
    template.install()


def pytest_xdist_auto_num_workers() -> int | None:
    """Half as many workers again as cores: tests that wait for processes leave an eighth of the time."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else 3 * len(os.sched_getaffinity(0)) // 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    _draw_no_constants_of_modules()
    _write_down_no_stack_at_a_seed()
    yield  # others take out what is not asked for
    order = balanced([item.path.name for item in items], getattr(config, "workerinput", {"workercount": 1})["workercount"])
    items[:] = [items[place] for place in order]


def pytest_collection_finish(session: pytest.Session) -> None:
    _keep_what_lives()
    gc.enable()
    gc.set_threshold(700, 10, 50)  # of all that lives, a fifth as often: it was 3 % of the tests' time
    atexit.register(gc.unfreeze)  # or libraries complain of what is left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end that the page was not tested: a skipped test of many is easily missed."""
    if any(MISSING in str(report.longrepr) for report in terminalreporter.getreports("skipped")):
        terminalreporter.write_line(f"NOT RUN: the tests of the board's page, tests/board/test_page.py: {MISSING}", yellow=True)


def _place_template(config: pytest.Config) -> None:
    """Start the template of a whole session, which loads while this process imports what its workers share."""
    option = config.option
    if config.getoption("numprocesses", None) and not option.keyword and not option.collectonly and len(files_of(config)) > MANY:
        option.testrunuid = option.testrunuid or uuid.uuid4().hex
        template.TEMPLATE.share(option.testrunuid, os.getpid())
        template.TEMPLATE.place()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    _keep_what_lives()


def _draw_no_constants_of_modules() -> None:
    """Keep hypothesis from parsing the source of each imported module for constants that it might draw.

    Where packages are not in `site-packages` that is all of torch: 3 CPU seconds a worker, or 30 in a fresh checkout.  What a
    test draws would also depend on what its worker had imported.  The name is private; where it is gone, nothing is done.
    """
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = lambda path: False


def _write_down_no_stack_at_a_seed() -> None:
    """Keep `torch.manual_seed` from formatting the whole stack for each kind of device that this machine may lack.

    It does so in case the seed fails there later, and takes 0.4 ms a call under pytest.
    """
    for name in ("cuda", "xpu", "mtia"):
        module = sys.modules.get(f"torch.{name}")
        if hasattr(module, "traceback"):
            module.traceback = SimpleNamespace(**{**vars(traceback), "format_stack": lambda: []})


def _keep_what_lives() -> None:
    """Take modules and tests out of later collections of garbage: each walks through all that lives, for 0.3 to 0.9 seconds."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    template.TEMPLATE.fresh = item.get_closest_marker("fresh") is not None


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this session, the same for all workers of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def shapes3d(shared: Path) -> Images:
    """The embedded renderer, whose buffers are traced once a session."""
    import torch

    from compbench.data.lattice import choose_source, open_images

    source = choose_source(SHAPES3D, shared, "embedded")
    with FileLock(shared / "shapes3d.lock"):
        return open_images(SHAPES3D, source, data=shared, cache=shared, device=torch.device("cpu"))


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
            "from compbench.api.hookspecs import hookimpl\n"
            "from compbench.api.interfaces import Method, MethodSettings\n"
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
    """Two episodes of OGBench's oracle, one after the other in another process; played once a session."""
    pytest.importorskip("ogbench")
    from compbench.data.cube_trajectories import generate

    kept = shared / "played.pickle"
    with FileLock(shared / "played.lock"):
        if not kept.exists():
            kept.write_bytes(pickle.dumps(generate(range(2), 0, num_workers=1)))
    return pickle.loads(kept.read_bytes())


@pytest.fixture
def compiler() -> None:
    """Skips a test where torch's compiler makes no code for this CPU: no mark can say so without compiling at collection."""
    from compbench.flow.compilation import compiles

    if not compiles("cpu"):
        pytest.skip("needs a C++ compiler")


@pytest.fixture
def forgotten() -> Iterator[None]:
    """torch's compiler as in a new process: nothing compiled, nothing counted."""
    import torch
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()
