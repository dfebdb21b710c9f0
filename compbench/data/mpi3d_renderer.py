"""The embedded MPI3D: a two-joint arm on a dark table, with the object at its tip and a coloured arc behind.

An orthographic camera with three pitches sees the scene; lengths are in pixels.  Everything that depends only on geometry is
traced once and kept as bytes: the arm's coverage for each (camera, horizontal, vertical), 4,800 cases, and the object's coverage
and shade in a window of 16 x 16 for each (shape, size, camera, horizontal, vertical), 57,600 sprites.  Colours only multiply, so
an image costs a few multiply-adds per pixel:

    image = ((background (1 - arm) + ARM arm) (1 - object) + colour shade object
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from compbench.data.lattices import checked
from compbench.system.errors import CompbenchError

SIZES = (6, 6, 2, 3, 3, 40, 40)
"""object colour, object shape, object size, camera height, background colour, horizontal axis, vertical axis"""
SIDE, WINDOW, SAMPLES = 64, 16, 2

COLOURS = ((220, 220, 220), (39, 153, 38), (208, 0, 0), (40, 105, 202), (82, 51, 34), (118, 117, 47))
"""Colours of the lit side of white, green, red, blue, brown and olive objects."""
ARCS = ((90, 68, 128), (64, 88, 85), (97, 69, 77))
"""Purple, sea green, salmon."""
ARM, BACKDROP, TABLE = (18.0, 20.0, 19.0), (20.0, 26.0, 24.0), (42.0, 49.0, 46.0)

PITCH = (38.0, 24.0, 10.0)
"""Degrees that the top, centre and bottom cameras look down."""
BASE_ROW = (42.0, 45.0, 51.0)
ARC_TOP, ARC_RADIUS, ARC_WIDTH = (12.0, 20.0, 31.0), (52.0, 72.0, 120.0), 4.0
CENTRE = 31.5
POST_HEIGHT, POST_HALF, LINK = 18.0, 2.6, 19.0
SHOULDER_HALF, LINK_HALF = 1.6, 0.8
TURN = (-100.0, 100.0)
"""Degrees of the arm's azimuth at both ends of the horizontal axis; 0 points to the right."""
TILT = (-62.0, 100.0)
"""Degrees between the second link and the vertical at both ends of the vertical axis."""
SPIN = 25.0
"""Degrees that the object is turned about the link."""
RADIUS = (3.75, 5.75)
LAMP = (0.40, -0.75, 0.52)
"""Direction towards the light: right, away from the camera, up."""
AMBIENT = 0.16
CONE, CUBE, CYLINDER, HEXAGONAL, PYRAMID, SPHERE = range(6)


