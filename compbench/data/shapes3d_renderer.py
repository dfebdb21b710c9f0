"""The embedded Shapes3D: an analytic ray-caster on the dataset's lattice.

Geometry depends on (scale, shape, orientation) alone, 480 cases; hues only recolour materials.  So an image is

    image = sum_m colour_m(condition) * light_m(case),        m in floor, wall, object, sky, highlight,

with 480 buffers light (5, 64, 64) kept on the device: any batch of images is one small batched matrix product.
Geometry and hues follow the protocol (fitted to real images by the project); the light on each surface is a quadratic
fitted to the 25 real images of the dataset's own notebook (`experiments/fit_shapes3d_light.py` prints the coefficients).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from compbench.data.lattices import checked
from compbench.system.errors import CompbenchError

FLOOR = (0.348, -0.285, 2.05, 0.195, -0.035, -1.416, 0.005, 0.143, 0.035, -0.294)
WALL = (
    (1.038, -0.066, 0.051, 0.032, -0.015, 0.034, -0.1, -0.001, 0.044, -0.013),
    (0.49, -0.272, 0.052, -0.206, 0.218, 0.089, 0.055, 0.013, -0.025, -0.023),
    (0.178, -0.07, 0.154, 0.597, 0.157, 0.004, -0.053, 0.092, 0.12, -0.059),
)
OBJECT = (0.663, -0.24, -0.287, 0.474, -0.071, -0.006, 0.078, -0.227, -0.177, 0.41)
"""Brightness of each surface: quadratics in the order of `monomials`, of (column, row, camera angle) for floor and walls (back,
right, left), of the normal in the camera's frame for the object.  1 is the pure hue; above 1 it is clipped."""
SHADOW = 0.341
HIGHLIGHT = (0.2, 30.0, -0.35, -0.75, 0.55)
"""Strength, exponent and direction (right, away, up in the camera's frame) of the grey highlight."""

SIZES = (10, 10, 10, 8, 4, 15)
"""floor hue, wall hue, object hue, scale, shape, orientation"""
SIDE = 64
SAMPLES = 3
"""Rays per pixel and axis."""

FOCAL = 68.6
"""Focal length in pixels, for a vertical field of view of 50 degrees."""
EYE_HEIGHT, EYE_RADIUS = 0.75, 2.5
ROOM_HALF, WALL_HEIGHT = 3.5, 2.0
SKY = (153 / 255, 226 / 255, 249 / 255)
LAMP = (-0.28, 0.07, 1.0)
"""Direction towards the second light, which casts the shadow: right, away, up at orientation 0."""

CUBE_SIDE, CYLINDER_RADIUS, CYLINDER_HEIGHT = 0.70, 0.35, 0.70
SPHERE_RADIUS, CAPSULE_RADIUS, CAPSULE_STRAIGHT = 0.42, 0.33, 0.64
CUBE, CYLINDER, SPHERE, CAPSULE = range(4)
FAR = 1e9


class Hit(NamedTuple):
    """Where rays meet a surface: distance (R,), FAR if a ray misses; unit normals (R, 3)."""

    distance: Tensor
    normal: Tensor


class Surface(NamedTuple):
    """The surface that each ray of a case hits: masks (R,), and the coordinates that its light depends on.

    Attributes:
        floor, wall, object, sky: which material it is; exactly one is true.
        shadow: whether a floor point is hidden from the lamp.
        normal: object's normal in the camera's frame (right, away, up), (R, 3).
        place: position on the floor or wall and view angle, normalised to about [-1, 1], (R, 3).
        facing: plane of the room that the ray meets: 0 back, 1 right, 2 left wall, 3 floor, 4 none (the object).
    """

    floor: Tensor
    wall: Tensor
    object: Tensor
    sky: Tensor
    shadow: Tensor
    normal: Tensor
    place: Tensor
    facing: Tensor


