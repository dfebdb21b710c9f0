import hashlib
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor, nn

from compbench.metrics.inception import WEIGHTS, InceptionFeatures
from compbench.system.errors import MetricUnavailable

CPU = torch.device("cpu")


class Layers(nn.Module):
    """The mean of each channel, repeated to 2048 features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3)).repeat(1, 683)[:, :2048]


class StandIn(nn.Module):
    """A file like NVIDIA's: the features are in `layers`, below a `forward` that clean-fid's mode "clean" goes round."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) * float("nan")


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPBENCH_INCEPTION", raising=False)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "brought" / "any-name.pt"
    path.parent.mkdir()
    torch.jit.script(StandIn()).save(str(path))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_inception_features_without_weights_say_what_to_bring(tmp_path: Path) -> None:
    with pytest.raises(MetricUnavailable, match="compbench data fetch inception"):
        InceptionFeatures(tmp_path, CPU)


def test_inception_features_refuse_a_file_of_another_hash(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(MetricUnavailable, match="fetch it again"):
        InceptionFeatures(tmp_path, CPU, path=weights)


def test_inception_features_refuse_before_torch_reads_the_file(weights: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(torch.jit, "load", lambda *a, **k: pytest.fail("loaded without a hash"))
    with pytest.raises(MetricUnavailable):
        InceptionFeatures(tmp_path, CPU, path=weights)


def test_inception_features_name_a_broken_package(weights: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cleanfid.resize", None)  # importing it now raises
    with pytest.raises(MetricUnavailable, match=r"clean-fid cannot be used .*compbench\[fid\]"):
        InceptionFeatures(tmp_path, CPU, path=weights, sha256=sha256(weights))


def test_inception_features_take_the_argument_before_the_setting(weights: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("cleanfid.resize")
    monkeypatch.setenv("COMPBENCH_INCEPTION", str(tmp_path / "absent.pt"))
    assert InceptionFeatures(tmp_path, CPU, path=weights, sha256=sha256(weights)).sha256 == sha256(weights)


def test_inception_features_take_the_setting_before_the_folder(weights: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("cleanfid.resize")
    (tmp_path / WEIGHTS).write_bytes(b"another file")
    monkeypatch.setenv("COMPBENCH_INCEPTION", str(weights))
    assert InceptionFeatures(tmp_path, CPU, sha256=sha256(weights)).sha256 == sha256(weights)


def test_inception_features_see_normalised_images_of_299_pixels(weights: Path, tmp_path: Path) -> None:
    pytest.importorskip("cleanfid.resize")
    features = InceptionFeatures(tmp_path, CPU, path=weights, sha256=sha256(weights))
    images = torch.stack([torch.full((3, 64, 64), value, dtype=torch.uint8) for value in (0, 128, 192)])
    found = features(images, batch=2)
    assert found.shape == (3, 2048)
    assert found.dtype == numpy.float32
    assert found[:, 0] == pytest.approx([-1, 0, 0.5], abs=1e-6)  # (x - 128) / 128, as in clean-fid


def test_inception_features_are_those_of_clean_fids_own_extractor(weights: Path, tmp_path: Path) -> None:
    extractor = pytest.importorskip("cleanfid.inception_torchscript", exc_type=Exception)
    resize = pytest.importorskip("cleanfid.resize").build_resizer("clean")
    (tmp_path / WEIGHTS).write_bytes(weights.read_bytes())
    images = torch.randint(256, (4, 3, 64, 64), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    resized = numpy.stack([resize(image.permute(1, 2, 0).numpy()) for image in images]).transpose(0, 3, 1, 2)
    theirs = extractor.InceptionV3W(str(tmp_path), download=False)(torch.from_numpy(resized))
    ours = InceptionFeatures(tmp_path, CPU, sha256=sha256(weights))(images)
    assert numpy.array_equal(ours, theirs.numpy())
