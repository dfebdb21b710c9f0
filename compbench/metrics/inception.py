"""Inception features as clean-fid computes them (Parmar et al. 2022); compbench finds and checks the weights.

clean-fid's own loader trusts any file in the system's temporary folder, and downloads to it; ours does neither.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import torch
from torch import Tensor

from compbench.data.sources import SOURCES
from compbench.system.errors import MetricUnavailable

WEIGHTS = SOURCES["inception"].files[0].name
WEIGHTS_SHA256 = SOURCES["inception"].files[0].sha256
"""Hash of NVIDIA's file of 95,607,719 bytes; k-diffusion pins the same hash.  We have not measured it ourselves."""
INSTALL = "pip install 'compbench[fid]'"


class InceptionFeatures:
    """An extractor of 2048 features per image, with clean-fid's network and its antialiased bicubic resize.

    Args:
        folder: data folder that may hold the weights.
        device: where the network runs.
        path: the weights' file; by default the file that COMPBENCH_INCEPTION names, or else the one in `folder`.
        sha256: expected hash of the weights.

    Raises:
        MetricUnavailable: packages or weights are missing, or the weights have another hash.
    """

    def __init__(self, folder: Path, device: torch.device, *, path: Path | None = None, sha256: str = WEIGHTS_SHA256) -> None:
        path = path or Path(os.environ.get("COMPBENCH_INCEPTION") or folder / WEIGHTS)
        if not path.is_file():
            raise MetricUnavailable(f"no Inception weights: download {WEIGHTS} by `compbench data fetch inception`")
        try:
            from cleanfid.resize import build_resizer
        except Exception as error:  # a torchvision built for another torch may raise any error
            raise MetricUnavailable(f"clean-fid cannot be used ({type(error).__name__}: {error}): {INSTALL}") from error
        content = path.read_bytes()
        self.sha256 = hashlib.sha256(content).hexdigest()
        if self.sha256 != sha256:
            raise MetricUnavailable(f"{path.name} has SHA-256 {self.sha256[:16]}..., expected {sha256[:16]}...: fetch it again")
        self._resize: Callable[[numpy.ndarray], numpy.ndarray] = build_resizer("clean")
        self._device = device
        # TorchScript can run code, so we load the very bytes that were hashed, not the file again.
        self._net = torch.jit.load(io.BytesIO(content), map_location=device).eval()

    @torch.no_grad()
    def __call__(self, images: Tensor, *, batch: int = 64) -> numpy.ndarray:
        """Features (N, 2048) float32 of uint8 images (N, 3, H, W)."""
        parts = [self._features(block) for block in _blocks(images, batch)]
        return numpy.concatenate(parts)

    def _features(self, images: Tensor) -> numpy.ndarray:
        resized = [self._resize(image.permute(1, 2, 0).cpu().numpy()) for image in images]
        x = torch.from_numpy(numpy.stack(resized)).permute(0, 3, 1, 2).float().to(self._device)  # (B, 3, 299, 299)
        # clean-fid's mode "clean" leaves out the resize in the weights' file, and normalises before it calls the network.
        return self._net.layers((x - 128) / 128).view(len(x), -1).float().cpu().numpy()


def _blocks(images: Tensor, size: int) -> Iterator[Tensor]:
    return (images[first : first + size] for first in range(0, len(images), size))
