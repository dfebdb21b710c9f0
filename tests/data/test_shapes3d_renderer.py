"""The Shapes3D renderer against a second renderer that shares only its constants: distance fields, marched in float64."""

import colorsys
import math

import numpy as np
import pytest
import torch

from compbench.data import shapes3d_renderer as fast
from compbench.data import shapes3d_renderer as light
from compbench.data.shapes3d_renderer import Shapes3DRenderer, light_buffers, trace

CASES = [(4, fast.CUBE, 3), (2, fast.CYLINDER, 12), (6, fast.SPHERE, 0), (5, fast.CAPSULE, 10)]
"""scale, shape, orientation"""


@pytest.mark.parametrize("case", CASES)
def test_renderer_agrees_with_distance_marching(shapes3d: Shapes3DRenderer, case: tuple[int, int, int]) -> None:
    hues = (2, 5, 9)
    found = shapes3d(torch.tensor([[*hues, *case]]))[0].permute(1, 2, 0).numpy().astype(int)
    assert np.abs(found - _plain_image(hues, *case)).max() <= 1


@pytest.mark.parametrize(("factor", "material"), [(0, "floor"), (1, "wall"), (2, "object")])
def test_a_hue_recolours_its_material_and_no_other_pixel(shapes3d: Shapes3DRenderer, factor: int, material: str) -> None:
    first = torch.tensor([[0, 3, 6, 4, fast.CYLINDER, 5]])
    second = first.clone()
    second[0, factor] += 1
    changed = (shapes3d(first) != shapes3d(second))[0].any(0).flatten()  # (4096,)
    seen = getattr(trace(4, fast.CYLINDER, 5), material).view(4096, -1)
    assert not changed[~seen.any(1)].any()
    assert changed[seen.all(1)].float().mean() > 0.99


def test_every_ray_meets_one_material() -> None:
    surface = trace(7, fast.CAPSULE, 14)
    total = sum(getattr(surface, name).int() for name in ("floor", "wall", "object", "sky"))
    assert torch.equal(total, torch.ones_like(total))


def test_tracing_twice_gives_the_same_bits() -> None:
    assert torch.equal(light_buffers(3, fast.CUBE, 9), light_buffers(3, fast.CUBE, 9))


def test_an_image_alone_is_the_image_in_a_large_batch(shapes3d: Shapes3DRenderer) -> None:
    generator = torch.Generator().manual_seed(1)
    conditions = torch.stack([torch.randint(size, (100,), generator=generator) for size in fast.SIZES], dim=1)
    alone = torch.cat([shapes3d(condition[None]) for condition in conditions])
    assert torch.equal(shapes3d(conditions), alone)


