"""Distances on the device are those of the plain references."""

import numpy
import pytest
import torch

from compbench.api.interfaces import SamplePair
from compbench.metrics import device_distances, image, kernel, manifold


@pytest.fixture
def features() -> dict[str, numpy.ndarray]:
    rng = numpy.random.default_rng(0)
    means = {"real": 0.0, "generated": 0.3, "floor": 0.0}
    return {which: (rng.normal(size=(300, 6)) + mean).astype(numpy.float32) for which, mean in means.items()}


def test_precision_and_recall_are_the_references(features: dict[str, numpy.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    real, generated = features["real"], features["generated"]
    for k in (1, 3, 5):
        expected = manifold.precision_recall(real, generated, k=k)
        assert 0.05 < expected.precision < 0.99
        with monkeypatch.context() as patch:
            patch.setattr(device_distances, "BLOCK", 7)
            assert device_distances.precision_recall(torch.tensor(real), torch.tensor(generated), k=k) == expected
        assert device_distances.precision_recall(torch.tensor(real), torch.tensor(generated), k=k) == expected


@pytest.mark.parametrize(("num_subsets", "subset_size"), [(4, 50), (1, 50), (3, 1000)])
def test_kid_is_the_references_on_the_same_subsets(
    features: dict[str, numpy.ndarray], num_subsets: int, subset_size: int
) -> None:
    sizes = {"num_subsets": num_subsets, "subset_size": subset_size}
    real, generated = features["real"], features["generated"]
    expected = kernel.kid(real, generated, **sizes, generator=numpy.random.default_rng(3))
    tensors = torch.tensor(real), torch.tensor(generated)
    found = device_distances.kid(*tensors, **sizes, generator=numpy.random.default_rng(3))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert expected.mean > 0


def test_too_few_samples_are_refused_as_by_the_references() -> None:
    points = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="more than 3"):
        device_distances.precision_recall(points, torch.zeros(4, 2))
    with pytest.raises(ValueError, match="2 rows or more"):
        device_distances.kid(points, points[:1], num_subsets=1, subset_size=5, generator=numpy.random.default_rng(0))


@pytest.mark.parametrize("metric", [image.kid, image.precision, image.recall])
def test_metrics_take_the_devices_way_on_a_gpu_alone(
    features: dict[str, numpy.ndarray], metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    pair = SamplePair(pictures, pictures, pictures, lambda extractor, which: features[which])
    expected = metric(pair, numpy.random.default_rng(0))
    taken = []
    for name in ("kid", "precision_recall"):
        plain = getattr(device_distances, name)
        monkeypatch.setattr(
            device_distances, name, lambda *args, _own=plain, **settings: taken.append(_own) or _own(*args, **settings)
        )
    assert metric(pair, numpy.random.default_rng(0)) == expected
    assert taken == []
    monkeypatch.setattr(image, "on_gpu", lambda device: True)
    assert metric(pair, numpy.random.default_rng(0)) == pytest.approx(expected, rel=1e-9)
    assert len(taken) == 2  # of what was generated, and of the floor
