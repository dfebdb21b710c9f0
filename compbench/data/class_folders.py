"""A user's pictures, one folder per class: find them, fingerprint their content, read them as squares of one size."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

Second = Literal["painting", "table"]
"""The second object, next to the couch."""

ROOMS: dict[Second, tuple[str, str, str, str]] = {
    "painting": ("empty", "couch", "framed_painting", "couch+framed_painting"),
    "table": ("empty", "couch", "coffee_table", "couch+coffee_table"),
}
"""Folders of the rooms' four classes: nothing, the couch, the second object, both."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})
FEWEST = 10
"""Smallest number of pictures of a class: some are for training, some for the referee."""

REFERENCE_EVERY = 5
"""One picture in this many is kept for the referee."""


def class_files(folder: Path, classes: Sequence[str]) -> dict[str, list[Path]]:
    """The pictures of each class, sorted by name.

    Raises:
        CompbenchError: a class has no folder or too few pictures.
    """
    found = {}
    for name in classes:
        own = folder / name
        if not own.is_dir():
            raise CompbenchError(f"there is no folder {own}; each of {', '.join(classes)} needs a folder of that name.")
        found[name] = sorted(path for path in own.iterdir() if path.suffix.lower() in SUFFIXES)
        if len(found[name]) < FEWEST:
            raise CompbenchError(f"{own} holds {len(found[name])} pictures (.png, .jpg, .webp); a class needs {FEWEST} or more.")
    return found


def have_classes(folder: Path, classes: Sequence[str]) -> bool:
    """Whether each class has a folder."""
    return all((folder / name).is_dir() for name in classes)


def fingerprint(files: dict[str, list[Path]]) -> str:
    """SHA-256 of all classes' names and pictures' contents, 32 hex digits.

    Raises:
        CompbenchError: a file is not a picture, or damage shows before it is decoded.
    """
    from PIL import Image

    digest = hashlib.sha256()
    for name, paths in sorted(files.items()):
        digest.update(f"{name} {len(paths)}\n".encode())
        for path in paths:
            try:
                content = path.read_bytes()
                with Image.open(io.BytesIO(content)) as image:
                    image.verify()
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
                raise unreadable(path, error) from error
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]


def read_pictures(
    paths: Sequence[Path], side: int, *, mode: str = "RGB", progress: Callable[[int, int], None] = lambda done, total: None
) -> Tensor:
    """Pictures cut to their central square and scaled to one size: uint8 (N, C, side, side), C = 3 in "RGB" and 1 in "L".

    Raises:
        CompbenchError: a file is not a picture, or is damaged.
    """
    import numpy
    import torch
    from PIL import Image

    made = torch.empty(len(paths), 1 if mode == "L" else 3, side, side, dtype=torch.uint8)
    for row, path in enumerate(paths):
        try:
            with Image.open(path) as image:
                short = min(image.size)
                left, top = ((length - short) // 2 for length in image.size)
                square = image.convert(mode).crop((left, top, left + short, top + short))
                pixels = numpy.asarray(square.resize((side, side), Image.Resampling.LANCZOS))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise unreadable(path, error) from error
        made[row] = torch.from_numpy(pixels.reshape(side, side, -1).copy()).permute(2, 0, 1)
        progress(row + 1, len(paths))
    return made


def unreadable(path: Path, error: Exception) -> CompbenchError:
    """The error for a file that is not a picture."""
    return CompbenchError(f"{path} cannot be read as a picture ({error}); replace it or take it away.")
