"""The embedded rooms: ray-cast interiors with any selection of a couch, a framed painting and a coffee table.

Everything that depends only on geometry is traced once and kept as bytes: each room's light by material, and the coverage, light
and shadow of each couch, painting and table pose.  Colours only multiply, so an image costs a few multiply-adds per pixel:

    room = sum_m colour_m light_m;    image <- (1 - shadow) image (1 - coverage) + colour light,   painting, couch, table in turn

All other properties vary: room, poses, colours, exposure, left and right.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from compbench.data import rooms_scene as scene
from compbench.data.rooms_scene import NUM_POSES, NUM_ROOMS, SAMPLES, Room
from compbench.system.errors import CompbenchError

OBJECTS = ("couch", "painting", "table")
NUM_STYLES = 25
"""Number of style values in [0, 1) of a picture, in addition to its objects."""
BLOCK = 16
"""Number of pictures rendered at a time, so that their pixels stay in a core's cache."""

GROUND = ("floor", "wall", "sky", "garden", "trim")
FABRICS = (
    (176, 170, 160),
    (96, 100, 106),
    (62, 84, 112),
    (146, 84, 62),
    (92, 112, 88),
    (202, 188, 164),
    (128, 62, 70),
    (52, 54, 60),
)
WOODS = ((124, 82, 50), (168, 120, 76), (82, 56, 40), (194, 160, 118), (58, 50, 46), (216, 212, 204))
FLOORS = ((176, 128, 84), (150, 104, 68), (196, 156, 112), (128, 92, 66))
FRAMES = ((40, 36, 34), (150, 118, 62), (112, 74, 48), (232, 228, 220))


