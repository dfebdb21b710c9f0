"""The whole way as a stranger, in an environment of its own without network: new, edit, check, run, submit, reproduce, board."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from support.template import Template

PROJECTS = ("my-method", "my-task", "my-metric")


class Stranger:
    """Someone with a fresh environment over the installed packages, a home and a copy of the leaderboards' layout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.leaderboards = folder / "home", folder / "repository" / "leaderboards"
        (self.leaderboards / "records").mkdir(parents=True)
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        self.template: Template | None = None
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        shared = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
        lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in sorted(shared))  # with their editable installs
        (site / "shared.pth").write_text(lines)

    def says(self, *words: object) -> str:
        """What a command of the fresh environment prints; it must go well."""
        env = {**os.environ, "COMPBENCH_HOME": str(self.home), "OMP_NUM_THREADS": "1", "https_proxy": "http://127.0.0.1:9"}
        command = [str(self.python), "-m", *map(str, words)] if words[0] in ("pip", "pytest") else [str(word) for word in words]
        done = subprocess.run(command, env=env, cwd=self.folder, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def compbench(self, *words: object) -> str:
        """What the command line prints; its children fork from a template of this environment once the projects are there."""
        if self.template is None:
            return self.says(self.python, "-m", "compbench.cli.main", *words)
        return self.says(*self.template.compbench(*words))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    return Stranger(tmp_path_factory.mktemp("stranger"))


@pytest.mark.slow
def test_a_stranger_gets_from_new_to_the_board(stranger: Stranger) -> None:
    for name in PROJECTS:
        stranger.compbench("new", name, "--kind", name.removeprefix("my-"))
    folders = [f"compbench-{name}" for name in PROJECTS]
    editable = [word for folder in folders for word in ("-e", folder)]
    stranger.says("pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index", *editable)
    own = ("-p", "no:cacheprovider", "-k", "not contract")  # `check` comes below, once
    assert "9 passed, 1 deselected" in stranger.says("pytest", *own, *folders)

    stranger.template = Template(stranger.python)
    file = stranger.folder / "compbench-my-method" / "compbench_my_method" / "my_method.py"
    edited = file.read_text().replace("Field(1.5,", "Field(2.0,").replace("Guided flow matching", "Guided harder")
    assert edited != file.read_text()
    file.write_text(edited)
    assert "Guided harder: v =" in stranger.compbench("list", "methods")
    few = [word for check in ("conditions", "null", "determinism") for word in ("--only", check)]  # all: the example's own test
    stranger.compbench("check", "my-method", *few, "--time-limit", 600)
    said = stranger.compbench("check", "my-task", "my_metric", "--time-limit", 600)
    assert re.search(r"^my-task: \d+ ok[^f]* in ", said, re.MULTILINE)
    assert re.search(r"^my_metric: 3 ok in ", said, re.MULTILINE)

    git = ("git", "-C", str(stranger.folder / "compbench-my-method"), "-c", "user.name=s", "-c", "user.email=s@example.org")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "Begin")):  # `submit` takes what others can get
        subprocess.run([*git, *words], check=True, timeout=60)

    run = (
        "--method",
        "my-method",
        "--task",
        "blobs-iid,my-task",
        "--preset",
        "smoke",
        "--metric",
        "my_metric",
        "--chain",
        "--quiet",
        "--json",
    )
    assert {row["status"] for row in json.loads(stranger.compbench("sweep", *run))} == {"ok"}
    stranger.compbench(
        "submit", "blobs-iid.my-method", "my-task.my-method", "--to", stranger.leaderboards, "--training-data", "seen"
    )
    records = stranger.leaderboards / "records"
    record = next(records.glob("blobs-iid.*.json"))
    facts = json.loads(record.read_text())
    assert facts["spec"]["settings"]["guidance_weight"] == 2.0
    assert "heldout_my_metric" in {score["name"] for score in facts["scores"]}

    stranger.compbench("reproduce", record, "--threads", "1", "--quiet")
    site = stranger.leaderboards / "site"
    stranger.compbench("board", "--records", records, "--output", site)
    stranger.compbench("board", "--records", records, "--output", site, "--check")
    with (site / "rows.csv").open(newline="") as lines:
        found = {row["task"]: row for row in csv.DictReader(lines) if row["method"] == "my-method"}
    assert found["blobs-iid"]["level"] == "reproduced"
    assert found["my-task"]["level"] == "self-reported"
    assert {row["training_data"] for row in found.values()} == {"seen"}

    metric = stranger.folder / "compbench-my-metric" / "compbench_my_metric" / "my_metric.py"
    metric.write_text(metric.read_text().replace('"margin": 0.01}', '"margin": 0.01, "version": 2}'))
    assert "heldout_my_metric" in stranger.compbench("rescore", record.stem, "--quiet")
    (again,) = [
        found for path in (stranger.home / "records").glob("*.json") if (found := json.loads(path.read_text())).get("rescored")
    ]
    assert (again["rescored"], again["spec"]["metrics"]["my_metric"]) == (record.stem, 2)
    values = {score["name"]: score["value"] for score in facts["scores"]}
    assert {score["name"]: score["value"] for score in again["scores"]} == pytest.approx(values, rel=1e-3)
