"""Pictures of samples that a record keeps: every held-out cell, real above generated, and one cell during training.

A board has hundreds of pictures, so each must take only tens of kilobytes: pictures have palettes, tiles are halved if there are
many cells, and a run has at most `MOST_PICTURES` pictures.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from compbench.store.cell_picture import FILM, HELDOUT, CellPicture, with_facts

if TYPE_CHECKING:
    import numpy
    from PIL import Image
    from torch import Tensor

    from compbench.api.factors import Holdout
    from compbench.api.interfaces import Request

    Real = Callable[[Tensor], Tensor | None]

STREAM = "heldout"
"""A task asks for held-out combinations in this stream."""
MOST_SHIFT = 4.0
"""A palette may change a picture's values by this much on average, out of 255."""
PALETTES = (64, 256)
"""A picture of samples may have one of these numbers of colours."""
MOST_BYTES = 60_000
"""A picture of cells has at most this many bytes, unless even the fewest colours need more."""
FEWER = (128, 64, 32, 16)
"""Numbers of colours of a picture of cells, in the order in which they are tried."""
WHOLE, HALVED = 36, 96
"""A picture has at most WHOLE tiles of full size, or HALVED tiles of half the side."""
MOST_PICTURES = 4
PER_CELL, FEW_TILES, FILM_TILES = 8, 20, 3
"""A cell is shown by up to PER_CELL samples while there are few tiles; a film has FILM_TILES samples at each point."""
SMALL_SIDE = 32
"""Tiles of this side or less are not halved."""


