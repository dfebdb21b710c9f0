"""Chest radiographs with their label sets: NIH's images, scaled down once, or the phantom's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from compbench.data import chest_files
from compbench.data.chest_findings import FINDINGS, feasible, label_counts, words
from compbench.data.chest_phantom import NUM_STYLES, ChestPhantom, random_styles
from compbench.data.class_folders import read_pictures
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError
from compbench.system.files import held, load_tensors, save_tensors
from compbench.system.home import FROM_DATA

if TYPE_CHECKING:
    from collections.abc import Callable

    from compbench.api.interfaces import TaskContext

PHANTOM_VERSION = 1
"""Version of the phantom; raise it when an image changes."""


class TrainingSet(NamedTuple):
    """All training images: stored images (N, ...), their label sets (N, 14), and a function stored -> float32 in [-1, 1]."""

    stored: Tensor
    labels: Tensor
    decode: Callable[[Tensor], Tensor]


class Radiographs(Protocol):
    """Radiographs of one source.

    Attributes:
        feasible: label sets of at least 0.1 % of the data, (L, 14).
        training: the images that are spread over the silos.
    """

    feasible: Tensor
    training: TrainingSet

    def of(self, labels: Tensor, generator: Generator) -> Tensor:
        """A random image outside the training data for each label set (B, 14): uint8 (B, 1, side, side) on the device."""
        ...


class PhantomRadiographs:
    """The phantom's radiographs: label sets of the published sample, fixed styles for training, and new styles for the referee.

    Args:
        side: pixels of a side.
        images: training images.
        ctx: where images are made.
    """

    def __init__(self, side: int, images: int, ctx: TaskContext) -> None:
        self._phantom, self._device = ChestPhantom(side=side, device=ctx.device), ctx.device
        counts = label_counts()
        self.feasible = torch.tensor(feasible(counts))
        sets, weights = torch.tensor(list(counts)), torch.tensor(list(counts.values())).double()
        generator = Generator().manual_seed(83)
        rows = torch.multinomial(weights, images, replacement=True, generator=generator)
        rows[: len(sets)] = torch.arange(min(len(sets), images))  # each set at least once: Hernia is in 13 of 5,606
        labels = sets[rows]
        stored = torch.cat([labels.float(), random_styles(images, generator)], 1)
        self.training = TrainingSet(stored.to(ctx.device), labels.to(ctx.device), self._decode)

    def _decode(self, stored: Tensor) -> Tensor:
        split = [len(FINDINGS), NUM_STYLES]
        labels, styles = stored.split(split, dim=1)
        return in_range(self._phantom(labels.long(), styles))

    def of(self, labels: Tensor, generator: Generator) -> Tensor:
        return self._phantom(labels, random_styles(len(labels), generator))


class OfficialRadiographs:
    """NIH's radiographs: training images of all label sets, and for the referee test images of the feasible sets.

    Raises:
        CompbenchError: table or images are missing or damaged, or a feasible label set has no test image.
    """

    def __init__(self, side: int, ctx: TaskContext) -> None:
        entries = chest_files.read_table(ctx.data)
        counts: dict[tuple[int, ...], int] = {}
        for entry in entries:
            counts[entry.labels] = counts.get(entry.labels, 0) + 1
        self.feasible = torch.tensor(feasible(counts))
        labels = torch.tensor([entry.labels for entry in entries])
        test = torch.tensor([entry.test for entry in entries])
        images = self._images(entries, side, ctx)
        if bool(test.all()):
            raise CompbenchError(f"all radiographs of {chest_files.TABLE} are test images; none is left to train on.")
        self.training = TrainingSet(images[~test].to(ctx.device), labels[~test].to(ctx.device), in_range)
        self._test, self._device = images[test], ctx.device
        self._rows: dict[tuple[int, ...], list[int]] = {}
        for row, found in enumerate(labels[test].tolist()):
            self._rows.setdefault(tuple(found), []).append(row)
        for found in self.feasible.tolist():
            if tuple(found) not in self._rows:
                raise CompbenchError(f"no test image has the label set {words(tuple(found))}, which is feasible.")

    @staticmethod
    def _images(entries: list[chest_files.Entry], side: int, ctx: TaskContext) -> Tensor:
        """All images at one size, from the cache if they were scaled before (112,120 images take about 20 minutes)."""
        name = f"chest-{side}-{chest_files.fingerprint(ctx.data)}.safetensors"
        path: Path = ctx.cache / FROM_DATA / name
        with held(path):
            if path.is_file():
                try:
                    images = load_tensors(path)[0]["images"]
                    if images.shape == (len(entries), 1, side, side):
                        return images
                except (CompbenchError, KeyError):
                    path.unlink()  # a damaged cache file is written again
            paths = chest_files.find_images(ctx.data, entries)
            images = read_pictures(paths, side, mode="L", progress=lambda done, total: ctx.progress("scale down", done, total))
            save_tensors(path, {"images": images}, {})
            return images

    def of(self, labels: Tensor, generator: Generator) -> Tensor:
        shares = torch.rand(len(labels), generator=generator).tolist()
        rows = []
        for found, share in zip(labels.tolist(), shares, strict=True):
            own = self._rows.get(tuple(found))
            if own is None:
                raise CompbenchError(f"no test image has the label set {words(tuple(found))}.")
            rows.append(own[int(share * len(own))])
        return send(self._test[rows], self._device)


def in_range(images: Tensor) -> Tensor:
    """uint8 pixels as float32 in [-1, 1]."""
    return images.float() / 127.5 - 1