class MPI3DRenderer:
    """Renders MPI3D combinations.

    Args:
        device: where the buffers (50 MB) live and images come out.
        progress: called as progress(done, 120) while they are traced (some seconds on one core).
    """

    def __init__(self, *, device: str | torch.device = "cpu", progress: Callable[[int, int], None] | None = None) -> None:
        arms = torch.empty(3, 40, 40, SIDE * SIDE, dtype=torch.uint8)
        sprites = torch.empty(6, 2, 3, 40, 40, 2, WINDOW * WINDOW, dtype=torch.uint8)
        for camera in range(3):
            for horizontal in range(40):
                tips = tip(torch.tensor(horizontal), torch.arange(40))  # (40, 3)
                arms[camera, horizontal] = (arm_coverage(camera, tips) * 255).round().to(torch.uint8)
                for shape in range(6):
                    for size in range(2):
                        layers = object_layers(shape, size, camera, horizontal)  # (40, 2, W)
                        sprites[shape, size, camera, horizontal] = (layers * 255).round().to(torch.uint8)
                if progress is not None:
                    progress(camera * 40 + horizontal + 1, 120)
        self._install({"arms": arms, "sprites": sprites}, torch.device(device))

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor], *, device: str | torch.device = "cpu") -> MPI3DRenderer:
        """A renderer with the buffers of `buffers()`."""
        shapes = {name: tuple(tensor.shape) for name, tensor in buffers.items()}
        if shapes != {"arms": (3, 40, 40, 4096), "sprites": (6, 2, 3, 40, 40, 2, WINDOW * WINDOW)}:
            raise CompbenchError(f"these are not MPI3D buffers: {shapes}.")
        renderer = cls.__new__(cls)
        renderer._install(buffers, torch.device(device))
        return renderer

    def buffers(self) -> dict[str, Tensor]:
        """The traced buffers, uint8."""
        return {"arms": self._arms, "sprites": self._sprites}

    def _install(self, buffers: dict[str, Tensor], device: torch.device) -> None:
        self.device = device
        self._arms, self._sprites = buffers["arms"].to(device), buffers["sprites"].to(device)
        grounds = [background(camera) for camera in range(3)]
        self._ground = torch.stack([ground for ground, _ in grounds]).to(device)  # (3, 3, 4096)
        self._arc = torch.stack([arc for _, arc in grounds]).to(device)  # (3, 4096)
        self._arc_colours = torch.tensor(ARCS, device=device).float()
        self._colours = torch.tensor(COLOURS, device=device).float()
        self._arm_colour = torch.tensor(ARM, device=device)
        tips = torch.stack([tip(torch.tensor(horizontal), torch.arange(40)) for horizontal in range(40)])  # (40, 40, 3)
        corners = torch.stack([window_corner(camera, tips) for camera in range(3)])  # (3, 40, 40, 2)
        self._corner = corners.to(device)
        self._behind = (tips[..., 1] > 0).float().to(device)  # (40, 40)
        self._post = torch.stack([post_coverage(camera) for camera in range(3)]).to(device)  # (3, 4096)
        rows, columns = torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")
        self._offsets = (rows * SIDE + columns).flatten().to(device)  # (W,)

    def __call__(self, conditions: Tensor) -> Tensor:
        """Images of combinations.

        Args:
            conditions: LongTensor (B, 7) in the order of `SIZES`.

        Returns:
            uint8 (B, 3, 64, 64) on the renderer's device.

        Raises:
            CompbenchError: a value out of range, or the wrong number of factors.
        """
        c = checked("MPI3D", conditions, SIZES, self.device)
        colour, shape, size, camera, backdrop, horizontal, vertical = c.unbind(1)
        arc = self._arc[camera][:, None]  # (B, 1, 4096)
        image = self._ground[camera] * (1 - arc) + self._arc_colours[backdrop][:, :, None] * arc
        arm = self._arms[camera, horizontal, vertical].float()[:, None] / 255  # (B, 1, 4096)
        image += (self._arm_colour[None, :, None] - image) * arm
        sprite = self._sprites[shape, size, camera, horizontal, vertical].float() / 255  # (B, 2, W)
        corner = self._corner[camera, horizontal, vertical]  # (B, 2)
        places = (corner[:, :1] * SIDE + corner[:, 1:]) + self._offsets  # (B, W)
        coverage = torch.zeros_like(arm[:, 0]).scatter_(1, places, sprite[:, 0])[:, None]  # (B, 1, 4096)
        lit = torch.zeros_like(arm[:, 0]).scatter_(1, places, sprite[:, 1])[:, None]  # (B, 1, 4096), coverage * shade
        post = self._post[camera][:, None]  # (B, 1, 4096)
        hidden = 1 - self._behind[horizontal, vertical][:, None, None] * post  # the post hides what is behind it
        image = image * (1 - coverage * hidden) + self._colours[colour][:, :, None] * (lit * hidden)
        return image.add_(0.5).clamp_(0, 255).to(torch.uint8).view(-1, 3, SIDE, SIDE)


def tip(horizontal: Tensor, vertical: Tensor) -> Tensor:
    """Where the second link ends, from the shoulder: (right, away, up), (..., 3)."""
    azimuth, tilt = _angle(TURN, horizontal), _angle(TILT, vertical)
    flat = tilt.sin()
    return LINK * torch.stack(torch.broadcast_tensors(azimuth.cos() * flat, azimuth.sin() * flat, tilt.cos()), dim=-1)


def project(camera: int, points: Tensor) -> Tensor:
    """Column and row of points (..., 3) given from the base's foot, (..., 2)."""
    pitch = math.radians(PITCH[camera])
    column = CENTRE + points[..., 0]
    row = BASE_ROW[camera] - points[..., 2] * math.cos(pitch) - points[..., 1] * math.sin(pitch)
    return torch.stack([column, row], dim=-1)


