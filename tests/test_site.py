"""The documentation site: a page a task and a method, from what is installed, and a build without a warning."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from support.browser import CHROMIUM, DRIVER, MISSING, browser

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
    for reference in ("fkc-oracle", "constant"):
        scores = method_page(Registry().entry("methods", reference), board()).partition("## Its scores")[2]
        assert "[gmm-id](../tasks/gmm-id.md) | standard | reference; default | heldout_sw2 |" in scores


def test_pages_say_which_runs_have_an_older_version(monkeypatch: pytest.MonkeyPatch) -> None:
    import method_tables
    from site_pages import best_rows, board, limits, settings_of

    monkeypatch.setattr(method_tables, "newest_versions", lambda: {("methods", "mono"): 9, ("tasks", "gmm-id"): 8})
    rows = [row for row in board() if row["task"] == "gmm-id"]
    (mono,) = (row for row in rows if row["method"] == "mono")
    assert settings_of(mono) == "default; version 1 of the method, now 9; version 1 of the task, now 8"
    assert settings_of(mono) in best_rows(rows)
    assert "| standard; version 1 of the task, now 8 | heldout_sw2 |" in limits("gmm-id")


def test_the_page_for_language_models_links_every_page_and_leaves_no_link_within_a_sentence() -> None:
    from site_pages import llms

    text = llms(["index.md", {"Results": ["boards.md", "boards_computed.md"]}])
    entries = [line for line in text.splitlines() if line.startswith("- ")]
    links = [re.findall(r"\]\(([^)]+)\)", line) for line in entries]
    assert [line for line, found in zip(entries, links, strict=True) if len(found) != 1] == []
    pages = {found[0] for found in links}
    assert {"index.html", "boards.html", "boards_computed.html", "tasks/gmm-id.html", "methods/fkc.html"} <= pages
    assert all(page.endswith(".html") for page in pages)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return place


@pytest.mark.slow
def test_the_site_builds_strictly_and_offline(site: Path) -> None:
    assert (site / "tasks" / "gmm-id.html").is_file()
    assert (site / "methods" / "fkc.html").is_file()
    assert "StoredModel" in (site / "api.html").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=MISSING)
def test_search_works_where_the_site_is_opened_from_a_folder(site: Path) -> None:
    typing = "const box = document.querySelector('.md-search__input'); box.focus(); box.value = 'particles';"
    with browser() as page:
        page.open(site / "index.html")
        page.run(typing + "box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));")
        found: list[str] = []
        deadline = time.monotonic() + 60
        while not found and time.monotonic() < deadline:
            found = page.run("return [...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)")
            time.sleep(0.1)
        assert found
        assert all(link.startswith(site.as_uri()) for link in [*found, *page.requests()])
