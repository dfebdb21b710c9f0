"""The gate's recipe for somebody else's repository: docs/gate.md shows what `compbench new` writes, and it runs as written."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from compbench.cli.new import render, start
from compbench.gate import worktree
from compbench.gate.sides import CouldNotRun

ROOT = Path(__file__).parents[2]
JOB, WORKFLOW = ".github/workflows/gate.yml", ROOT / ".github" / "workflows" / "compbench-gate.yml"


def parsed(text: str) -> Any:
    return pytest.importorskip("yaml").safe_load(text)


def run(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600)


def repository(folder: Path) -> None:
    """A repository of two commits; the second one adds a comment to the method."""
    author = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-qm", "one"]):
        assert run(["git", *words], folder).returncode == 0
    (method,) = folder.glob("compbench_*/my_method.py")
    method.write_text(method.read_text() + "\n# a comment\n")
    assert run(["git", *author, "commit", "-qam", "two"], folder).returncode == 0


def page_job() -> str:
    page = (ROOT / "docs" / "gate.md").read_text()
    return page[page.index("```yaml\n") + len("```yaml\n") :].split("```")[0]


def test_the_page_shows_the_job_that_new_writes_and_the_inputs_that_the_workflow_has() -> None:
    assert parsed(render("my-method")[JOB].decode()) == parsed(page_job())
    triggers = parsed(WORKFLOW.read_text())[True]  # YAML reads `on` as a boolean
    inputs = triggers["workflow_call"]["inputs"]
    assert set(parsed(page_job())["jobs"]["gate"]["with"]) <= set(inputs)
    page = (ROOT / "docs" / "gate.md").read_text()
    assert all(f"| `{name}` |" in page for name in inputs)


def test_a_clone_inside_of_the_repository_is_seen_by_the_base_and_its_own_source_is_not(tmp_path: Path, monkeypatch) -> None:
    folder, _ = start("my-method", "method", tmp_path)
    repository(folder)
    (folder / "clone" / ".git").mkdir(parents=True)
    (folder / "compbench-source").mkdir()  # ignored by the project's .gitignore
    (folder / "tools").mkdir()
    places = [folder / "clone", folder / "compbench-source", folder / "tools", folder]
    monkeypatch.setattr(sys, "path", [str(place) for place in places])
    assert worktree._inherited(folder) == [str(folder / "clone"), str(folder / "compbench-source")]


def test_a_base_without_compbench_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'compbench'\" >&2; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(CouldNotRun, match="the base cannot import compbench .* a git clone of its own or be ignored"):
        worktree._check_import(tmp_path / "python", tmp_path)


def test_a_repository_of_one_file_needs_no_installation_and_the_base_has_the_commits_own(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "repository"
    (folder / "compbench_mine").mkdir(parents=True)
    file = folder / "compbench_mine" / "my_method.py"
    file.write_text("# one\n")
    repository(folder)
    monkeypatch.chdir(folder)
    with worktree.built("HEAD~1", tmp_path / "gate", tmp_path / "data", (file,)) as base:
        assert base.python == Path(sys.executable)
        assert [plugin.read_text() for plugin in base.plugins] == ["# one\n"]
    assert file.read_text() == "# one\n\n# a comment\n"


@pytest.mark.slow
def test_the_pages_lines_run_in_a_fresh_plugin_repository(tmp_path: Path) -> None:
    folder, _ = start("my-method", "method", tmp_path)
    repository(folder)
    venv = tmp_path / "venv"
    assert run([sys.executable, "-m", "venv", str(venv)], tmp_path).returncode == 0
    (site,) = venv.glob("lib/*/site-packages")
    here = {str(Path(find_spec(name).origin or "").parents[1]) for name in ("torch", "hatchling", "pydantic")}
    (site / "dependencies.pth").write_text("\n".join(here))  # torch and the like are here already
    given = parsed(page_job())["jobs"]["gate"]["with"]
    environment = {name.upper(): text for name, text in given.items()} | {"BASE": "HEAD~1"}
    environment |= {"PATH": f"{venv}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}
    environment |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "COMPBENCH_HOME": str(tmp_path / "home")}
    environment |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{ROOT}.insteadOf"}
    environment |= {"GIT_CONFIG_VALUE_0": "https://github.com/OWNER/compbench"}
    steps = [step["run"] for step in parsed(WORKFLOW.read_text())["jobs"]["gate"]["steps"] if "run" in step]
    for step in steps:
        done = run(["bash", "-e", "-c", step], folder, **environment)
        assert done.returncode == 0, (step, done.stdout[-3000:], done.stderr[-3000:])
    assert "pass" in (tmp_path / "summary.md").read_text()
