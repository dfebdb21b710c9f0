"""A phantom of chest radiographs: body, lungs, ribs, heart, and 14 findings, each drawn and placed independently.

Dense tissue is bright, as on film.  Lengths are fractions of the image's side, x to the right, y downwards; the patient's left
lung is on the right.  A finding is a simple drawing of a sign that readers of radiographs look for (a meniscus, a plate, a
pleural line); it is not medical teaching material.

    image = anatomy(heart, lungs, diaphragm), then each finding adds to it or takes from it
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from compbench.data.chest_findings import FINDINGS
from compbench.system.errors import CompbenchError

SIDE = 64
NUM_STYLES = 16 + 4 * len(FINDINGS)
"""Number of style values in [0, 1) of an image, in addition to its findings: 16 for the anatomy, 4 for each finding."""
BLOCK = 32
"""Number of images rendered at a time, so that their pixels stay in a core's cache."""

SOFT = 0.012
"""Width of an anatomical edge."""


class ChestPhantom:
    """Renders chest radiographs.

    Args:
        side: pixels of a side.
        device: where images are made.
    """

    def __init__(self, *, side: int = SIDE, device: str | torch.device = "cpu") -> None:
        self.side, self.device = side, torch.device(device)
        places = (torch.arange(side, device=self.device) + 0.5) / side
        self._x, self._y = places.repeat(side)[None], places.repeat_interleave(side)[None]  # (1, P)

    def __call__(self, findings: Tensor, styles: Tensor) -> Tensor:
        """Radiographs.

        Args:
            findings: LongTensor (B, 14) of 0 and 1, in the order of `FINDINGS`.
            styles: everything else, (B, NUM_STYLES) in [0, 1).

        Returns:
            uint8 (B, 1, side, side) on the phantom's device.

        Raises:
            CompbenchError: another shape, or a value out of range.
        """
        if findings.ndim != 2 or findings.shape[1] != len(FINDINGS) or styles.shape != (len(findings), NUM_STYLES):
            raise CompbenchError(
                f"radiographs must be findings (B, {len(FINDINGS)}) and styles (B, {NUM_STYLES}), "
                f"got {tuple(findings.shape)} and {tuple(styles.shape)}."
            )
        if bool(((findings != 0) & (findings != 1)).any()) or bool(((styles < 0) | (styles >= 1)).any()):
            raise CompbenchError("findings must lie in 0 ... 1 and styles in [0, 1).")
        findings, styles = findings.to(self.device).bool(), styles.to(self.device)
        blocks = [self._block(*pair) for pair in zip(findings.split(BLOCK), styles.split(BLOCK), strict=True)]
        return torch.cat(blocks) if blocks else torch.empty(0, 1, self.side, self.side, dtype=torch.uint8)

    def _block(self, findings: Tensor, styles: Tensor) -> Tensor:
        chest = Chest(self._x, self._y, styles[:, :16], large_heart=findings[:, 1], inflated=findings[:, 10])
        image = chest.image()
        for name, draw in SIGNS.items():
            position = FINDINGS.index(name)
            rows = findings[:, position].nonzero()[:, 0]
            if len(rows):
                own = styles[rows, 16 + 4 * position : 20 + 4 * position]
                image = image.index_copy(0, rows, draw(chest.of(rows), image[rows], own))
        image = (image * 255).add_(0.5).clamp_(0, 255).to(torch.uint8)
        return image.view(-1, 1, self.side, self.side)


