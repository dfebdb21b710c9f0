"""One handwritten digit and its rotations: MNIST's first 4 if the file is there, otherwise scikit-learn's."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from compbench.system.errors import CompbenchError, unreadable

DIGIT, SIDE = 4, 28
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
MOST_BYTES = 1 << 30
"""Largest content of one file in bytes; MNIST's largest has 47 million."""


def mnist_files(data: Path, names: Sequence[str] = (IMAGES, LABELS)) -> tuple[Path, ...] | None:
    """Some of MNIST's files, by default the training ones, in a data folder or `mnist/` in it; None if not all are there.

    Each may be plain or gzipped.
    """
    for folder in (data, data / "mnist"):
        found = [next(filter(Path.is_file, (folder / f"{name}.gz", folder / name)), None) for name in names]
        paths = tuple(path for path in found if path is not None)
        if len(paths) == len(names):
            return paths
    return None


def first_digit(data: Path, *, official: bool) -> Tensor:
    """The first 4 of the training set, (28, 28) in [0, 1]; scikit-learn's 8 x 8 pixels are enlarged bilinearly.

    Raises:
        CompbenchError: a file or package is missing, or a file is not MNIST's.
    """
    if official:
        files = mnist_files(data)
        if files is None:
            raise CompbenchError(f"no {IMAGES}[.gz] in {data} or {data / 'mnist'}; put it there or use --source embedded.")
        places = (read_idx(files[1]) == DIGIT).nonzero()
        if not len(places):
            raise CompbenchError(f"{files[1]} has no label {DIGIT}; fetch MNIST's files again or use --source embedded.")
        image = read_idx(files[0], first=int(places[0, 0]))[0]
        if image.shape != (SIDE, SIDE):
            raise CompbenchError(f"{files[0]} has no images of {SIDE} x {SIDE} pixels; fetch it again or use --source embedded.")
        return image.float() / 255
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise CompbenchError(
            "the embedded digit needs packages that are not installed: pip install 'compbench[digits]'"
        ) from error
    digits = load_digits()
    image = torch.as_tensor(digits.images[list(digits.target).index(DIGIT)]).float() / 16
    return F.interpolate(image[None, None], size=(SIDE, SIDE), mode="bilinear", align_corners=True)[0, 0]


def read_idx(path: Path, *, first: int | None = None) -> Tensor:
    """A file of MNIST's IDX format as uint8; with `first`, one item of it, (1, ...).

    Raises:
        CompbenchError: the file has another format, or is cut off.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            zero, kind, axes = struct.unpack(">HBB", file.read(4))
            if zero or kind != 8 or not 1 <= axes <= 3:
                raise ValueError("the header is not that of unsigned bytes")
            shape = list(struct.unpack(f">{axes}I", file.read(4 * axes)))
            if first is not None:
                file.seek(first * math.prod(shape[1:]), 1)
                shape[0] = 1
            count = math.prod(shape)
            if not 0 < count <= MOST_BYTES:
                raise ValueError(f"its header says {' x '.join(map(str, shape))}")
            content = file.read(count)
            beyond = first is None and file.read(1)  # the end of a gzip file has its checksum
        if len(content) != count or beyond:
            raise ValueError("the file is cut off" if len(content) < count else "more follows than its header says")
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        raise CompbenchError(unreadable(path, "an IDX file of MNIST", error, todo="fetch it again")) from error
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(shape)


def rotations(image: Tensor, degrees: Tensor) -> Tensor:
    """An image (H, W) turned about its centre, bilinear, zeros from outside, (B, H, W); positive is counter-clockwise."""
    angle = torch.deg2rad(degrees.to(image.dtype))
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    turn = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], dim=1)  # (B, 2, 3)
    size = (len(degrees), 1, *image.shape)
    grid = F.affine_grid(turn, list(size), align_corners=True)
    return F.grid_sample(image.expand(size), grid, mode="bilinear", padding_mode="zeros", align_corners=True)[:, 0]


def fingerprint(image: Tensor) -> str:
    """Hash of an image's bytes."""
    return hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest()[:16]
