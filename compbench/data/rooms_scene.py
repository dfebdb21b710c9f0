"""The geometry of the embedded rooms: a wide-angle camera in a living room, and the points where rays meet objects.

Lengths are in metres; x points right, y away from the camera, z up; the camera is at (0, 0, eye).  Each of `NUM_ROOMS` rooms has
`NUM_POSES` poses of a couch at the back wall, of a painting on it, and of a coffee table in front of the couch's place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

NUM_ROOMS, NUM_POSES = 12, 24
SAMPLES = 2
"""Rays per pixel and axis."""
SUN_HEIGHT = 0.9
"""The sun's rise per metre away from the window's wall."""
LAMP = (-0.45, -0.60, 0.66)
"""Direction towards the light that shades furniture: right, away, up."""
AMBIENT = 0.42
FAR = 1e9


class Room(NamedTuple):
    """One empty room.

    Attributes:
        left, right, depth, height: planes of the walls, the back wall and the ceiling.
        eye, focal, yaw: the camera's height, focal length over the image's side, and turn to the right in radians.
        window: side (-1 left, 1 right), first and last place along the wall, sill and top.
    """

    left: float
    right: float
    depth: float
    height: float
    eye: float
    focal: float
    yaw: float
    window: tuple[float, float, float, float, float]


class Box(NamedTuple):
    """An axis-parallel box, and its brightness relative to its neighbours."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]
    light: float = 1.0


def rooms() -> list[Room]:
    """The rooms, always the same."""
    generator = Generator().manual_seed(61)
    return [_room(torch.rand(12, generator=generator).tolist()) for _ in range(NUM_ROOMS)]


def _room(u: list[float]) -> Room:
    depth = 4.2 + 0.7 * u[2]
    first = 2.0 + 0.4 * u[8]
    side = -1.0 if u[7] < 0.5 else 1.0
    return Room(
        left=-1.8 - 0.5 * u[0],
        right=1.8 + 0.5 * u[1],
        depth=depth,
        height=2.5 + 0.4 * u[3],
        eye=1.25 + 0.3 * u[4],
        focal=0.74 + 0.12 * u[5],
        yaw=math.radians(10 * (u[6] - 0.5)),
        window=(side, first, first + 1.2 + 0.8 * u[9], 0.25 + 0.6 * u[10], 2.0 + 0.3 * u[11]),
    )


def rays(room: Room, side: int) -> Tensor:
    """Directions of `SAMPLES`^2 rays of each pixel, (side^2 SAMPLES^2, 3); the rays of one pixel follow each other."""
    offsets = (torch.arange(SAMPLES) + 0.5) / SAMPLES
    pixels = torch.arange(float(side))
    row, column, dy, dx = torch.meshgrid(pixels, pixels, offsets, offsets, indexing="ij")
    across = ((column + dx) / side - 0.5).flatten() / room.focal
    down = ((row + dy) / side - 0.5).flatten() / room.focal
    away = torch.ones_like(across)
    cos, sin = math.cos(room.yaw), math.sin(room.yaw)
    return torch.stack([cos * across + sin * away, cos * away - sin * across, -down], dim=1)


def walls(room: Room, direction: Tensor) -> tuple[Tensor, Tensor]:
    """Where rays (R, 3) leave the empty room: points (R, 3), and planes (R,): 0 left, 1 right, 2 back, 3 floor, 4 ceiling."""
    eye = torch.tensor([0.0, 0.0, room.eye])
    planes = [(0, room.left), (0, room.right), (1, room.depth), (2, 0.0), (2, room.height)]
    distance = torch.stack([_positive((offset - eye[axis]) / _away(direction[:, axis])) for axis, offset in planes])
    nearest, plane = distance.min(0)
    return eye + nearest[:, None] * direction, plane


def boxes_hit(boxes: list[Box], room: Room, direction: Tensor) -> tuple[Tensor, Tensor]:
    """(met, shade) of rays (R, 3) with the first of some boxes: bool (R,), and its light in [0, 1], (R,)."""
    eye = torch.tensor([0.0, 0.0, room.eye])
    lamp = torch.tensor(LAMP) / torch.tensor(LAMP).norm()
    nearest = torch.full((len(direction),), FAR)
    shade = torch.zeros(len(direction))
    slope = _away(direction)
    for box in boxes:
        low, high = ((torch.tensor(corner) - eye) / slope for corner in (box.low, box.high))
        entering, axis = torch.minimum(low, high).max(1)
        met = (entering < torch.maximum(low, high).amin(1)) & (entering > 0) & (entering < nearest)
        facing = -direction.gather(1, axis[:, None])[:, 0].sign() * lamp[axis]
        lit = box.light * (AMBIENT + (1 - AMBIENT) * facing.clamp(min=0))
        nearest, shade = torch.where(met, entering, nearest), torch.where(met, lit, shade)
    return nearest < FAR, shade


