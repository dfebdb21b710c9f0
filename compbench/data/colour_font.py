"""Pictures of a colour font: PNG bitmaps from its CBDT or sbix table, for sequences of code points that GSUB joins.

    code points -> cmap -> glyph names -> GSUB ligature (type 4) -> one glyph -> its PNG in the largest strike

Vector fonts (COLR, SVG) and fonts that join sequences by other tables (Apple's morx) are refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compbench.system.errors import CompbenchError, remedy

if TYPE_CHECKING:
    import numpy
    from fontTools.ttLib import TTFont

INSTALL = "pip install 'compbench[emoji]'"
LIGATURE, EXTENSION = 4, 7
"""Types of GSUB lookups: a ligature, and an extension that holds a lookup of another type."""
VARIATION = 0xFE0F
"""The code point that asks for a colour picture; fonts leave it out of their ligatures."""


class ColourFont:
    """A font whose glyphs are PNG pictures.

    Args:
        path: the font's file.

    Raises:
        CompbenchError: fontTools is not installed, or the file is not a font with CBDT or sbix pictures.
    """

    def __init__(self, path: Path) -> None:
        try:
            from fontTools.ttLib import TTFont, TTLibError
        except ImportError as error:
            raise CompbenchError(f"reading {path.name} needs fontTools, which is not installed: {INSTALL}") from error
        self.path = path
        try:
            font = TTFont(path, lazy=True, fontNumber=0)
            self.version = str(font["name"].getDebugName(5) or "")
            self._glyphs: dict[int, str] = font.getBestCmap() or {}
            self._ligatures = dict(_ligatures(font["GSUB"].table)) if "GSUB" in font else {}
            self._pictures = _pictures(font)
        except (TTLibError, OSError, KeyError, AttributeError, ValueError, AssertionError) as error:
            brief = " ".join(str(error).split())[:80] or type(error).__name__
            raise CompbenchError(f"{path} cannot be read as a font ({brief}); {remedy(error, 'bring another copy')}.") from error
        if self._pictures is None:
            raise CompbenchError(f"{path} has no pictures in a CBDT or sbix table; fonts of COLR or SVG drawings are not read.")

    def glyph(self, sequence: Sequence[int]) -> str | None:
        """The glyph that a sequence of code points is joined to; None if the font has none."""
        names = tuple(self._glyphs.get(code, "") for code in sequence if code != VARIATION)
        if "" in names or not names:
            return None
        return names[0] if len(names) == 1 else self._ligatures.get(names)

    def picture(self, sequence: Sequence[int]) -> numpy.ndarray | None:
        """The picture of a sequence, uint8 (H, W, 4) with straight alpha; None if the font has none.

        Raises:
            CompbenchError: the bitmap is not a PNG, or is damaged.
        """
        glyph = self.glyph(sequence)
        data = None if glyph is None or self._pictures is None else self._pictures(glyph)
        if data is None:
            return None
        import numpy
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data), formats=("PNG",)) as found:
                return numpy.asarray(found.convert("RGBA"))
        except (OSError, ValueError, SyntaxError) as error:
            raise CompbenchError(f"{self.path} has a damaged picture of glyph '{glyph}'; bring another copy.") from error


def what_it_lacks(font: ColourFont, missing: Sequence[Sequence[str]], wanted: int) -> str:
    """What a font lacks and what to do, as the end of a sentence that begins with its path.

    Args:
        font: the font.
        missing: the combinations that it has no picture of, each by the names of its values.
        wanted: the number of combinations that were looked for.
    """
    if not font._ligatures:
        return "does not join sequences of code points by GSUB ligatures (Apple's fonts use the table morx); bring another font."
    return f"lacks {len(missing)} of {wanted} pictures, '{', '.join(missing[0])}' first; use another version of the font."


def _ligatures(table: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Sequences of glyphs and what each is joined to; if two rules join one sequence, the first one counts."""
    found: dict[tuple[str, ...], str] = {}
    for lookup in table.LookupList.Lookup if table.LookupList else ():
        for subtable in lookup.SubTable:
            own = subtable.ExtSubTable if subtable.LookupType == EXTENSION else subtable
            if own.LookupType != LIGATURE:
                continue
            for first, rules in own.ligatures.items():
                for rule in rules:
                    found.setdefault((first, *rule.Component), rule.LigGlyph)
    yield from found.items()


def _pictures(font: TTFont) -> Callable[[str], bytes | None] | None:
    """glyph name -> bytes of its PNG in the largest strike, or None; None if the font has no such table."""
    if "CBDT" in font and "CBLC" in font:
        sizes = [strike.bitmapSizeTable.ppemX for strike in font["CBLC"].strikes]
        strike = font["CBDT"].strikeData[sizes.index(max(sizes))]
        return lambda glyph: getattr(strike.get(glyph), "imageData", None)
    if "sbix" in font:
        strikes = font["sbix"].strikes
        glyphs = strikes[max(strikes)].glyphs
        return lambda glyph: getattr(glyphs.get(glyph), "imageData", None)
    return None
