"""Small colour fonts, built with fontTools: a PNG for each sequence of code points, joined by GSUB ligatures."""

import io
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy
from fontTools.fontBuilder import FontBuilder
from fontTools.ttLib import newTable
from fontTools.ttLib.tables._g_l_y_f import Glyph as Outline
from fontTools.ttLib.tables.BitmapGlyphMetrics import SmallGlyphMetrics
from fontTools.ttLib.tables.C_B_D_T_ import cbdt_bitmap_format_17
from fontTools.ttLib.tables.E_B_L_C_ import BitmapSizeTable, SbitLineMetrics, Strike, eblc_index_sub_table_1
from fontTools.ttLib.tables.sbixGlyph import Glyph
from fontTools.ttLib.tables.sbixStrike import Strike as SbixStrike
from PIL import Image

from compbench.data.emoji_drawings import PERSONS, ROLES, TONES, sequence

Pictures = Mapping[tuple[int, ...], numpy.ndarray]
"""Code points to a picture, uint8 (H, W, 4)."""


def png(picture: numpy.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "PNG")
    return content.getvalue()


def write_font(
    path: Path, pictures: Pictures, *, table: str = "CBDT", damaged: Sequence[tuple[int, ...]] = (), joined: bool = True
) -> Path:
    """A font of these pictures; those of `damaged` are cut off.  One that is not `joined` has no GSUB table."""
    codes = sorted({code for sequence in pictures for code in sequence})
    single = {code: f"u{code:04X}" for code in codes}
    glyphs = {one: "_".join(single[code] for code in one) for one in pictures}
    names = [".notdef", *single.values(), *(name for one, name in glyphs.items() if len(one) > 1)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(single)
    builder.setupGlyf({name: Outline() for name in names})
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader()
    builder.setupNameTable({"familyName": "Small", "styleName": "Regular", "version": "Version 1"})
    builder.setupOS2()
    builder.setupPost()
    rules = [f"sub {' '.join(single[code] for code in one)} by {name};" for one, name in glyphs.items() if len(one) > 1]
    if rules and joined:
        builder.addOpenTypeFeatures("feature ccmp {\n" + "\n".join(rules) + "\n} ccmp;")
    bitmaps = {name: png(pictures[one])[: 40 if one in damaged else None] for one, name in glyphs.items()}
    if table == "CBDT":
        _add_cbdt(builder.font, bitmaps, names)
    elif table == "sbix":
        _add_sbix(builder.font, bitmaps, names)
    builder.save(path)
    return path


def people(colour: int = 0, roles: Sequence[str] = ROLES) -> dict[tuple[int, ...], numpy.ndarray]:
    """A 4 x 2 picture for each combination of some roles, no two alike; transparent but for its first column."""
    found = {}
    for place, combination in enumerate(product(roles, PERSONS, TONES)):
        drawn = numpy.zeros((2, 4, 4), numpy.uint8)
        drawn[:, 0] = (place % 251, place // 251, colour, 255)
        found[sequence(*combination)] = drawn
    return found


def _add_cbdt(font, bitmaps: Mapping[str, bytes], order: Sequence[str]) -> None:
    glyphs, own = {}, [name for name in order if name in bitmaps]
    for name in own:
        glyph = cbdt_bitmap_format_17(b"", font)
        glyph.metrics = SmallGlyphMetrics()
        for field in ("height", "width", "BearingX", "BearingY", "Advance"):
            setattr(glyph.metrics, field, 4)
        glyph.imageData = bitmaps[name]
        glyphs[name] = glyph
    strike, size = Strike(), BitmapSizeTable()
    for field in ("colorRef", "flags"):
        setattr(size, field, 0)
    size.ppemX = size.ppemY = 4
    size.bitDepth = 32
    for side in ("hori", "vert"):
        line = SbitLineMetrics()
        for field in ("ascender", "descender", "widthMax", "caretSlopeNumerator", "caretSlopeDenominator", "caretOffset",
                      "minOriginSB", "minAdvanceSB", "maxBeforeBL", "minAfterBL", "pad1", "pad2"):  # fmt: skip
            setattr(line, field, 0)
        setattr(size, side, line)
    index = eblc_index_sub_table_1(b"", font)
    index.names, index.indexFormat, index.imageFormat = own, 1, 17
    index.firstGlyphIndex, index.lastGlyphIndex = (font.getGlyphID(own[place]) for place in (0, -1))
    strike.bitmapSizeTable, strike.indexSubTables = size, [index]
    font["CBLC"], font["CBDT"] = newTable("CBLC"), newTable("CBDT")
    font["CBLC"].version = font["CBDT"].version = 3.0
    font["CBLC"].strikes, font["CBDT"].strikeData = [strike], [glyphs]


def _add_sbix(font, bitmaps: Mapping[str, bytes], order: Sequence[str]) -> None:
    strike = SbixStrike(ppem=4, resolution=72)
    for name in order:
        strike.glyphs[name] = Glyph(glyphName=name, graphicType="png " if name in bitmaps else None, imageData=bitmaps.get(name))
    font["sbix"] = newTable("sbix")
    font["sbix"].version, font["sbix"].flags, font["sbix"].numStrikes = 1, 1, 1
    font["sbix"].strikes = {4: strike}