class RoomsRenderer:
    """Renders rooms.

    Args:
        side: pixels of a side.
        device: where the buffers live and images come out.
        progress: called as progress(done, NUM_ROOMS) while they are traced (some seconds on one core at 64 pixels).
    """

    def __init__(
        self, *, side: int = 64, device: str | torch.device = "cpu", progress: Callable[[int, int], None] | None = None
    ) -> None:
        pixels = side * side
        made = {
            "ground": torch.empty(NUM_ROOMS, len(GROUND), pixels, dtype=torch.uint8),
            "couch": torch.empty(NUM_ROOMS, NUM_POSES, 3, pixels, dtype=torch.uint8),
            "table": torch.empty(NUM_ROOMS, NUM_POSES, 3, pixels, dtype=torch.uint8),
            "painting": torch.empty(NUM_ROOMS, NUM_POSES, 4, pixels, dtype=torch.uint8),
        }
        for number, room in enumerate(scene.rooms()):
            direction = scene.rays(room, side)
            points, plane = scene.walls(room, direction)
            made["ground"][number] = _bytes(ground(room, points, plane))
            for pose in range(NUM_POSES):
                for name, boxes in (("couch", scene.couch(room, pose)), ("table", scene.table(room, pose))):
                    met, shade = scene.boxes_hit(boxes, room, direction)
                    dark = scene.shadow(boxes, room, points, plane)
                    made[name][number, pose] = _bytes(torch.stack([met.float(), shade, dark]))
                made["painting"][number, pose] = _bytes(canvas(room, pose, points, plane))
            if progress is not None:
                progress(number + 1, NUM_ROOMS)
        self._install(made, torch.device(device))

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor], *, device: str | torch.device = "cpu") -> RoomsRenderer:
        """A renderer with the buffers of `buffers()`.  Raises CompbenchError for other tensors."""
        layers = {"couch": 3, "table": 3, "painting": 4}
        pixels = buffers["ground"].shape[-1] if "ground" in buffers else 0
        expected: dict[str, tuple[int, ...]] = {"ground": (NUM_ROOMS, len(GROUND), pixels)}
        expected |= {name: (NUM_ROOMS, NUM_POSES, count, pixels) for name, count in layers.items()}
        found = {name: tuple(tensor.shape) for name, tensor in buffers.items()}
        if found != expected or math.isqrt(pixels) ** 2 != pixels:
            raise CompbenchError(f"these are not buffers of rooms: {found}.")
        renderer = cls.__new__(cls)
        renderer._install(buffers, torch.device(device))
        return renderer

    def buffers(self) -> dict[str, Tensor]:
        """The traced buffers, uint8."""
        return self._buffers

    def _install(self, buffers: dict[str, Tensor], device: torch.device) -> None:
        self.device = device
        self._buffers = {name: tensor.to(device) for name, tensor in buffers.items()}
        self.side = math.isqrt(self._buffers["ground"].shape[-1])

    def __call__(self, objects: Tensor, styles: Tensor) -> Tensor:
        """Images of rooms.

        Args:
            objects: which of `OBJECTS` stand there, LongTensor (B, 3) of 0 and 1.
            styles: everything else, (B, NUM_STYLES) in [0, 1); see `random_styles`.

        Returns:
            uint8 (B, 3, side, side) on the renderer's device.

        Raises:
            CompbenchError: another shape, or a value out of range.
        """
        if objects.ndim != 2 or objects.shape[1] != len(OBJECTS) or styles.shape != (len(objects), NUM_STYLES):
            raise CompbenchError(
                f"rooms must be objects (B, {len(OBJECTS)}) and styles (B, {NUM_STYLES}), "
                f"got {tuple(objects.shape)} and {tuple(styles.shape)}."
            )
        if bool(((objects != 0) & (objects != 1)).any()) or bool(((styles < 0) | (styles >= 1)).any()):
            raise CompbenchError("objects of rooms must lie in 0 ... 1 and styles in [0, 1).")
        objects, styles = objects.to(self.device).bool(), styles.to(self.device)
        blocks = [self._block(*pair) for pair in zip(objects.split(BLOCK), styles.split(BLOCK), strict=True)]
        return torch.cat(blocks) if blocks else torch.empty(0, 3, self.side, self.side, dtype=torch.uint8)

    def _block(self, objects: Tensor, styles: Tensor) -> Tensor:
        room = (styles[:, 0] * NUM_ROOMS).long()
        light = self._buffers["ground"][room].float()  # (B, M, P)
        image = torch.bmm(ground_colours(styles).mT, light).div_(255)  # (B, 3, P)
        for name, position in (("painting", 1), ("couch", 0), ("table", 2)):
            rows = objects[:, position].nonzero()[:, 0]
            if len(rows):
                pose = (styles[rows, 1 + position] * NUM_POSES).long()
                layers = self._buffers[name][room[rows], pose].float().div_(255)  # (N, L, P)
                whole = len(rows) == len(objects)
                paint = _hang if name == "painting" else _place
                below = paint(image if whole else image[rows], layers, styles[rows], position)
                image = below if whole else image.index_copy_(0, rows, below)
        image = image.mul_((0.82 + 0.3 * styles[:, 4])[:, None, None]).add_(0.5).clamp_(0, 255)
        image = image.to(torch.uint8).view(-1, 3, self.side, self.side)
        mirrored = (styles[:, 5] < 0.5)[:, None, None, None]
        return torch.where(mirrored, image.flip(3), image)


def random_styles(count: int, generator: Generator) -> Tensor:
    """Styles of `count` pictures, uniform in [0, 1), (count, NUM_STYLES)."""
    return torch.rand(count, NUM_STYLES, generator=generator)


def ground(room: Room, points: Tensor, plane: Tensor) -> Tensor:
    """The light of each material of an empty room at points (R, 3) of its planes (R,), (M, R): floor, wall, sky, garden, trim."""
    side, first, last, sill, top = room.window
    x, y, z = points.unbind(1)
    wall = room.left if side < 0 else room.right
    in_wall = plane == (0 if side < 0 else 1)
    opening = in_wall & (y > first) & (y < last) & (z > sill) & (z < top)
    bars = opening & (((y - (first + last) / 2).abs() < 0.04) | ((z - top).abs() < 0.06) | ((z - sill).abs() < 0.06))
    glass = opening & ~bars
    high = glass & (z > sill + 0.35 * (top - sill))
    away = (x - wall).abs()
    falls_from = y - 0.25 * away, z + scene.SUN_HEIGHT * away  # where the sun's ray to this point crossed the window's wall
    sunny = (falls_from[0] > first) & (falls_from[0] < last) & (falls_from[1] > sill) & (falls_from[1] < top) & ~in_wall
    floor, ceiling = plane == 3, plane == 4
    boards = 0.9 + 0.1 * ((x * 7).floor() * 0.618 % 1) - 0.12 * ((x * 7 % 1) < 0.06).float()
    fade = torch.exp(-away / 3.5)
    lit = 0.50 + 0.2 * fade + 0.28 * sunny.float()
    level = torch.where(plane == 2, 0.80, torch.where(ceiling, 0.86, 0.72))
    corner = torch.minimum(torch.minimum(x - room.left, room.right - x), torch.minimum(room.depth - y, room.height - z))
    level = level - 0.12 * torch.exp(-corner.clamp(min=0) / 0.25)
    board = ~floor & ~ceiling & (z < 0.12)
    solid = ~floor & ~glass & ~bars & ~board
    return torch.stack(
        [
            floor * boards * lit,
            solid * (level + 0.12 * fade + 0.12 * sunny.float()).clamp(max=1),
            high.float(),
            (glass & ~high).float(),
            (bars | board) * 0.92,
        ]
    )


