"""Inception features as clean-fid computes them (Parmar et al. 2022), with weights that we find and check ourselves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from compbench.metrics.unavailable import MetricUnavailable

WEIGHTS = "inception-2015-12-05.pt"
INSTALL = "pip install 'compbench[fid]'"


class InceptionFeatures:
    """2048 features an image, by clean-fid's network and its antialiased bicubic resize.

    Args:
        folder: data folder that may hold the weights; COMPBENCH_INCEPTION names another file and goes first.
        device: where the network runs.
        sha256: expected hash of the weights; "" trusts the file on first use and checks it from then on.

    Raises:
        MetricUnavailable: packages or weights are missing, or the weights are not those that were used before.
    """

    def __init__(self, folder: Path, device: torch.device, *, sha256: str = "") -> None:
        path = Path(os.environ.get("COMPBENCH_INCEPTION", folder / WEIGHTS))
        if not path.is_file():
            raise MetricUnavailable(f"no Inception weights: bring {WEIGHTS} by `compbench data fetch inception`")
        try:
            from cleanfid.resize import build_resizer
        except Exception as error:  # a torchvision built for another torch dies with all sorts of errors
            raise MetricUnavailable(f"clean-fid cannot be used ({type(error).__name__}: {error}): {INSTALL}") from error
        self.sha256 = _checked(path, sha256)
        self._resize: Any = build_resizer("clean")
        self._device = device
        self._net = torch.jit.load(str(path), map_location=device).eval()  # TorchScript, loaded only after its hash

    @torch.no_grad()
    def __call__(self, images: Tensor, *, batch: int = 64) -> numpy.ndarray:
        """Features (N, 2048) float32 of uint8 images (N, 3, H, W)."""
        parts = [self._features(block) for block in _blocks(images, batch)]
        return numpy.concatenate(parts)

    def _features(self, images: Tensor) -> numpy.ndarray:
        resized = [self._resize(image.permute(1, 2, 0).cpu().numpy()) for image in images]
        x = torch.from_numpy(numpy.stack(resized)).permute(0, 3, 1, 2).float().to(self._device)
        return self._net(x, return_features=True).float().cpu().numpy()


def _checked(path: Path, expected: str) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    note = path.with_suffix(".sha256")
    if not expected and note.is_file():
        expected = note.read_text().split()[0]
    if expected and found != expected:
        raise MetricUnavailable(f"{path.name} has SHA-256 {found[:16]}..., expected {expected[:16]}...: fetch it again")
    return found


def _blocks(images: Tensor, size: int) -> Iterator[Tensor]:
    return (images[first : first + size] for first in range(0, len(images), size))
