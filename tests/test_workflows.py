"""The workflows: what runs the tests, which torch they install, who may publish, and what a new plugin's workflows know."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from compbench.cli.new import GROUPS, StarterKind, render
from compbench.data.sources import INSTALLED
from compbench.registry.repository import owner_and_name

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INSTALLS = ("pip install", ".ci/", "$INSTALL")


def parsed(text: str) -> Any:
    return pytest.importorskip("yaml").safe_load(text)


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", ())]


def test_pull_requests_and_main_run_what_ci_runs_and_the_oldest_and_newest_versions() -> None:
    workflow = parsed((ROOT / ".github" / "workflows" / "test.yml").read_text())
    assert workflow[True] == {"pull_request": None, "push": {"branches": ["main"]}}  # YAML reads `on` as a boolean
    assert ".ci/run" in {step.get("run") for step in steps(workflow)}
    tried = workflow["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert {one["resolution"] for one in tried} == {"lowest-direct", "highest"}


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_every_workflow_that_installs_torch_takes_its_cpu_build(file: Path) -> None:
    text = file.read_text()
    if any(word in str(step.get("run")) for step in steps(parsed(text)) for word in INSTALLS):
        assert "download.pytorch.org/whl/cpu" in text or "UV_TORCH_BACKEND: cpu" in text


def test_ci_installs_the_weights_and_the_font_that_tests_otherwise_skip() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "features" in re.split(r"[\[\],]", extras["test"][0])
    assert f"missing+=({INSTALLED['emoji'].install.split()[-1]})" in (ROOT / ".ci" / "run").read_text()


def test_nothing_is_published_from_a_fork() -> None:
    jobs = [(file, job) for file in WORKFLOWS for job in parsed(file.read_text())["jobs"].values()]
    publishing = [job for _, job in jobs if "write" in job.get("permissions", {}).values()]
    assert len(publishing) == 2
    assert all("vars.COMPBENCH_PUBLISH == 'true'" in job["if"] for job in publishing)


def test_a_release_names_the_repository_that_makes_it(tmp_path: Path) -> None:
    workflow = parsed((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (script,) = [step["run"] for step in steps(workflow) if "project.urls" in step.get("run", "")]
    for name in ("pyproject.toml", "plugins/compbench-methods/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    where = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "someone/compbench"}
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, env={**os.environ, **where}, check=True, timeout=60)
    for name in ("pyproject.toml", "plugins/compbench-methods/pyproject.toml"):
        urls = tomllib.loads((tmp_path / name).read_text())["project"]["urls"]
        assert urls == {"Repository": "https://github.com/someone/compbench"}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/someone/compbench", "someone/compbench"),
        ("https://github.com/someone/compbench.git", "someone/compbench"),
        ("git@github.com:some-one/comp.bench.git", "some-one/comp.bench"),
        ("ssh://git@github.com/someone/compbench/", "someone/compbench"),
        ("https://notgithub.com/someone/compbench", ""),
        ("https://github.com/someone", ""),
        ("/srv/compbench", ""),
    ],
)
def test_the_owner_of_a_clone_is_read_from_its_address(address: str, name: str) -> None:
    assert owner_and_name(address) == name


@pytest.mark.parametrize("kind", GROUPS)
def test_the_workflows_of_a_new_plugin_know_the_repository_or_say_what_to_set(kind: StarterKind) -> None:
    known, unknown = (render("my-own", kind, source) for source in ("someone/compbench", ""))
    for place in (place for place in known if place.startswith(".github")):
        assert "OWNER" not in known[place].decode()
        parsed(known[place].decode())
    first = steps(parsed(unknown[".github/workflows/test.yml"].decode()))[0]
    assert first["if"] == "${{ !vars.COMPBENCH }}"
    assert "Set the variable COMPBENCH" in first["run"]
    assert "COMPBENCH" in unknown["README.md"].decode()


@pytest.mark.parametrize("kind", GROUPS)
def test_a_new_plugin_has_a_skill_named_as_its_folder(kind: StarterKind) -> None:
    files = render("my-own", kind)
    (place,) = [place for place in files if place.startswith(".agents/skills/")]
    _, head, text = files[place].decode().split("---\n")
    facts = parsed(head)
    assert facts["name"] == Path(place).parent.name == f"compbench-{kind}"
    assert 0 < len(facts["description"]) <= 1024
    assert "compbench check" in text