class HeldoutSamples:
    """The first samples of each held-out cell that the task requests.

    Args:
        holdout: the holdout whose factors define a cell.
    """

    def __init__(self, holdout: Holdout) -> None:
        self._factors = list(holdout.factors)
        self._kept: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}

    def note(self, request: Request, stream: str, samples: Tensor) -> None:
        """Keep samples of a request with its checked samples; requests of other streams are ignored."""
        if stream != STREAM or not self._factors or request.known is not None:
            return
        for condition, sample in zip(request.condition.cpu(), samples.cpu(), strict=True):
            cell = tuple(condition[self._factors].tolist())
            kept = self._kept.setdefault(cell, [])
            if len(kept) < PER_CELL and min(cell) >= 0:
                kept.append((condition, sample))

    def pictures(self, real: Real, *, film: bool) -> Mapping[str, bytes]:
        """PNG files by name.

        Args:
            real: full conditions (N, F) -> a real picture of each, uint8 (N, C, H, W), or None if the task has none.
            film: whether to add the picture of one cell, the middle one.
        """
        cells = sorted(cell for cell, kept in self._kept.items() if kept)
        if not cells:
            return {}
        found = {}
        rows = [(cell, *pair) for cell in _spread(cells, MOST_PICTURES * HALVED) for pair in self._some(cell, len(cells))]
        small = len(rows) > WHOLE
        for place, own in enumerate(_split(rows, HALVED if small else WHOLE)):
            found[f"{HELDOUT}-{place + 1}"] = _drawn(own, real, len(cells), small=small)
        if film:
            middle = cells[len(cells) // 2]
            own = [(middle, *pair) for pair in self._kept[middle][:FILM_TILES]]
            found[FILM] = _drawn(own, real, len(cells), small=False)
        return found

    def _some(self, cell: tuple[int, ...], num_cells: int) -> list[tuple[Tensor, Tensor]]:
        return self._kept[cell][: max(1, FEW_TILES // num_cells)]


Row = tuple[tuple[int, ...], "Tensor", "Tensor"]


def _spread(cells: Sequence[tuple[int, ...]], most: int) -> list[tuple[int, ...]]:
    """At most `most` of the cells, evenly spaced."""
    step = max(1.0, len(cells) / most)
    return [cells[int(step * place)] for place in range(min(len(cells), most))]


def _split(rows: Sequence[Row], most: int) -> Iterator[Sequence[Row]]:
    """Split rows into parts of nearly equal length, each of at most `most` rows."""
    count = -(-len(rows) // most)
    for part in range(count):
        yield rows[part * len(rows) // count : (part + 1) * len(rows) // count]


def _drawn(rows: Sequence[Row], real: Real, num_cells: int, *, small: bool) -> bytes:
    import numpy
    import torch
    from PIL import Image

    made = to_uint8(torch.stack([sample for _, _, sample in rows]))
    true = real(torch.stack([condition for _, condition, _ in rows]))
    blocks = [made] if true is None else [true.cpu(), made]
    columns = min(len(rows), max(1, round((2 * len(rows)) ** 0.5)))
    tiles = [_three(block.numpy()) for block in blocks]
    height, width = tiles[0].shape[1:3]
    halved = small and min(height, width) > SMALL_SIDE
    bands = []
    for first in range(0, len(rows), columns):
        for block in tiles:
            own = list(block[first : first + columns])
            bands.append(numpy.concatenate([*own, *[numpy.full_like(block[0], 255)] * (columns - len(own))], axis=1))
    picture = Image.fromarray(numpy.concatenate(bands))
    if halved:
        picture = picture.crop((0, 0, columns * (width // 2 * 2), len(bands) * (height // 2 * 2))).reduce(2)
    side = (height // 2, width // 2) if halved else (height, width)
    cells = tuple(cell for cell, _, _ in rows)
    return with_facts(
        limited_png(picture), CellPicture(side=side, columns=columns, cells=cells, real=true is not None, of=num_cells)
    )


def to_uint8(samples: Tensor) -> Tensor:
    """Samples in [-1, 1] as uint8 pictures, clipped and rounded."""
    import torch

    return samples.clamp(-1, 1).add(1).mul(127.5).round().to(torch.uint8)


def _three(images: numpy.ndarray) -> numpy.ndarray:
    """Pictures (N, C, H, W) of one or three channels as (N, H, W, 3)."""
    return images.transpose(0, 2, 3, 1).repeat(3 if images.shape[1] == 1 else 1, axis=3)


def limited_png(picture: Image.Image) -> bytes:
    """A PNG of at most `MOST_BYTES`, with as many colours as that allows; up to 256 colours are kept exactly."""
    import numpy
    from PIL import Image

    if picture.getcolors(256) is not None:
        colours_there, places = numpy.unique(numpy.asarray(picture).reshape(-1, 3), axis=0, return_inverse=True)
        exact = Image.fromarray(places.reshape(picture.height, picture.width).astype(numpy.uint8))
        exact.putpalette(colours_there.ravel().tolist())
        if len(content := _saved(exact)) <= MOST_BYTES:
            return content
    content = b""
    sampled = picture.resize((-(-picture.width // 3), -(-picture.height // 3)), Image.Resampling.NEAREST)
    for colours in FEWER:
        palette = sampled.quantize(colours, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        content = _saved(picture.quantize(palette=palette, dither=Image.Dither.NONE))
        if len(content) <= MOST_BYTES:
            break
    return content


def small_png(picture: numpy.ndarray) -> bytes:
    """A picture (H, W, 3) as a PNG of an eighth to half of the usual size, because a board has hundreds of pictures.

    It gets the smallest palette that changes its values by no more than `MOST_SHIFT` on average.  A picture with too many colours
    for any palette gets 32 levels per channel, so no value changes by more than 4 of 255, and black and white stay exact.
    """
    import numpy
    from PIL import Image

    values = picture.astype(int)
    for colours in PALETTES:
        drawn = Image.fromarray(picture).quantize(colours, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        if numpy.abs(numpy.asarray(drawn.convert("RGB"), int) - values).mean() <= MOST_SHIFT:
            break
    else:
        levels = (values * 31 + 127) // 255
        drawn = Image.fromarray(((levels * 255 + 15) // 31).astype(numpy.uint8))
    return _saved(drawn)


def _saved(drawn: Image.Image) -> bytes:
    buffer = io.BytesIO()
    drawn.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