def window_corner(camera: int, tips: Tensor) -> Tensor:
    """Row and column of the sprite's first pixel, (..., 2) long; the window stays inside the image."""
    centre = project(camera, tips + torch.tensor([0.0, 0.0, POST_HEIGHT]))
    return (centre.flip(-1).round().long() - WINDOW // 2).clamp(0, SIDE - WINDOW)


def arm_coverage(camera: int, tips: Tensor) -> Tensor:
    """Share of each pixel that post, shoulder and link cover, (N, 4096), for link ends (N, 3) seen from the shoulder."""
    shoulder = torch.tensor([0.0, 0.0, POST_HEIGHT])
    points = _pixel_points(SIDE)  # (R, 2) column, row
    top = project(camera, shoulder)
    end = project(camera, tips + shoulder)  # (N, 2)
    post = _post_mask(camera, points)
    link = _distance_to_segment(points, top.expand_as(end), end) < LINK_HALF  # (N, R)
    joint = (points - top).norm(dim=-1) < SHOULDER_HALF
    covered = link | post | joint
    return covered.view(len(tips), SIDE * SIDE, SAMPLES**2).float().mean(-1)


def post_coverage(camera: int) -> Tensor:
    """Share of each pixel that the upright post covers, (4096,)."""
    return _post_mask(camera, _pixel_points(SIDE)).view(SIDE * SIDE, SAMPLES**2).float().mean(-1)


def _post_mask(camera: int, points: Tensor) -> Tensor:
    foot, top = project(camera, torch.zeros(3)), project(camera, torch.tensor([0.0, 0.0, POST_HEIGHT]))
    return ((points[:, 0] - CENTRE).abs() < POST_HALF) & (points[:, 1] > top[1]) & (points[:, 1] < foot[1])


def background(camera: int) -> tuple[Tensor, Tensor]:
    """(ground, arc): backdrop and table without the arc, (3, 4096), and the arc's coverage, (4096,)."""
    points = _pixel_points(SIDE)
    radius = ARC_RADIUS[camera]
    inside = (radius**2 - (points[:, 0] - CENTRE) ** 2).clamp(min=0).sqrt()
    edge = ARC_TOP[camera] + radius - inside  # row of the arc's upper edge in this column
    below = points[:, 1] - edge
    arc = ((below >= 0) & (below < ARC_WIDTH)).float()
    table = (below >= ARC_WIDTH).float()
    fade = 0.75 + 0.35 * points[:, 1] / SIDE
    ring = ((_ring_distance(camera, points)) < 0.9).float() * 14
    layers = [
        (table * (TABLE[k] * fade + ring) + (1 - table) * BACKDROP[k] * (0.5 + 0.5 * points[:, 1] / ARC_TOP[camera]).clamp(max=1))
        for k in range(3)
    ]
    per_pixel = torch.stack([*layers, arc]).view(4, SIDE * SIDE, SAMPLES**2).mean(-1)
    return per_pixel[:3], per_pixel[3]


def object_layers(shape: int, size: int, camera: int, horizontal: int) -> Tensor:
    """Coverage, and coverage times shade, of the object in its window, (40, 2, W), over the vertical axis."""
    tips = tip(torch.tensor(horizontal), torch.arange(40))  # (40, 3)
    centre = project(camera, tips + torch.tensor([0.0, 0.0, POST_HEIGHT]))  # (N, 2)
    corner = window_corner(camera, tips).flip(-1).float()  # (N, 2) column, row
    points = _pixel_points(WINDOW)[None] + (corner - centre)[:, None]  # (N, R, 2), from the object's centre
    pitch = math.radians(PITCH[camera])
    right, up = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, math.sin(pitch), math.cos(pitch)])
    view = torch.tensor([0.0, math.cos(pitch), -math.sin(pitch)])
    frame = _frame(horizontal)  # (N, 3, 3): rows are the object's own axes
    origin = points[..., :1] * right - points[..., 1:] * up - 40 * view  # (N, R, 3)
    local = origin @ frame.transpose(1, 2)  # (N, R, 3)
    rays = (frame @ view)[:, None].expand_as(local)  # (N, R, 3)
    met, normal = _hit(shape, RADIUS[size], local, rays)
    lamp = frame @ (torch.tensor(LAMP) / torch.tensor(LAMP).norm())  # (N, 3)
    shade = AMBIENT + (1 - AMBIENT) * (normal * lamp[:, None]).sum(-1).clamp(min=0)
    layers = torch.stack([met.float(), met * shade], dim=1)  # (N, 2, R)
    return layers.view(len(tips), 2, WINDOW * WINDOW, SAMPLES**2).mean(-1)


def _frame(horizontal: int) -> Tensor:
    """Orthonormal axes of the object, rigid with the link: its third axis points along the link, (N, 3, 3).

    The first axis is the hinge about which the link tilts, so no pose is singular.  A cross product with the tip would be
    singular at the vertical, where the azimuth is undefined.
    """
    azimuth = _angle(TURN, torch.tensor(horizontal)).expand(40)
    tilt = _angle(TILT, torch.arange(40))
    zero = torch.zeros(40)
    hinge = torch.stack([-azimuth.sin(), azimuth.cos(), zero], dim=-1)  # (40, 3)
    along = torch.stack([azimuth.cos() * tilt.sin(), azimuth.sin() * tilt.sin(), tilt.cos()], dim=-1)
    other = torch.linalg.cross(along, hinge)
    spin = math.radians(SPIN)  # a small turn about the link, so that a cube shows two side faces, not one
    side = math.cos(spin) * hinge + math.sin(spin) * other
    return torch.stack([side, torch.linalg.cross(along, side), along], dim=1)


