"""Drawings of people by role, person and skin tone, from a colour font: 71 x 3 x 5 = 1,065 pictures of one artist.

24 roles are sequences `person tone ZWJ object`, 47 are `activity tone [ZWJ sign]`, as Unicode recommends them for general
interchange (emoji-zwj-sequences.txt).  The three roles that face right since Emoji 15.1 are left out: they are mirrored
copies, and older fonts lack them.  Pictures are composited on white and reduced to 64 x 64; their proportions are kept.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compbench.api.interfaces import Source
from compbench.data.colour_font import ColourFont, what_it_lacks
from compbench.data.sources import INSTALLED
from compbench.system.errors import CompbenchError
from compbench.system.fonts import find_font, no_font

if TYPE_CHECKING:
    import numpy

FONT = INSTALLED["emoji"].file
SIDE = 64
VERSION = 1
"""Version of the pictures; raise it when the same drawing gives another picture."""
ZWJ = 0x200D
PERSONS = {"person": 0x1F9D1, "man": 0x1F468, "woman": 0x1F469}
SIGNS: dict[str, tuple[int, ...]] = {"person": (), "man": (ZWJ, 0x2642), "woman": (ZWJ, 0x2640)}
TONES = {"light": 0x1F3FB, "medium-light": 0x1F3FC, "medium": 0x1F3FD, "medium-dark": 0x1F3FE, "dark": 0x1F3FF}
OBJECTS = {
    "health worker": 0x2695,
    "student": 0x1F393,
    "teacher": 0x1F3EB,
    "judge": 0x2696,
    "farmer": 0x1F33E,
    "cook": 0x1F373,
    "mechanic": 0x1F527,
    "factory worker": 0x1F3ED,
    "office worker": 0x1F4BC,
    "scientist": 0x1F52C,
    "technologist": 0x1F4BB,
    "singer": 0x1F3A4,
    "artist": 0x1F3A8,
    "pilot": 0x2708,
    "astronaut": 0x1F680,
    "firefighter": 0x1F692,
    "with white cane": 0x1F9AF,
    "in motorized wheelchair": 0x1F9BC,
    "in manual wheelchair": 0x1F9BD,
    "feeding baby": 0x1F37C,
    "red hair": 0x1F9B0,
    "curly hair": 0x1F9B1,
    "white hair": 0x1F9B3,
    "bald": 0x1F9B2,
}
ACTIVITIES = {
    "frowning": 0x1F64D,
    "pouting": 0x1F64E,
    "gesturing no": 0x1F645,
    "gesturing OK": 0x1F646,
    "tipping hand": 0x1F481,
    "raising hand": 0x1F64B,
    "deaf": 0x1F9CF,
    "bowing": 0x1F647,
    "facepalming": 0x1F926,
    "shrugging": 0x1F937,
    "police officer": 0x1F46E,
    "detective": 0x1F575,
    "guard": 0x1F482,
    "construction worker": 0x1F477,
    "wearing turban": 0x1F473,
    "blond hair": 0x1F471,
    "in tuxedo": 0x1F935,
    "with veil": 0x1F470,
    "superhero": 0x1F9B8,
    "supervillain": 0x1F9B9,
    "mage": 0x1F9D9,
    "fairy": 0x1F9DA,
    "vampire": 0x1F9DB,
    "merperson": 0x1F9DC,
    "elf": 0x1F9DD,
    "getting massage": 0x1F486,
    "getting haircut": 0x1F487,
    "walking": 0x1F6B6,
    "standing": 0x1F9CD,
    "kneeling": 0x1F9CE,
    "running": 0x1F3C3,
    "in steamy room": 0x1F9D6,
    "climbing": 0x1F9D7,
    "golfing": 0x1F3CC,
    "surfing": 0x1F3C4,
    "rowing boat": 0x1F6A3,
    "swimming": 0x1F3CA,
    "bouncing ball": 0x26F9,
    "lifting weights": 0x1F3CB,
    "biking": 0x1F6B4,
    "mountain biking": 0x1F6B5,
    "cartwheeling": 0x1F938,
    "playing water polo": 0x1F93D,
    "playing handball": 0x1F93E,
    "juggling": 0x1F939,
    "in lotus position": 0x1F9D8,
    "beard": 0x1F9D4,
}
ROLES = (*OBJECTS, *ACTIVITIES)
SIZES = (len(ROLES), len(PERSONS), len(TONES))


class Drawings(NamedTuple):
    """All pictures of one font, uint8 (1065, 3, 64, 64) with tone varying fastest, and the hash of its drawings."""

    pictures: numpy.ndarray
    fingerprint: str


def sequence(role: str, person: str, tone: str) -> tuple[int, ...]:
    """The code points of a combination, without variation selectors."""
    if role in OBJECTS:
        return (PERSONS[person], TONES[tone], ZWJ, OBJECTS[role])
    return (ACTIVITIES[role], TONES[tone], *SIGNS[person])


def choose(folder: Path, asked: str, font: str = FONT) -> Source:
    """The font, from the data folder or from the machine's fonts.

    Args:
        folder: compbench's data folder.
        asked: "auto", "official" or "embedded".
        font: name of its file, or a path.

    Raises:
        CompbenchError: there is no such font, the font lacks pictures, or embedded data is requested, which does not exist.
    """
    if asked == "embedded":
        raise CompbenchError("emoji tasks have no embedded data: their pictures come from a font; use --source auto.")
    return Source("official", font.rsplit("/", 1)[-1], drawings(located(folder, font)).fingerprint)


def located(folder: Path, font: str = FONT) -> Path:
    """The file of a font.  Raises CompbenchError with what to install if there is none."""
    path = find_font(font, folder)
    if path is None and font == FONT:
        raise CompbenchError(
            f"the font {FONT} is not on this machine: {INSTALLED['emoji'].install}, or put the file into {folder}."
        )
    if path is None:
        raise CompbenchError(no_font("task.font", font, folder))
    return path


def drawings(path: Path) -> Drawings:
    """All pictures of a font, decoded once per process.

    Raises:
        CompbenchError: the file is not a colour font with PNG pictures, or lacks some of them.
    """
    return _drawings(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _drawings(path: Path, changed: int) -> Drawings:
    import numpy

    font, digest = ColourFont(path), hashlib.sha256(f"emoji {VERSION} {ROLES}".encode())
    made, missing = [], []
    for combination in product(ROLES, PERSONS, TONES):
        drawn = font.picture(sequence(*combination))
        if drawn is None:
            missing.append(combination)
            continue
        digest.update(f"{drawn.shape}".encode() + drawn.tobytes())
        made.append(reduced(drawn, SIDE))
    if missing:
        raise CompbenchError(f"{path} {what_it_lacks(font, missing, len(missing) + len(made))}")
    return Drawings(numpy.stack(made), digest.hexdigest()[:32])


def reduced(drawn: numpy.ndarray, side: int) -> numpy.ndarray:
    """A picture (H, W, 4) on white, uint8 (3, side, side): the longer side fills the square, the shorter one is centred."""
    import numpy
    from PIL import Image

    picture = Image.new("RGBA", (drawn.shape[1], drawn.shape[0]), "white")
    picture.alpha_composite(Image.fromarray(drawn))
    scale = side / max(picture.size)
    width, height = (max(1, round(scale * length)) for length in picture.size)
    small = picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    square = Image.new("RGB", (side, side), "white")
    square.paste(small, ((side - width) // 2, (side - height) // 2))
    return numpy.asarray(square).transpose(2, 0, 1)
