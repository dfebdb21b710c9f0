"""The house: which layer may import which, how long a module may be, and what the parent process may load."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import compbench
from compbench.cli.main import main
from compbench.registry.registry import KINDS

ROOT = Path(__file__).parents[1]
CORE = sorted((ROOT / "compbench").rglob("*.py"))
PLUGINS = sorted((ROOT / "plugins").glob("*/compbench_*/*.py"))
FLOORS = """
cli
diagnose gate tasks testing
metrics notebook sweep
board data runner
flow store
registry
api
system
__init__
"""
"""From the top layer down.  A room may import from lower layers only, and from itself."""
RANK = {room: -floor for floor, line in enumerate(FLOORS.split("\n")) for room in line.split()}


def room(name: str) -> str:
    """The folder or top-level module of a dotted name; `compbench` itself is `__init__`."""
    return name.split(".")[1] if "." in name else "__init__"


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of all that a file imports, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if ROOT.joinpath(*name.split(".")).with_suffix(".py").is_file()}
            found |= names if node.module == "compbench" else modules | ({node.module} if names - modules else set())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] == "compbench" and not name.startswith("compbench.__")}


def test_arrows_run_downwards() -> None:
    upwards = [
        f"{dotted(path)} -> {name}"
        for path in CORE
        for name in sorted(ours(path))
        if room(name) != (own := room(dotted(path))) and RANK[room(name)] >= RANK[own]
    ]
    assert upwards == []


def test_no_circle_of_modules() -> None:
    known = {dotted(path): path for path in CORE}
    graph = {name: {found for found in ours(path) if found in known and found != name} for name, path in known.items()}
    while free := [name for name, below in graph.items() if not below & graph.keys()]:
        for name in free:
            del graph[name]
    assert sorted(graph) == []


def test_each_room_is_on_a_floor_and_nothing_is_loose_at_the_top() -> None:
    rooms = {path.name for path in (ROOT / "compbench").iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert rooms == set(RANK) - {"__init__"}
    assert [path.name for path in (ROOT / "compbench").glob("*.py")] == ["__init__.py"]


def test_no_two_modules_have_one_file_name() -> None:
    paths = [path for path in [*CORE, *PLUGINS] if path.name != "__init__.py" and "templates" not in path.parts]
    names = Counter(path.name for path in paths)
    assert [str(path.relative_to(ROOT)) for path in paths if names[path.name] > 1] == [], "rename one of them"


def test_modules_are_short_and_named_after_something() -> None:
    vague = {"utils.py", "helpers.py", "common.py", "misc.py"}
    limits = {**dict.fromkeys(CORE, 600), **dict.fromkeys(PLUGINS, 350)}
    assert [str(path) for path, limit in limits.items() if len(path.read_text().splitlines()) > limit or path.name in vague] == []


def test_no_module_is_a_splinter() -> None:
    """A reader finds a short definition where it is used, unless its file is an entry point or two files share it."""
    shared = {
        "compbench.data.blob_mixture": "the task and its evaluation need it, the first without torch",
        "compbench.flow.transfer": "plugins import it by this name",
    }
    points = {point.module for kind in KINDS for point in entry_points(group=f"compbench.{kind}")}
    short = {dotted(path) for path in CORE if path.name != "__init__.py" and len(path.read_text().splitlines()) < 40}
    verbs = {f"compbench.cli.{verb}" for verb in main.commands}
    hint = "put it where it is used; a new entry point counts once `pip install -e .` has run again"
    assert short - points - verbs == set(shared), hint


def test_no_name_is_defined_twice_in_a_module() -> None:
    doubled = [
        f"{dotted(path)}.{name}"
        for path in CORE
        for name, count in Counter(
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and not any("overload" in ast.dump(d) for d in node.decorator_list)
        ).items()
        if count > 1
    ]
    assert doubled == []


def test_plugins_import_of_ours_only_what_is_public() -> None:
    public = {"api", "testing", "flow", "__init__"}
    strange = [
        f"{path.name} -> {name}"
        for path in PLUGINS
        for name in sorted(imports(path))
        if name.startswith("compbench_") or (name in ours(path) and room(name) not in {*public, *compbench.__all__})
    ]
    assert strange == []


def test_the_command_line_starts_without_torch_or_numpy() -> None:
    script = (
        "import sys, compbench.cli.main, compbench.runner.one_run, compbench.runner.worker, compbench.store.records\n"
        "print([name for name in ('torch', 'numpy', 'pandas') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / ".ci").iterdir()))
def test_a_script_of_ci_parses_to_its_end(script: str) -> None:
    """bash reads a script as it goes: what does not parse at the end fails a run after ten minutes."""
    parsed = subprocess.run(["bash", "-n", script], cwd=ROOT / ".ci", capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")


def test_every_hook_is_explained_to_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text() + "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    tree = ast.parse((ROOT / "compbench" / "api" / "hookspecs.py").read_text())
    hooks = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert hooks
    assert all(hook in text for hook in hooks)


def test_the_copy_of_the_papers_figures_in_the_package_is_the_same() -> None:
    assert (ROOT / "leaderboards" / "papers.csv").read_bytes() == (ROOT / "compbench" / "board" / "papers.csv").read_bytes()
