"""The notebook runs from top to bottom, as a reader's kernel runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "plane.ipynb"


def test_the_notebook_is_kept_without_what_a_run_printed() -> None:
    nbformat = pytest.importorskip("nbformat")
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
def test_the_notebook_runs_and_its_own_method_has_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("COMPBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("COMPBENCH_NOTEBOOK_PRESET", "smoke")
    monkeypatch.setenv("MPLBACKEND", "agg")
    ran = nbclient.NotebookClient(nbformat.read(NOTEBOOK, as_version=4), timeout=600, kernel_name="python3").execute()
    names = {path.name.split(".")[1] for path in (tmp_path / "records").glob("*.json")}
    assert names == {"naive-sde", "fkc", "mine"}
    shown = ran.cells[-1]["outputs"][-1]["data"]["text/html"]
    assert all(name in shown for name in names)
