"""Letters (grey, 32 x 32) of four typefaces that matplotlib ships, in two weights and slants, at several positions and sizes.

DejaVu Sans, DejaVu Serif, DejaVu Sans Mono (Bitstream Vera's licence) and STIX General (SIL Open Font License 1.1).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

from compbench.api.interfaces import Source
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    import numpy

INSTALL = "pip install 'compbench[glyphs]'"
SIDE = 32
MARGIN = 4
"""Margin in pixels around a picture, from which shifted pictures are cut."""
SHIFTS = 3
"""Number of positions along each axis: the middle, and a pixel to either side."""
EMS = (19, 22, 25)
"""Font sizes in pixels."""
BASELINE = 23
"""Row of the baseline in an unshifted picture."""
LETTERS = tuple(ascii_lowercase)
FILES = {
    "sans": ("DejaVuSans", "DejaVuSans-Oblique", "DejaVuSans-Bold", "DejaVuSans-BoldOblique"),
    "serif": ("DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic"),
    "mono": ("DejaVuSansMono", "DejaVuSansMono-Oblique", "DejaVuSansMono-Bold", "DejaVuSansMono-BoldOblique"),
    "stix": ("STIXGeneral", "STIXGeneralItalic", "STIXGeneralBol", "STIXGeneralBolIta"),
}
"""Files of each typeface: regular upright, regular slanted, bold upright, bold slanted."""
FAMILIES = ("DejaVu", "STIX")
WEIGHTS, SLANTS = ("regular", "bold"), ("upright", "slanted")
VERSION = 1
"""Version of the pictures; raise it when the same fonts give another picture."""


def folder() -> Path:
    """The folder of matplotlib's fonts.  Raises CompbenchError if matplotlib is not installed."""
    spec = find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise CompbenchError(f"glyph tasks need the fonts of matplotlib, which is not installed: {INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf"


def choose(data: Path, asked: str) -> Source:
    """The fonts in the installed matplotlib; the fingerprint holds their versions and a hash of the letters as drawn.

    The same fonts can give other pixels with another Pillow, so files alone do not say which data a run had.

    Raises:
        CompbenchError: official data is requested, which does not exist, or matplotlib or one of its fonts is missing.
    """
    if asked == "official":
        raise CompbenchError("glyph tasks have no official data: their letters are drawn; use --source auto.")
    for name in (name for names in FILES.values() for name in names):
        if not (folder() / f"{name}.ttf").is_file():
            raise CompbenchError(f"{folder()} has no {name}.ttf: {INSTALL} --force-reinstall")
    known = versions()
    digest = hashlib.sha256(f"glyphs {VERSION}".encode() + drawn().tobytes()).hexdigest()
    fonts = " and ".join(f"{family} {version}" for family, version in known.items())
    return Source("embedded", f"letters of {fonts}", "-".join([*("".join(pair).lower() for pair in known.items()), digest[:16]]))


def versions() -> dict[str, str]:
    """The version of each family of fonts, as its files say; several versions are joined by +."""
    from fontTools.ttLib import TTFont

    found: dict[str, set[str]] = {}
    for name in (name for names in FILES.values() for name in names):
        with TTFont(folder() / f"{name}.ttf", lazy=True) as font:
            family = next(family for family in FAMILIES if name.startswith(family))
            found.setdefault(family, set()).add(f"{font['head'].fontRevision:.2f}")
    return {family: "+".join(sorted(own)) for family, own in found.items()}


@lru_cache(maxsize=1)
def drawn() -> numpy.ndarray:
    """All letters with their margins, white on black, uint8 (letters, typefaces, weights, slants, sizes, 40, 40)."""
    import numpy
    from PIL import Image, ImageDraw, ImageFont

    whole = SIDE + 2 * MARGIN
    shape = (len(LETTERS), len(FILES), len(WEIGHTS), len(SLANTS), len(EMS), whole, whole)
    made = numpy.zeros(shape, numpy.uint8)
    for (face, names), (size, em) in product(enumerate(FILES.values()), enumerate(EMS)):
        for style, name in enumerate(names):
            font = ImageFont.truetype(str(folder() / f"{name}.ttf"), em, layout_engine=ImageFont.Layout.BASIC)
            for letter, text in enumerate(LETTERS):
                picture = Image.new("L", (whole, whole))
                ImageDraw.Draw(picture).text((whole // 2, MARGIN + BASELINE), text, fill=255, font=font, anchor="ms")
                made[letter, face, style // 2, style % 2, size] = numpy.asarray(picture)
    return made