class Chest:
    """The anatomy of some patients at the image's points; all tensors are (B, P), or (B, 1) for one number per patient.

    Attributes:
        x, y: the points.
        down: height in the lungs, from 0 at the apex to 1 at the diaphragm.
        width: the lungs' half-width at each height, as a share of the largest; apices are narrow.
        lungs: how far a point is inside the right (image left) and the left lung, in [0, 1].
        middle, centre, half, top, base: x of the spine, x and half-width of the lungs (2), y of apex and diaphragm.
    """

    def __init__(self, x: Tensor, y: Tensor, u: Tensor, *, large_heart: Tensor, inflated: Tensor) -> None:
        self.x, self.y, self.u = x, y, u
        self._large, self._inflated = large_heart, inflated
        swollen = inflated.float()[:, None]
        self.middle = 0.5 + 0.04 * (u[:, 0:1] - 0.5)
        self.half = 0.150 + 0.025 * u[:, 1:2] + 0.012 * swollen
        self.top = 0.13 + 0.05 * u[:, 2:3]
        self.base = 0.74 + 0.05 * u[:, 3:4] + 0.08 * swollen
        spread = 0.185 + 0.015 * u[:, 4:5]
        self.centre = (self.middle - spread, self.middle + spread)
        self.dome = 0.05 * (1 - 0.8 * swollen)
        self.down = (y - self.top) / (self.base - self.top)
        within = self.down.clamp(0, 1)
        self.width = (1 - (1 - within).square().square()).sqrt() * (0.80 + 0.20 * within)
        self.lungs = (self._lung(0), self._lung(1))

    def of(self, rows: Tensor) -> Chest:
        """The chests of some patients."""
        found = object.__new__(Chest)
        found.x, found.y, found.u = self.x, self.y, self.u[rows]
        found._large, found._inflated = self._large[rows], self._inflated[rows]
        found.middle, found.half, found.top, found.base, found.dome, found.down, found.width = (
            part[rows] for part in (self.middle, self.half, self.top, self.base, self.dome, self.down, self.width)
        )
        found.centre = (self.centre[0][rows], self.centre[1][rows])
        found.lungs = (self.lungs[0][rows], self.lungs[1][rows])
        return found

    def across(self, side: int) -> Tensor:
        """Place across a lung: -1 at the inner and 1 at the outer wall, where the lung is widest."""
        return (self.x - self.centre[side]) / self.half * (-1 if side == 0 else 1)

    def _lung(self, side: int) -> Tensor:
        across = self.across(side)
        diaphragm = self.base - self.dome * (1 - across.square())
        walls = (self.width - across.abs()) * self.half
        return edge(torch.minimum(walls, torch.minimum(self.y - self.top, diaphragm - self.y)))

    def image(self) -> Tensor:
        """The radiograph without findings that are added: body, lungs with ribs and vessels, heart, spine, collarbones."""
        x, y, u = self.x, self.y, self.u
        waist = 0.43 + 0.02 * u[:, 5:6] - 0.16 * torch.exp(-((y / 0.13) ** 2))
        body = edge(waist - (x - self.middle).abs())
        image = body * (0.55 + 0.10 * u[:, 6:7])
        air = 0.36 + 0.05 * u[:, 7:8] + 0.13 * self._inflated.float()[:, None]
        within = (self.lungs[0] + self.lungs[1]).clamp(max=1)
        from_middle = (x - self.middle).abs()
        ribs = torch.sin(2 * math.pi * ((y - 0.75 * (from_middle - 0.2).square() * 4 + 0.35 * from_middle) * 11 + u[:, 8:9]))
        vessels = torch.exp(-(((from_middle - 0.09) / 0.06) ** 2) - ((y - 0.45) / 0.13) ** 2)
        image = image - within * air + within * (0.035 * (ribs > 0.35).float() + 0.16 * vessels)
        spine = edge(0.045 + 0.01 * u[:, 9:10] - from_middle)
        image = image + 0.16 * spine * body
        large = self._large.float()[:, None]
        heart_x, heart_y = self.middle + 0.055 + 0.03 * large, self.base - 0.13 - 0.02 * large
        radius = ((x - heart_x) / (0.115 + 0.015 * u[:, 10:11] + 0.085 * large)).square() + (
            (y - heart_y) / (0.135 + 0.045 * large)
        ).square()
        heart = edge((1 - radius.sqrt()) * 0.12)
        image = torch.maximum(image, heart * (0.74 + 0.05 * u[:, 11:12]))
        bones = sum(
            torch.exp(-(((y - self.top - 0.02 - sign * 0.16 * (x - self.middle)) / 0.014) ** 2))
            * (sign * (x - self.middle) > 0.03)
            for sign in (-1, 1)
        )
        return image + 0.13 * bones * body