def _angle(span: tuple[float, float], position: Tensor) -> Tensor:
    """Radians of an axis position 0 ... 39 within a span in degrees."""
    return torch.deg2rad(span[0] + (span[1] - span[0]) * position / 39)


def _hit(shape: int, radius: float, origin: Tensor, rays: Tensor) -> tuple[Tensor, Tensor]:
    """(met, normal) of rays (N, R, 3) with a shape at the origin: bool (N, R) and unit normals (N, R, 3)."""
    if shape == SPHERE:
        half = (origin * rays).sum(-1)
        root = half.square() - origin.square().sum(-1) + radius**2
        distance = -half - root.clamp(min=0).sqrt()
        return root > 0, (origin + rays * distance[..., None]) / radius
    normals, offsets = _planes(shape)
    entering = torch.full(origin.shape[:-1], -1e9)
    leaving = torch.full(origin.shape[:-1], 1e9)
    normal = torch.zeros_like(origin)
    for plane, offset in zip(normals, offsets * radius, strict=True):
        along, height = rays @ plane, offset - origin @ plane
        distance = height / torch.where(along.abs() < 1e-6, torch.full_like(along, 1e-6), along)
        inward = along < 0
        later = inward & (distance > entering)
        entering = torch.where(later, distance, entering)
        normal = torch.where(later[..., None], plane, normal)
        leaving = torch.where(inward, leaving, torch.minimum(leaving, distance))
    return entering < leaving, normal


def _planes(shape: int) -> tuple[Tensor, Tensor]:
    """Half-spaces n.x <= b of a convex body of unit radius: normals (P, 3) and offsets (P,).  Round bodies have 20 sides."""
    if shape == CUBE:
        return torch.cat([torch.eye(3), -torch.eye(3)]), torch.full((6,), 0.74)
    sides = {CONE: 20, CYLINDER: 20, HEXAGONAL: 6, PYRAMID: 4}[shape]
    angles = torch.arange(sides) * 2 * math.pi / sides
    flat = torch.stack([angles.cos(), angles.sin(), torch.zeros(sides)], dim=1)
    up = torch.tensor([[0.0, 0.0, 1.0]])
    if shape in (CYLINDER, HEXAGONAL):
        breadth = 0.78 if shape == CYLINDER else 0.82
        return torch.cat([flat, up, -up]), torch.cat([torch.full((sides,), breadth), torch.full((2,), 0.85)])
    width = 0.95 if shape == CONE else 0.80  # half-width of the base; the apex is at height 1, the base at -0.8
    slope = torch.tensor([1.8, width]) / math.hypot(1.8, width)
    slanted = slope[0] * flat + slope[1] * up
    return torch.cat([slanted, -up]), torch.cat([(slope[1] * 1.0).expand(sides), torch.tensor([0.8])])


def _pixel_points(side: int) -> Tensor:
    """Column and row of SAMPLES x SAMPLES points of every pixel of a square image, (side^2 SAMPLES^2, 2)."""
    offsets = (torch.arange(SAMPLES) + 0.5) / SAMPLES - 0.5
    pixels = torch.arange(float(side))
    row, column, dy, dx = torch.meshgrid(pixels, pixels, offsets, offsets, indexing="ij")
    return torch.stack([column + dx, row + dy], dim=-1).reshape(-1, 2)


def _distance_to_segment(points: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Distance of points (R, 2) to segments (N, 2)-(N, 2), (N, R)."""
    along = end - start
    offset = points[None] - start[:, None]
    share = ((offset * along[:, None]).sum(-1) / along.square().sum(-1)[:, None].clamp(min=1e-6)).clamp(0, 1)
    return (offset - share[..., None] * along[:, None]).norm(dim=-1)


def _ring_distance(camera: int, points: Tensor) -> Tensor:
    """Distance to the ring that the base stands on."""
    squash = max(0.25, math.sin(math.radians(PITCH[camera])))
    flat = torch.stack([points[:, 0] - CENTRE, (points[:, 1] - BASE_ROW[camera]) / squash], dim=-1)
    return (flat.norm(dim=-1) - 5).abs()
