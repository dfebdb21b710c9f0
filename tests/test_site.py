"""The documentation site: a page a task and a method, from what is installed, and a build without a warning."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]


def test_every_marker_of_a_document_is_filled() -> None:
    from site_pages import fill

    assert "| `status` | ok, failed, timeout, oom (out of memory), killed or refused |" in fill("<!-- record -->")
    for name in ("tasks", "worked_examples", "notebook", "api"):
        text = fill((ROOT / "docs" / f"{name}.md").read_text())
        assert "<!--" not in text
    assert "compbench_executors" in fill("<!-- examples -->")
    assert "[gmm-id](tasks/gmm-id.md)" in fill("<!-- tasks -->")


def test_the_page_of_a_task_says_what_it_asks_and_who_is_best() -> None:
    from site_pages import board, lattice, task_page

    from compbench.registry.registry import Registry

    registry = Registry()
    task = registry.load("tasks", "gauss2d-fact-id")
    drawn = lattice(task)
    assert re.findall(r"<title>\w+, \w+: (seen|held out)</title>", drawn) == ["seen", "seen", "seen", "held out"]
    assert drawn.count('fill="none"') == 1
    page = task_page(task, registry.entry("tasks", task.name), board())
    for part in ("## Best rows", "zero", "C_min", "## Budgets", "--task gauss2d-fact-id"):
        assert part in page


def test_the_page_of_an_image_task_has_samples_of_its_training_data() -> None:
    from site_pages import REAL_COLUMNS, board, real_samples, task_page

    from compbench.registry.registry import Registry

    registry = Registry()
    task = registry.load("tasks", "concept-space")
    picture = Image.open(io.BytesIO(real_samples(task)))
    _, height, width = task.event.shape
    assert picture.size == (2 * width * REAL_COLUMNS, 2 * height * 2)
    assert len(picture.getcolors(picture.width * picture.height) or ()) > 10
    page = task_page(task, registry.entry("tasks", task.name), board())
    assert "../samples/concept-space.png" in page  # a record's grid, whose upper rows are real
    assert "real.png" not in page
    assert real_samples(registry.load("tasks", "gmm-id")) == b""


def test_the_page_of_a_method_has_its_settings_and_the_papers_figures() -> None:
    from site_pages import board, method_page

    from compbench.registry.registry import Registry

    page = method_page(Registry().entry("methods", "fkc"), board())
    for part in ("`num_particles`", "../tasks/gmm-id.md", "version"):
        assert part in page
    assert "| factored-velocity-fields, table 1 | shapes3d-light |" in method_page(Registry().entry("methods", "mono"), board())


@pytest.mark.slow
def test_the_site_builds_strictly_and_offline(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "tasks" / "gmm-id.html").is_file()
    assert (tmp_path / "methods" / "fkc.html").is_file()
    assert "StoredModel" in (tmp_path / "api.html").read_text()