def edge(inside: Tensor) -> Tensor:
    """1 well inside, 0 well outside, with a soft transition."""
    return torch.sigmoid(inside / SOFT * 2)


def _lung_of(chest: Chest, u: Tensor) -> tuple[Tensor, Tensor]:
    """(inside, across) of a finding's lung: the right one if the finding's first number is below a half, otherwise the left."""
    left = (u[:, :1] >= 0.5).float()
    inside = torch.lerp(chest.lungs[0], chest.lungs[1], left)
    return inside, torch.lerp(chest.across(0), chest.across(1), left)


def _screen(image: Tensor, density: Tensor) -> Tensor:
    """Something dense in front: it moves each pixel towards white by a share of the distance."""
    return image + (0.92 - image).clamp(min=0) * density


def _disc(chest: Chest, u: Tensor, radius: Tensor, down: Tensor) -> Tensor:
    """A round spot in a lung, (B, P), with a radius in shares of the side."""
    left = (u[:, :1] >= 0.5).float()
    x = torch.lerp(chest.centre[0], chest.centre[1], left) + (u[:, 1:2] - 0.5) * chest.half
    y = chest.top + down * (chest.base - chest.top)
    return edge(radius - ((chest.x - x).square() + (chest.y - y).square()).sqrt())


def atelectasis(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """Plates: two thin slanting bands above the diaphragm."""
    inside, across = _lung_of(chest, u)
    line = chest.down - (0.70 + 0.12 * u[:, 1:2]) - (0.08 + 0.06 * u[:, 2:3]) * across
    bands = torch.exp(-((line / 0.022) ** 2)) + torch.exp(-(((line + 0.10) / 0.018) ** 2))
    return _screen(image, 0.75 * bands.clamp(max=1) * inside)


def effusion(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """Fluid: white from the base up to a level that rises towards the outer wall."""
    inside, across = _lung_of(chest, u)
    level = 0.86 - 0.20 * u[:, 1:2] - 0.10 * across.clamp(-1, 1.2).add(1).square() / 2
    return _screen(image, 0.9 * inside * edge((chest.down - level) * 0.5))


def infiltration(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """Haze: a cloud of small soft spots in the middle of a lung."""
    inside, across = _lung_of(chest, u)
    down = chest.down - (0.38 + 0.2 * u[:, 1:2])
    cloud = torch.exp(-((across / 0.75) ** 2) - (down / 0.17) ** 2)
    spots = 0.5 + 0.5 * torch.sin(9.5 * across + 6 * u[:, 2:3]) * torch.sin(44 * down + 6 * u[:, 3:4])
    return _screen(image, 0.75 * cloud * spots * inside)


def mass(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A round opacity of more than three centimetres."""
    return _screen(image, 0.8 * _disc(chest, u, 0.070 + 0.02 * u[:, 3:4], 0.25 + 0.4 * u[:, 2:3]))


def nodule(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A small round opacity."""
    return _screen(image, 0.95 * _disc(chest, u, 0.030 + 0.008 * u[:, 3:4], 0.2 + 0.5 * u[:, 2:3]))


def pneumonia(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A white upper lobe with dark air bronchograms in it."""
    inside, across = _lung_of(chest, u)
    lobe = edge((0.42 + 0.06 * u[:, 1:2] - chest.down) * 0.5)
    tubes = torch.cos(2 * math.pi * (2.2 * across + 2.5 * chest.down + u[:, 2:3])) > 0.55
    return _screen(image, inside * lobe * (0.72 - 0.5 * tubes.float()))


def pneumothorax(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """Air next to the lung: black at the apex and the outer wall, and the thin white line of the pleura."""
    inside, across = _lung_of(chest, u)
    pleura = across - (0.15 + 0.25 * u[:, 1:2]) - 0.9 * (chest.down - 0.25)
    line = torch.exp(-((pleura / 0.10) ** 2)) * inside
    return _screen(image * (1 - 0.85 * inside * edge(pleura * 0.12)), 0.6 * line)


def consolidation(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A white middle zone with a level fissure as its upper border."""
    inside, across = _lung_of(chest, u)
    upper = 0.46 + 0.08 * u[:, 1:2]
    zone = edge((chest.down - upper) * 0.5) * edge((upper + 0.24 - chest.down + 0.05 * across) * 0.5)
    return _screen(image, 0.78 * zone * inside)


def edema(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """Butterfly wings: haze about both hila."""
    wide, high = 0.16 + 0.03 * u[:, 1:2], 0.20 + 0.04 * u[:, 2:3]
    offset = (chest.x - chest.middle).abs() - 0.12
    wings = torch.exp(-((offset / wide) ** 4) - ((chest.down - 0.45) / high / 1.6) ** 4)
    return _screen(image, 0.55 * wings * (chest.lungs[0] + chest.lungs[1]).clamp(max=1))


def emphysema(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """Black, long lungs over a flat diaphragm are part of the anatomy; the walls of a bulla are added."""
    disc = _disc(chest, u, 0.060 + 0.015 * u[:, 3:4], 0.16 + 0.1 * u[:, 2:3])
    return image + 0.35 * disc * (1 - disc) * 4 * (chest.lungs[0] + chest.lungs[1]).clamp(max=1)


def fibrosis(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A net of fine lines at both bases."""
    net = torch.maximum(
        torch.cos(2 * math.pi * (15 * (chest.x + chest.y) + u[:, 1:2])),
        torch.cos(2 * math.pi * (15 * (chest.x - chest.y) + u[:, 2:3])),
    )
    low = edge((chest.down - 0.52 - 0.1 * u[:, 3:4]) * 0.3)
    return _screen(image, 0.6 * low * (net > 0.5).float() * (chest.lungs[0] + chest.lungs[1]).clamp(max=1))


def pleural_thickening(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A white rind along the outer wall."""
    inside, across = _lung_of(chest, u)
    rind = edge((across - chest.width + 0.26 + 0.08 * u[:, 1:2]) * 0.15) * edge((0.80 - chest.down) * 0.5)
    return _screen(image, 0.85 * rind * inside)


def hernia(chest: Chest, image: Tensor, u: Tensor) -> Tensor:
    """A bubble behind the heart: dark air over a fluid level, in a white wall."""
    x, y = chest.middle + 0.02 + 0.05 * (u[:, 1:2] - 0.5), chest.base - 0.10 - 0.03 * u[:, 2:3]
    distance = ((chest.x - x).square() + (chest.y - y).square()).sqrt()
    radius = 0.072 + 0.012 * u[:, 3:4]
    air = edge(radius - 0.015 - distance) * edge(y + 0.01 - chest.y)
    return _screen(image, 0.9 * edge(radius - distance)) * (1 - 0.8 * air)


Sign = Callable[[Chest, Tensor, Tensor], Tensor]
SIGNS: dict[str, Sign] = {
    "Infiltration": infiltration,
    "Edema": edema,
    "Fibrosis": fibrosis,
    "Consolidation": consolidation,
    "Pneumonia": pneumonia,
    "Atelectasis": atelectasis,
    "Emphysema": emphysema,
    "Mass": mass,
    "Nodule": nodule,
    "Pneumothorax": pneumothorax,
    "Pleural_Thickening": pleural_thickening,
    "Effusion": effusion,
    "Hernia": hernia,
}
"""The function that draws each finding, in this order; a large heart is part of the anatomy."""


def random_styles(count: int, generator: Generator) -> Tensor:
    """Styles of `count` images, uniform in [0, 1), (count, NUM_STYLES)."""
    return torch.rand(count, NUM_STYLES, generator=generator)