class Shapes3DRenderer:
    """Renders Shapes3D combinations.

    Args:
        device: where the 480 buffers (20 MB) live and images come out.
        progress: called as progress(done, 480) while the buffers are built (some seconds on one core).
    """

    def __init__(self, *, device: str | torch.device = "cpu", progress: Callable[[int, int], None] | None = None) -> None:
        self.device = torch.device(device)
        buffers = torch.empty(480, 5, SIDE * SIDE, dtype=torch.float16)
        for orientation in range(15):
            for scale in range(8):
                for shape in range(4):
                    case = (scale * 4 + shape) * 15 + orientation
                    buffers[case] = light_buffers(scale, shape, orientation).half()
            if progress is not None:
                progress(32 * (orientation + 1), 480)
        self._install(buffers)

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor], *, device: str | torch.device = "cpu") -> Shapes3DRenderer:
        """A renderer with the buffers of `buffers()`."""
        light = buffers.get("light", torch.empty(0))
        if tuple(light.shape) != (480, 5, SIDE * SIDE) or light.dtype != torch.float16:
            raise CompbenchError(f"Shapes3D buffers must be float16 (480, 5, 4096), got {light.dtype} {tuple(light.shape)}.")
        renderer = cls.__new__(cls)
        renderer.device = torch.device(device)
        renderer._install(light)
        return renderer

    def buffers(self) -> dict[str, Tensor]:
        """The traced buffers: "light", (480, 5, 4096) float16."""
        return {"light": self._light}

    def _install(self, buffers: Tensor) -> None:
        self._light = buffers.to(self.device)
        self._hues = torch.tensor([hue_colour(index / 10) for index in range(10)], device=self.device)  # (10, 3)
        self._fixed = torch.tensor([SKY, (1.0, 1.0, 1.0)], device=self.device).T  # (3, 2)

    def __call__(self, conditions: Tensor) -> Tensor:
        """Images of combinations.

        Args:
            conditions: LongTensor (B, 6) in the order of `SIZES`.

        Returns:
            uint8 (B, 3, 64, 64) on the renderer's device.

        Raises:
            CompbenchError: a value out of range, or the wrong number of factors.
        """
        c = checked("Shapes3D", conditions, SIZES, self.device)
        case = (c[:, 3] * 4 + c[:, 4]) * 15 + c[:, 5]  # (B,)
        light = self._light[case].float()  # (B, 5, 4096)
        hues = self._hues[c[:, :3]].transpose(1, 2)  # (B, 3, material)
        colours = torch.cat([hues, self._fixed.expand(len(c), 3, 2)], dim=2)  # (B, 3, 5)
        image = torch.bmm(colours, light).mul_(255).add_(0.5).clamp_(0, 255)  # (B, 3, 4096)
        return image.to(torch.uint8).view(-1, 3, SIDE, SIDE)


def hue_colour(hue: float) -> tuple[float, float, float]:
    """RGB in [0, 1] of a hue at full saturation and value."""
    import colorsys

    return colorsys.hsv_to_rgb(hue, 1.0, 1.0)


def light_buffers(scale: int, shape: int, orientation: int) -> Tensor:
    """Light of one case: for each material, a pixel's mean over rays of brightness, 0 if it is not seen, (5, 4096) float32."""
    surface = trace(scale, shape, orientation)
    floor_light = torch.where(surface.shadow, torch.tensor(SHADOW), quadratic(surface.place, FLOOR))
    wall_light = wall_brightness(surface)
    object_light = quadratic(surface.normal, OBJECT)
    shine = HIGHLIGHT[0] * (surface.normal @ _unit(torch.tensor(HIGHLIGHT[2:]))).clamp(min=0) ** HIGHLIGHT[1]
    layers = torch.stack(
        [
            surface.floor * floor_light,
            surface.wall * wall_light,
            surface.object * object_light,
            surface.sky.float(),
            surface.object * shine,
        ]
    )
    return layers.clamp(0, 2).view(5, SIDE * SIDE, SAMPLES * SAMPLES).mean(-1)


