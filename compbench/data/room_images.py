"""Pictures of living rooms by class: from a user's own folders, otherwise from the embedded renderer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Generator, Tensor

from compbench.data.class_folders import REFERENCE_EVERY, ROOMS, Second, class_files, read_pictures
from compbench.data.rooms_renderer import OBJECTS, RoomsRenderer, random_styles
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors, save_tensors
from compbench.system.home import FROM_DATA

if TYPE_CHECKING:
    from compbench.api.interfaces import TaskContext

RENDERER_VERSION = 1
"""Version of the renderer; raise it when an image changes."""


class RoomPictures(Protocol):
    """Pictures of the four classes, 0 nothing, 1 couch, 2 second object, 3 both: uint8 (B, 3, side, side) on the device."""

    def training(self, classes: Tensor, generator: Generator) -> Tensor:
        """A random training picture of each class (B,)."""
        ...

    def reference(self, classes: Tensor, generator: Generator) -> Tensor:
        """A random picture outside the training data for each class (B,)."""
        ...


class RenderedRooms:
    """Rooms of the embedded renderer: a pool of styles for training, new styles as reference.

    Args:
        second: the object next to the couch.
        side: pixels per side.
        pictures: training pictures of each class.
        ctx: device and cache; the renderer's buffers are kept there.
    """

    def __init__(self, second: Second, side: int, pictures: int, ctx: TaskContext) -> None:
        self.renderer = cached_renderer(side, ctx)
        self._second, self._device = OBJECTS.index(second), ctx.device
        generator = Generator().manual_seed(71)
        self._pool = random_styles(4 * pictures, generator).unflatten(0, (4, pictures))

    def training(self, classes: Tensor, generator: Generator) -> Tensor:
        rows = torch.randint(self._pool.shape[1], (len(classes),), generator=generator)
        return self._drawn(classes.cpu(), self._pool[classes.cpu(), rows])

    def reference(self, classes: Tensor, generator: Generator) -> Tensor:
        return self._drawn(classes.cpu(), random_styles(len(classes), generator))

    def _drawn(self, classes: Tensor, styles: Tensor) -> Tensor:
        objects = torch.zeros(len(classes), len(OBJECTS), dtype=torch.long)
        objects[:, 0], objects[:, self._second] = classes % 2, classes // 2
        return self.renderer(objects, styles)


class FolderRooms:
    """A user's pictures: one in `REFERENCE_EVERY` of each class is for the referee.  Training pictures are mirrored at random.

    Raises:
        CompbenchError: a class has no folder or too few pictures, or a file is not a picture.
    """

    def __init__(self, second: Second, side: int, ctx: TaskContext) -> None:
        files = class_files(ctx.data / "rooms", ROOMS[second])
        self._classes = [
            send(read_pictures(paths, side, progress=lambda done, total: ctx.progress("read", done, total)), ctx.device)
            for paths in files.values()
        ]

    def training(self, classes: Tensor, generator: Generator) -> Tensor:
        images = self._drawn(classes, generator, reference=False)
        mirrored = send(torch.rand(len(classes), generator=generator) < 0.5, images.device)
        return torch.where(mirrored[:, None, None, None], images.flip(3), images)

    def reference(self, classes: Tensor, generator: Generator) -> Tensor:
        return self._drawn(classes, generator, reference=True)

    def _drawn(self, classes: Tensor, generator: Generator, *, reference: bool) -> Tensor:
        shares = torch.rand(len(classes), generator=generator)
        chosen = []
        for name, share in zip(classes.tolist(), shares.tolist(), strict=True):
            rows = self._of(name, reference)
            chosen.append(self._classes[name][rows[int(share * len(rows))]])
        return torch.stack(chosen)

    def _of(self, name: int, reference: bool) -> list[int]:
        return [row for row in range(len(self._classes[name])) if (row % REFERENCE_EVERY == 0) == reference]


def cached_renderer(side: int, ctx: TaskContext) -> RoomsRenderer:
    """The renderer, with its traced buffers kept in the cache."""
    path: Path = ctx.cache / FROM_DATA / f"rooms-{side}-buffers-{RENDERER_VERSION}.safetensors"
    if path.is_file():
        try:
            return RoomsRenderer.from_buffers(load_tensors(path)[0], device=ctx.device)
        except CompbenchError:
            path.unlink()  # a damaged cache file is written again
    made = RoomsRenderer(side=side, device=ctx.device, progress=lambda done, total: ctx.progress("render", done, total))
    save_tensors(path, made.buffers(), {})
    return made
