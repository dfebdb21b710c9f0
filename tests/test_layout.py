"""Arrows and sizes: which room may know which, and how long a module may be."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = sorted((ROOT / "compbench").rglob("*.py"))
PLUGINS = sorted((ROOT / "plugins").glob("*/compbench_*/*.py"))
VAGUE = {"utils.py", "helpers.py", "common.py", "misc.py"}
PURE = {"errors", "flow", "factors", "interfaces"}
"""What flow/ may import of ours: itself, errors, factors and (types of) interfaces."""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", [*CORE, *PLUGINS], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short_and_named_after_something(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= (350 if path in PLUGINS else 400)
    assert path.name not in VAGUE


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_the_command_line_or_a_plugin(path: Path) -> None:
    allowed = {"cli.py", "verbs"} & {path.name, path.parent.name}
    command_line = {name for name in imports(path) if name.startswith(("compbench.cli", "compbench.verbs"))}
    assert not command_line or allowed
    assert not {name for name in imports(path) if name == "compbench.cli" or name.startswith("compbench_")}


@pytest.mark.parametrize("path", sorted((ROOT / "compbench" / "flow").glob("*.py")), ids=lambda path: path.name)
def test_flow_knows_nothing_of_the_harness(path: Path) -> None:
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("compbench.")}
    assert ours <= PURE


def test_factors_imports_nothing_of_ours_but_errors() -> None:
    ours = {name for name in imports(ROOT / "compbench" / "factors.py") if name.startswith("compbench")}
    assert ours == {"compbench.errors"}


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_imports_only_compbench(path: Path) -> None:
    assert not {name for name in imports(path) if name.startswith("compbench_")}


def test_the_parent_never_imports_torch_at_module_level() -> None:
    light = ["cli", "runner", "children", "channel", "records", "schemas", "registry", "interfaces", "factors", "home"]
    for name in [*light, "console", "worker", "environment", "devices", "resolve"]:
        tree = ast.parse((ROOT / "compbench" / f"{name}.py").read_text())
        top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
        assert not names & {"torch", "numpy", "pandas"}, name


def test_every_hook_is_explained_to_contributors() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tree = ast.parse((ROOT / "compbench" / "hookspecs.py").read_text())
    hooks = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert hooks
    assert all(hook in text for hook in hooks)


def test_the_copy_of_the_papers_figures_in_the_package_is_the_same() -> None:
    assert (ROOT / "leaderboards" / "papers.csv").read_bytes() == (ROOT / "compbench" / "boards" / "papers.csv").read_bytes()