def canvas(room: Room, pose: int, points: Tensor, plane: Tensor) -> Tensor:
    """Coverage of a painting's frame, of its picture's upper and lower part and of a disc in it, (4, R)."""
    left, right, bottom, top, breadth, horizon = scene.painting(room, pose)
    x, _, z = points.unbind(1)
    back = plane == 2
    whole = back & (x > left) & (x < right) & (z > bottom) & (z < top)
    inner = whole & (x > left + breadth) & (x < right - breadth) & (z > bottom + breadth) & (z < top - breadth)
    across, up = (x - left) / (right - left), (z - bottom) / (top - bottom)
    above = up > horizon + 0.08 * torch.sin(9 * across + pose)
    disc = inner & (((across - 0.35 - 0.3 * (pose % 3) / 2) ** 2 + ((up - 0.62) * (top - bottom) / (right - left)) ** 2) < 0.018)
    return torch.stack([whole & ~inner, inner & above & ~disc, inner & ~above & ~disc, disc]).float()


def ground_colours(styles: Tensor) -> Tensor:
    """Colours of floor, wall, sky, garden and trim, (B, M, 3)."""
    pick = (styles[:, 6] * len(FLOORS)).long()
    floor = torch.tensor(FLOORS, device=styles.device).float()[pick] * (1.1 + 0.3 * styles[:, 7:8])
    wall = 238 + 14 * (styles[:, 8:11] - 0.5)
    sky = torch.stack([200 + 50 * styles[:, 11], 224 + 26 * styles[:, 11], torch.full_like(styles[:, 11], 252)], 1)
    garden = torch.stack([90 + 70 * styles[:, 12], 130 + 50 * styles[:, 13], 70 + 40 * styles[:, 12]], 1)
    return torch.stack([floor, wall, sky, garden, torch.full_like(wall, 244)], 1)


def _place(image: Tensor, layers: Tensor, styles: Tensor, position: int) -> Tensor:
    """The image with furniture in front: first its shadow on the floor, then the furniture, (N, 3, P)."""
    palette = torch.tensor(FABRICS if position == 0 else WOODS, device=image.device).float()
    u = styles[:, 14 + 2 * position : 16 + 2 * position]
    colour = palette[(u[:, 0] * len(palette)).long()] * (0.8 + 0.4 * u[:, 1:])
    coverage, shade, dark = layers[:, None].unbind(2)  # (N, 1, P)
    return torch.addcmul(image * ((1 - dark) * (1 - coverage)), colour[:, :, None], shade)


def _hang(image: Tensor, layers: Tensor, styles: Tensor, position: int) -> Tensor:
    """A painting on the wall, (N, 3, P): frame, upper and lower part, disc."""
    frame = torch.tensor(FRAMES, device=image.device).float()[(styles[:, 16] * len(FRAMES)).long()]
    art = torch.stack([60 + 180 * styles[:, 17:20], 30 + 160 * styles[:, 20:23].flip(1), 90 + 160 * styles[:, 19:22]], 2)
    colours = torch.cat([frame[:, :, None], art], 2)  # (N, 3, 4)
    return torch.baddbmm(image * (1 - layers.sum(1, keepdim=True)), colours, layers)


def _bytes(layers: Tensor) -> Tensor:
    """Light of rays (L, R) in [0, 1] as bytes of pixels, (L, P)."""
    return (layers.clamp(0, 1).view(len(layers), -1, SAMPLES**2).mean(-1) * 255).round().to(torch.uint8)
