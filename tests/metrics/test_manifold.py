import numpy
import pytest

from compbench.metrics import manifold
from compbench.metrics.manifold import precision_recall


def line(*places: float) -> numpy.ndarray:
    return numpy.array(places)[:, None]


def test_precision_recall_of_points_on_a_line_by_hand() -> None:
    real = line(0, 1, 2, 10)  # radii at k = 1: 1, 1, 1, 8
    generated = line(0.5, 3, 1.5, 30, 31)  # radii at k = 1: 1, 1.5, 1, 1, 1
    found = precision_recall(real, generated, k=1)
    assert found.precision == pytest.approx(3 / 5)  # 0.5, 1.5 near the first three; 3 within 8 of 10; 30, 31 far
    assert found.recall == pytest.approx(3 / 4)  # 0, 1, 2 within 1 of 0.5 or 1.5; 10 far from all


def test_precision_recall_ball_includes_its_edge() -> None:
    found = precision_recall(line(0, 1), line(2, 5), k=1)  # 2 lies 1 from 1, whose radius is 1
    assert found.precision == pytest.approx(1 / 2)


def test_precision_recall_of_one_set_with_itself_is_one() -> None:
    points = numpy.random.default_rng(0).normal(size=(50, 4))
    assert precision_recall(points, points) == (1.0, 1.0)


def test_precision_recall_of_collapsed_samples_is_precise_without_recall() -> None:
    rng = numpy.random.default_rng(0)
    real = rng.normal(size=(200, 2))
    found = precision_recall(real, 1e-3 * rng.normal(size=(200, 2)))
    assert found.precision == 1
    assert found.recall < 0.05


def test_precision_recall_does_not_depend_on_the_block(monkeypatch) -> None:
    real, generated = numpy.random.default_rng(0).normal(size=(2, 37, 3))
    whole = precision_recall(real, generated)
    monkeypatch.setattr(manifold, "BLOCK", 5)
    assert precision_recall(real, generated) == whole


def test_precision_recall_refuses_too_few_samples() -> None:
    with pytest.raises(ValueError, match="more than 3"):
        precision_recall(line(0, 1, 2), line(0, 1, 2, 3))