def couch(room: Room, pose: int) -> list[Box]:
    """A couch at the back wall: feet, seat with two or three cushions, back, arms."""
    u = _numbers("couch", pose, 8)
    width, deep, gap = 1.6 + 0.7 * u[0], 0.80 + 0.2 * u[1], 0.05 + 0.35 * u[2]
    x = _between(room.left + width / 2 + 0.15, room.right - width / 2 - 0.15, u[3])
    back = room.depth - gap
    front, left, right = back - deep, x - width / 2, x + width / 2
    seat, top, arm, thick = 0.40 + 0.05 * u[4], 0.75 + 0.2 * u[5], 0.55 + 0.12 * u[6], 0.14 + 0.1 * u[6]
    cushions = 2 if u[7] < 0.5 else 3
    step = (width - 2 * thick) / cushions
    found = [
        Box((left, front + 0.04, 0.10), (right, back, seat - 0.14), 0.75),
        Box((left + thick, back - 0.24, seat - 0.14), (right - thick, back, top), 0.95),
        Box((left, front, 0.08), (left + thick, back, arm)),
        Box((right - thick, front, 0.08), (right, back, arm)),
    ]
    for k in range(cushions):
        first = left + thick + k * step
        found.append(Box((first + 0.015, front - 0.02, seat - 0.14), (first + step - 0.015, back - 0.2, seat), 1.1))
    return found


def table(room: Room, pose: int) -> list[Box]:
    """A coffee table before the couch's place: a top, four legs, and every other time a shelf."""
    u = _numbers("table", pose, 6)
    width, deep, high = 0.85 + 0.45 * u[0], 0.42 + 0.13 * u[1], 0.36 + 0.1 * u[2]
    x = room.depth * math.tan(room.yaw) / 2 + _between(-0.6, 0.6, u[3])
    front = room.depth - 1.96 - 0.12 * u[4]
    left, right, back, leg = x - width / 2, x + width / 2, front + deep, 0.06
    found = [Box((left, front, high - 0.06), (right, back, high), 1.1)]
    found += [
        Box((a, b, 0.0), (a + leg, b + leg, high - 0.06), 0.7)
        for a in (left + 0.02, right - leg - 0.02)
        for b in (front + 0.02, back - leg - 0.02)
    ]
    if u[5] < 0.5:
        found.append(Box((left + 0.04, front + 0.04, 0.10), (right - 0.04, back - 0.04, 0.14), 0.8))
    return found


def painting(room: Room, pose: int) -> tuple[float, float, float, float, float, float]:
    """Left, right, bottom and top of a framed painting on the back wall, its frame's breadth, and its horizon in [0, 1]."""
    u = _numbers("painting", pose, 6)
    width, high = 0.9 + 0.6 * u[0], 0.65 + 0.35 * u[1]
    x = _between(room.left + width / 2 + 0.3, room.right - width / 2 - 0.3, u[2])
    bottom = 1.15 + (room.height - 0.3 - 1.15 - high) * u[3]
    return x - width / 2, x + width / 2, bottom, bottom + high, 0.06 + 0.05 * u[4], 0.3 + 0.4 * u[5]


def shadow(boxes: list[Box], room: Room, points: Tensor, plane: Tensor) -> Tensor:
    """How much of the light a piece of furniture takes from the floor, in [0, 1]: soft, widest below it, (R,)."""
    low = torch.tensor([box.low for box in boxes]).amin(0)
    high = torch.tensor([box.high for box in boxes]).amax(0)
    outside = torch.maximum(torch.maximum(low[:2] - points[:, :2], points[:, :2] - high[:2]), torch.zeros(2)).norm(dim=1)
    return torch.where(plane == 3, 0.55 * torch.exp(-outside / 0.16), torch.zeros(()))


def _numbers(kind: str, pose: int, count: int) -> list[float]:
    """The numbers of a pose, in [0, 1) and spread evenly over the poses."""
    seed = {"couch": 1, "table": 2, "painting": 3}[kind]
    order = [torch.randperm(NUM_POSES, generator=Generator().manual_seed(100 * seed + k))[pose].item() for k in range(count)]
    return [(place + 0.5) / NUM_POSES for place in order]


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


def _away(slope: Tensor) -> Tensor:
    return torch.where(slope.abs() < 1e-6, torch.full_like(slope, 1e-6), slope)


def _positive(distance: Tensor) -> Tensor:
    return torch.where(distance > 1e-4, distance, torch.full_like(distance, FAR))
