"""One score against another: means over seeds, references apart, and one clear line where there is nothing to draw."""

from pathlib import Path

import pytest
from score_scatter import figure, points
from support.sample_records import record, score

from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.system.errors import CompbenchError

TASK = "cmnist-noniid"
SETTINGS = Registry().load("tasks", TASK).settings.model_dump(mode="json")
BOTH = ("heldout_recall", "heldout_precision")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Store(tmp_path / "records")
    for seed, recall in enumerate((0.2, 0.4)):
        scores = score(), score("heldout_recall", recall), score("heldout_precision", 0.9)
        store.write(record(*scores, task=TASK, task_settings=SETTINGS, method="ddm", seed=seed))
        pooled = {"oracle": True}
        store.write(record(*scores, task=TASK, task_settings=SETTINGS, method="mono", seed=seed, more=pooled))
    store.write(record(score(), task=TASK, task_settings=SETTINGS, method="dfd"))
    changed = {**SETTINGS, "silos": 5}
    store.write(record(*scores, task=TASK, task_settings=changed, method="dcfm-a"))
    return store.folder


def test_a_point_is_a_rows_mean_and_references_are_marked(folder: Path) -> None:
    found = points(folder, TASK, "quick", BOTH)
    assert [(point.label, point.reference) for point in found] == [("ddm", False), ("mono", True)]
    assert (found[0].x.mean, found[0].y.mean) == pytest.approx((0.3, 0.9))


def test_the_picture_is_written(folder: Path, tmp_path: Path) -> None:
    figure(points(folder, TASK, "quick", BOTH), TASK, tmp_path / "scatter.png")
    assert (tmp_path / "scatter.png").read_bytes().startswith(b"\x89PNG")


def test_a_score_that_no_row_has_is_one_line_with_those_there_are(folder: Path) -> None:
    with pytest.raises(CompbenchError, match="no row of 'cmnist-noniid' at quick .* has heldout_fid and .*heldout_recall"):
        points(folder, TASK, "quick", ("heldout_fid", "heldout_precision"))