def wall_brightness(surface: Surface) -> Tensor:
    """Brightness of walls: one quadratic of place for each wall that can be seen (back, right, left)."""
    back, right, left = (quadratic(surface.place, coefficients) for coefficients in WALL)
    return torch.where(surface.facing == 0, back, torch.where(surface.facing == 1, right, left))


def quadratic(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """a + b.x + x'Cx for x (R, 3), with the ten coefficients in the order of `monomials`."""
    return monomials(x) @ torch.tensor(coefficients)


def monomials(x: Tensor) -> Tensor:
    """1, the three coordinates and their six products, (R, 10)."""
    a, b, c = x.unbind(-1)
    return torch.stack([torch.ones_like(a), a, b, c, a * a, b * b, c * c, a * b, a * c, b * c], dim=-1)


def trace(scale: int, shape: int, orientation: int) -> Surface:
    """Cast the rays of one case.  World: x right, y away, z up; the room is centred on the origin, floor at z = 0."""
    angle = math.radians(-30 + orientation * 60 / 14)
    sine, cosine = math.sin(angle), math.cos(angle)
    eye = torch.tensor([EYE_RADIUS * sine, -EYE_RADIUS * cosine, EYE_HEIGHT])
    frame = torch.tensor([[cosine, sine, 0.0], [-sine, cosine, 0.0], [0.0, 0.0, 1.0]])  # rows: right, away, up
    local = _pixel_rays()  # (R, 3) in the camera's frame
    rays = local @ frame  # (R, 3) in the world
    size = 0.75 + 0.5 * scale / 7
    hit = intersect(shape, size, eye.expand_as(rays), rays)
    room, point, facing = _room(eye, rays)
    is_object = hit.distance < room
    floor = ~is_object & (facing == 3)
    sky = ~is_object & (facing < 3) & (point[:, 2] > WALL_HEIGHT)
    wall = ~is_object & (facing < 3) & ~sky
    lamp = _unit(torch.tensor(LAMP))
    shadow = floor & (intersect(shape, size, point, lamp.expand_as(rays)).distance < FAR)
    facing = facing.where(~is_object, torch.full_like(facing, 4))
    return Surface(floor, wall, is_object, sky, shadow, hit.normal @ frame.T, _place(local, facing, angle), facing)


def _place(local: Tensor, facing: Tensor, angle: float) -> Tensor:
    """Column, row and camera angle of each ray, normalised to [-1, 1]: what the fitted light depends on."""
    column = local[:, 0] / local[:, 1] * FOCAL / 32
    row = -local[:, 2] / local[:, 1] * FOCAL / 32
    return torch.stack([column, row, torch.full_like(row, math.degrees(angle) / 30)], dim=-1)


def _pixel_rays() -> Tensor:
    """Unit rays through SAMPLES x SAMPLES points of every pixel, (4096 * SAMPLES^2, 3), pixel by pixel."""
    offsets = (torch.arange(SAMPLES) + 0.5) / SAMPLES
    pixels = torch.arange(float(SIDE))
    row, column, dy, dx = torch.meshgrid(pixels, pixels, offsets, offsets, indexing="ij")
    right = (column + dx - SIDE / 2) / FOCAL
    up = -(row + dy - SIDE / 2) / FOCAL
    return _unit(torch.stack([right, torch.ones_like(right), up], dim=-1).reshape(-1, 3))


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm(dim=-1, keepdim=True)


def _room(eye: Tensor, rays: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distance to the room, the point met, and which plane it is: 0 back, 1 right, 2 left wall, 3 floor, 4 none (the object)."""
    safe = torch.where(rays.abs() < 1e-9, torch.full_like(rays, 1e-9), rays)
    candidates = torch.stack(
        [
            (ROOM_HALF - eye[1]) / safe[:, 1],
            (ROOM_HALF - eye[0]) / safe[:, 0],
            (-ROOM_HALF - eye[0]) / safe[:, 0],
            -eye[2] / safe[:, 2],
        ]
    )  # (4, R)
    candidates = torch.where(candidates > 0, candidates, torch.full_like(candidates, FAR))
    distance, facing = candidates.min(dim=0)
    return distance, eye + rays * distance[:, None], facing


def intersect(shape: int, size: float, origin: Tensor, rays: Tensor) -> Hit:
    """Nearest intersection in front of `origin` (R, 3) along `rays` (R, 3) with the object at the centre."""
    if shape == CUBE:
        return _box(size * CUBE_SIDE, origin, rays)
    if shape == SPHERE:
        return _sphere(size * SPHERE_RADIUS, size * SPHERE_RADIUS, origin, rays)
    if shape == CYLINDER:
        radius, height = size * CYLINDER_RADIUS, size * CYLINDER_HEIGHT
        return _nearest(_tube(radius, 0.0, height, origin, rays), _lid(radius, height, origin, rays))
    radius, straight = size * CAPSULE_RADIUS, size * CAPSULE_STRAIGHT
    ends = _nearest(_sphere(radius, radius, origin, rays), _sphere(radius, radius + straight, origin, rays))
    return _nearest(_tube(radius, radius, radius + straight, origin, rays), ends)


def _nearest(a: Hit, b: Hit) -> Hit:
    first = (a.distance <= b.distance)[:, None]
    return Hit(torch.minimum(a.distance, b.distance), torch.where(first, a.normal, b.normal))


def _box(side: float, origin: Tensor, rays: Tensor) -> Hit:
    low = torch.tensor([-side / 2, -side / 2, 0.0])
    high = torch.tensor([side / 2, side / 2, side])
    safe = torch.where(rays.abs() < 1e-9, torch.full_like(rays, 1e-9), rays)
    one, two = (low - origin) / safe, (high - origin) / safe  # (R, 3)
    near, axis = torch.minimum(one, two).max(dim=-1)
    far = torch.maximum(one, two).min(dim=-1).values
    missed = (near > far) | (near <= 1e-6)
    normal = -torch.nn.functional.one_hot(axis, 3) * safe.sign()
    return Hit(torch.where(missed, torch.full_like(near, FAR), near), normal.float())


def _sphere(radius: float, height: float, origin: Tensor, rays: Tensor) -> Hit:
    offset = origin - torch.tensor([0.0, 0.0, height])
    half = (offset * rays).sum(-1)
    root = half.square() - offset.square().sum(-1) + radius**2
    distance = -half - root.clamp(min=0).sqrt()
    missed = (root < 0) | (distance <= 1e-6)
    normal = (offset + rays * distance[:, None]) / radius
    return Hit(torch.where(missed, torch.full_like(distance, FAR), distance), normal)


def _tube(radius: float, bottom: float, top: float, origin: Tensor, rays: Tensor) -> Hit:
    flat, base = rays[:, :2], origin[:, :2]
    a = flat.square().sum(-1).clamp(min=1e-12)
    half = (flat * base).sum(-1)
    root = half.square() - a * (base.square().sum(-1) - radius**2)
    distance = (-half - root.clamp(min=0).sqrt()) / a
    point = origin + rays * distance[:, None]
    missed = (root < 0) | (distance <= 1e-6) | (point[:, 2] < bottom) | (point[:, 2] > top)
    normal = torch.cat([point[:, :2] / radius, torch.zeros_like(point[:, :1])], dim=-1)
    return Hit(torch.where(missed, torch.full_like(distance, FAR), distance), normal)


def _lid(radius: float, height: float, origin: Tensor, rays: Tensor) -> Hit:
    safe = torch.where(rays[:, 2].abs() < 1e-9, torch.full_like(rays[:, 2], 1e-9), rays[:, 2])
    distance = (height - origin[:, 2]) / safe
    point = origin + rays * distance[:, None]
    missed = (distance <= 1e-6) | (point[:, :2].square().sum(-1) > radius**2)
    normal = torch.tensor([0.0, 0.0, 1.0]).expand_as(rays)
    return Hit(torch.where(missed, torch.full_like(distance, FAR), distance), normal)