def _plain_image(hues: tuple[int, int, int], scale: int, shape: int, orientation: int) -> np.ndarray:
    """One image, ray by ray: march to the object, else meet the room; light times hue; mean over each pixel's rays."""
    angle = math.radians(-30 + orientation * 60 / 14)
    right = np.array([math.cos(angle), math.sin(angle), 0])
    away = np.array([-math.sin(angle), math.cos(angle), 0])
    up = np.array([0.0, 0.0, 1.0])
    eye = -fast.EYE_RADIUS * away + fast.EYE_HEIGHT * up
    steps = (np.arange(64 * fast.SAMPLES) + 0.5) / fast.SAMPLES - 32  # pixels from the middle of the image
    down, column = (grid.ravel() for grid in np.meshgrid(steps, steps, indexing="ij"))
    rays = away + column[:, None] / fast.FOCAL * right - down[:, None] / fast.FOCAL * up
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)

    size = 0.75 + 0.5 * scale / 7
    met, distance = _march(shape, size, np.broadcast_to(eye, rays.shape), rays)
    normal = _gradient(shape, size, eye + rays * distance[:, None])
    seen_normal = np.stack([normal @ right, normal @ away, normal @ up], axis=1)
    view = np.stack([column / 32, down / 32, np.full_like(down, math.degrees(angle) / 30)], axis=1)

    colours = [np.array(colorsys.hsv_to_rgb(hue / 10, 1, 1)) for hue in hues]
    out = np.tile(np.array(fast.SKY), (len(rays), 1))
    planes = [(1, fast.ROOM_HALF), (0, fast.ROOM_HALF), (0, -fast.ROOM_HALF)]  # back, right, left
    with np.errstate(divide="ignore"):
        walls = np.stack([(place - eye[axis]) / rays[:, axis] for axis, place in planes])
        ground = np.where(rays[:, 2] < 0, -eye[2] / rays[:, 2], np.inf)
    walls[walls <= 0] = np.inf
    wall = walls.min(axis=0)
    for index, coefficients in enumerate(light.WALL):
        mask = (walls.argmin(axis=0) == index) & (eye[2] + rays[:, 2] * wall <= fast.WALL_HEIGHT)
        out[mask] = np.clip(_quadratic(view[mask], coefficients), 0, 2)[:, None] * colours[1]
    floor = ~met & (ground < wall)
    brightness = np.clip(_quadratic(view[floor], light.FLOOR), 0, 2)
    lamp = np.array(fast.LAMP) / np.linalg.norm(fast.LAMP)
    points = eye + rays[floor] * ground[floor, None]
    brightness[_march(shape, size, points, np.broadcast_to(lamp, points.shape))[0]] = light.SHADOW
    out[floor] = brightness[:, None] * colours[0]
    strength, exponent, *direction = light.HIGHLIGHT
    towards = np.array(direction) / np.linalg.norm(direction)
    shine = strength * np.maximum(seen_normal @ towards, 0) ** exponent
    out[met] = (np.clip(_quadratic(seen_normal, light.OBJECT), 0, 2)[:, None] * colours[2] + shine[:, None])[met]
    rays_of_a_pixel = out.reshape(64, fast.SAMPLES, 64, fast.SAMPLES, 3)
    return np.clip(rays_of_a_pixel.mean(axis=(1, 3)) * 255 + 0.5, 0, 255).astype(int)


def _quadratic(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    constant, linear = coefficients[0], np.array(coefficients[1:4])
    xx, yy, zz, xy, xz, yz = coefficients[4:]
    matrix = np.array([[xx, xy / 2, xz / 2], [xy / 2, yy, yz / 2], [xz / 2, yz / 2, zz]])
    return constant + x @ linear + np.einsum("ri,ij,rj->r", x, matrix, x)


def _march(shape: int, size: float, origin: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step each ray by its distance to the object until that vanishes: which rays met it (R,), and how far (R,)."""
    travelled, gap = np.zeros(len(rays)), np.full(len(rays), np.inf)
    for _ in range(2000):
        going = np.flatnonzero((gap > 1e-7) & (travelled < 6))
        if len(going) == 0:
            break
        gap[going] = _distance(shape, size, origin[going] + rays[going] * travelled[going, None])
        travelled[going] += np.maximum(gap[going], 0)
    return gap <= 1e-7, travelled


def _distance(shape: int, size: float, point: np.ndarray) -> np.ndarray:
    """Signed distance to the object standing on the floor at the centre."""
    x, y, z = point.T
    if shape == fast.CUBE:
        half = size * fast.CUBE_SIDE / 2
        beyond = np.stack([abs(x), abs(y), abs(z - half)], axis=1) - half
    elif shape == fast.CYLINDER:
        half = size * fast.CYLINDER_HEIGHT / 2
        beyond = np.stack([np.hypot(x, y) - size * fast.CYLINDER_RADIUS, abs(z - half) - half], axis=1)
    else:
        radius = size * (fast.SPHERE_RADIUS if shape == fast.SPHERE else fast.CAPSULE_RADIUS)
        straight = 0.0 if shape == fast.SPHERE else size * fast.CAPSULE_STRAIGHT
        return np.linalg.norm(np.stack([x, y, z - np.clip(z, radius, radius + straight)]), axis=0) - radius
    return np.linalg.norm(np.maximum(beyond, 0), axis=1) + np.minimum(beyond.max(axis=1), 0)


def _gradient(shape: int, size: float, point: np.ndarray) -> np.ndarray:
    """Unit normal, by central differences of the distance."""
    slopes = [_distance(shape, size, point + step) - _distance(shape, size, point - step) for step in 1e-5 * np.eye(3)]
    return np.stack(slopes, axis=1) / np.maximum(np.linalg.norm(slopes, axis=0), 1e-12)[:, None]
