"""Handwritten digits for colouring: MNIST if its four idx files are there, otherwise scikit-learn's digits, enlarged.

An image is its grey digit times a colour, on black; 28 x 28 pixels.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from compbench.data.digit import SIDE, mnist_files, read_idx
from compbench.flow.transfer import numbers
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
"""MNIST's files and the md5 sums of their gzipped form."""

NUM_REFERENCE = 497
"""Number of scikit-learn's 1,797 digits that are kept as reference."""

VARIANTS = 5
"""Number of images made from each of scikit-learn's digits."""


class Digits(NamedTuple):
    """Grey digits, uint8 (N, 28, 28), and their labels, long (N,)."""

    images: Tensor
    labels: Tensor


def official_files(data: Path) -> tuple[Path, ...]:
    """MNIST's four files in a data folder, in the order of `FILES`.

    Raises:
        CompbenchError: a file is missing.
    """
    paths = mnist_files(data, tuple(FILES))
    if paths is None:
        raise CompbenchError(
            f"not all of {', '.join(FILES)} [.gz] are in {data} or {data / 'mnist'}; put them there or use --source embedded."
        )
    return paths


def official_digits(data: Path) -> tuple[Digits, Digits]:
    """MNIST's training and test digits.

    Raises:
        CompbenchError: a file is missing, not MNIST's, or cut off.
    """
    paths = official_files(data)
    for path, md5 in zip(paths, FILES.values(), strict=True):
        if path.suffix == ".gz" and (actual := hashlib.md5(path.read_bytes()).hexdigest()) != md5:
            raise CompbenchError(
                f"{path} is damaged: md5 {actual[:8]}..., MNIST's {md5[:8]}...; fetch it again or use --source embedded."
            )
    train_images, train_labels, test_images, test_labels = map(read_idx, paths)
    pairs = Digits(train_images, train_labels.long()), Digits(test_images, test_labels.long())
    for digits in pairs:
        if len(digits.images) != len(digits.labels) or digits.images.shape[1:] != (SIDE, SIDE) or digits.labels.max() > 9:
            raise CompbenchError(f"{paths[0].parent}: images and labels do not belong together; fetch all four files again.")
    return pairs


def embedded_digits() -> tuple[Digits, Digits]:
    """scikit-learn's 8 x 8 digits at 28 x 28 pixels, 1,300 for training and 497 as reference, `VARIANTS` images of each.

    Each digit is enlarged bilinearly to 20 pixels, framed in black, and turned, scaled and shifted a little.

    Raises:
        CompbenchError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise CompbenchError(
            "the embedded digits need packages that are not installed: pip install 'compbench[digits]'"
        ) from error
    data = load_digits()
    images, labels = torch.as_tensor(data.images).float() / 16, torch.as_tensor(data.target).long()
    generator = Generator().manual_seed(0)
    order = torch.randperm(len(images), generator=generator)
    training, reference = order[NUM_REFERENCE:], order[:NUM_REFERENCE]
    return _varied(images[training], labels[training], generator), _varied(images[reference], labels[reference], generator)


def coloured(grey: Tensor, colour: Tensor, palette: Sequence[tuple[int, int, int]]) -> Tensor:
    """Grey digits uint8 (N, H, W) in colours (N,) of a palette: uint8 (N, 3, H, W)."""
    rgb = numbers(tuple(palette), grey.device, torch.float32)[colour]  # (N, 3)
    return (grey[:, None].float() * rgb[:, :, None, None] / 255).round().to(torch.uint8)


def _varied(images: Tensor, labels: Tensor, generator: Generator) -> Digits:
    count = len(images) * VARIANTS
    large = F.interpolate(images[:, None], size=(20, 20), mode="bilinear", align_corners=False)
    framed = F.pad(large, [(SIDE - 20) // 2] * 4).repeat_interleave(VARIANTS, 0)
    angle, scale, right, down = (2 * torch.rand(count, generator=generator) - 1 for _ in range(4))
    angle, scale = angle * math.radians(10), 1 + 0.1 * scale
    cos, sin = angle.cos() / scale, angle.sin() / scale
    shift = 2 * 1.5 / SIDE  # 1.5 pixels at most
    theta = torch.stack([torch.stack([cos, -sin, right * shift], 1), torch.stack([sin, cos, down * shift], 1)], 1)
    grid = F.affine_grid(theta, list(framed.shape), align_corners=False)
    drawn = F.grid_sample(framed, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return Digits((drawn[:, 0].clamp(0, 1) * 255).round().to(torch.uint8), labels.repeat_interleave(VARIANTS))
