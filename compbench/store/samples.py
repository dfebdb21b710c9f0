"""Samples from other sources, by condition.  They are checked when they are read, and handed out as a sampler would return them.

samples.npz                    arrays `samples` (N, *D) and `conditions` (N, F)
folder/conditions.csv          a header with the factors' names, one row per sample; and
folder/samples.npy             (N, *D); or a column `file` in the table that names one picture per row
Pictures may be uint8 with the channels last; otherwise an image's values lie in [-1, 1], or in the given range.
The files are the user's own, so links are followed, and tables may have the form that spreadsheets and pandas write.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
import zipfile
import zlib
from collections import defaultdict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compbench.api.factors import NULL, FactorSpace, excluding
from compbench.api.interfaces import Event, Request
from compbench.system.errors import CompbenchError
from compbench.system.files import write_atomically

if TYPE_CHECKING:
    import numpy
    from PIL import Image
    from torch import Tensor

SAMPLES, CONDITIONS, TABLE = "samples", "conditions", "conditions.csv"
KEPT = (SAMPLES, CONDITIONS)
SAMPLES_FILE = "samples.npz"
"""Name of the file that a run keeps with `--keep-samples`."""
MOST_BYTES = 2**33
MOST_PICTURE_BYTES = 2**24
UNREADABLE = (OSError, ValueError, EOFError, LookupError, ArithmeticError, MemoryError, RuntimeError, SyntaxError, zlib.error)
"""Readers of arrays and archives raise one of these errors if the bytes are damaged or have another format."""
RANGE_SLACK = 0.05
"""An image's values may exceed [-1, 1] by this much, because a sampler does not clip."""


class SamplePool:
    """Samples by condition, each handed out once, in the order of the file.

    Attributes:
        sha256: hash of samples and conditions.
    """

    def __init__(self, conditions: numpy.ndarray, samples: numpy.ndarray, space: FactorSpace) -> None:
        import torch

        self._samples, self._space = torch.from_numpy(samples), space
        self._rows: dict[tuple[int, ...], deque[int]] = defaultdict(deque)
        for row, condition in enumerate(conditions.tolist()):
            self._rows[tuple(condition)].append(row)
        self._counts = {condition: len(rows) for condition, rows in self._rows.items()}
        self.sha256 = hashlib.sha256(conditions.tobytes() + samples.tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def num_unused(self) -> int:
        """The number of samples that have not been handed out."""
        return sum(map(len, self._rows.values()))

    def answer(self, request: Request, stream: str) -> Tensor:
        """The next samples of the requested conditions, (B, *D).

        Raises:
            CompbenchError: a condition has no samples, or too few.
        """
        rows = [self._next(tuple(condition), stream) for condition in request.condition.tolist()]
        return self._samples[rows]

    def _next(self, condition: tuple[int, ...], stream: str) -> int:
        if rows := self._rows.get(condition):
            return rows.popleft()
        described = ", ".join(f"{name}={value}" for name, value in zip(self._space.names, condition, strict=True))
        have = self._counts.get(condition, 0)
        found = f"and all {have} of these samples are used" if have else f"and none of the {len(self)} samples has it"
        raise CompbenchError(
            f"too few samples: '{stream}' asks for one more of {described}, {found}; "
            "`compbench score --requests FILE` writes all requested conditions."
        )


def read_pool(
    path: Path,
    space: FactorSpace,
    event: Event,
    *,
    negates: bool = False,
    value_range: tuple[float, float] | None = None,
) -> SamplePool:
    """Read and check samples from a file or a folder.

    Args:
        path: an npz file, or a folder with conditions.csv.
        space, event: the task's factor space and event.
        negates: whether the task's conditions may exclude values; labels may then exclude values, too.
        value_range: values of black and of white in images; None means [-1, 1], if that is plausible.

    Raises:
        CompbenchError: what is wrong with them, in one line.
    """
    try:
        conditions, samples = _of_folder(path, space, event) if os.path.isdir(path) else _of_npz(path)
        labels = _labels(conditions, space, negates=negates)
        return SamplePool(labels, _values(samples, event, len(conditions), value_range), space)
    except CompbenchError as error:
        raise CompbenchError(f"{path}: {error}") from error


def _of_npz(path: Path) -> tuple[numpy.ndarray, numpy.ndarray]:
    import numpy

    try:
        if sum(entry.file_size for entry in zipfile.ZipFile(path).infolist()) > MOST_BYTES:
            raise CompbenchError(f"holds more than {MOST_BYTES} bytes.")
        with numpy.load(path, allow_pickle=False) as file:
            missing = {SAMPLES, CONDITIONS} - set(file.files)
            if missing:
                there = ", ".join(file.files[:10]) or "nothing"
                raise CompbenchError(f"has no array '{sorted(missing)[0]}'; it holds {there}.")
            return _an_array(file[CONDITIONS]), _an_array(file[SAMPLES])
    except FileNotFoundError as error:
        raise CompbenchError("there is no such file.") from error
    except (*UNREADABLE, zipfile.BadZipFile) as error:
        raise CompbenchError(f"is not an npz file of arrays, or is damaged ({' '.join(str(error).split())[:100]}).") from error


def _an_array(found: object) -> numpy.ndarray:
    """The loaded object, if it is one array; raises ValueError for an archive and for other bytes."""
    import numpy

    if not isinstance(found, numpy.ndarray):
        raise ValueError("it is not one array")
    return found


def _of_folder(path: Path, space: FactorSpace, event: Event) -> tuple[numpy.ndarray, numpy.ndarray]:
    import numpy

    rows = _table(path / TABLE)
    if not rows:
        raise CompbenchError(f"{TABLE} has no rows.")
    missing = [name for name in space.names if name not in rows[0]]
    if missing:
        header = ", ".join(name or "''" for name in rows[0])[:300]
        names = ", ".join(space.names)
        raise CompbenchError(f"{TABLE} has no column '{missing[0]}'; its header is {header}, and the factors are {names}.")
    try:
        conditions = numpy.array([[float(row[name]) for name in space.names] for row in rows])
    except (TypeError, ValueError) as error:
        raise CompbenchError(f"{TABLE}: conditions are whole numbers; {str(error)[:100]}.") from error
    if rows[0].get("file"):
        return conditions, _pictures([path / row["file"] for row in rows], grey=event.shape[0] == 1)
    try:
        return conditions, _an_array(numpy.load(path / "samples.npy", allow_pickle=False))
    except (*UNREADABLE, zipfile.BadZipFile) as error:
        raise CompbenchError(f"samples.npy cannot be read ({' '.join(str(error).split())[:100]}).") from error


def _table(path: Path) -> list[dict[str, str]]:
    """Rows of a table in UTF-8 or UTF-16, separated by commas, semicolons or tabs, as spreadsheets write them."""
    raw = _own_file(path, MOST_BYTES)
    try:
        text = raw.decode("utf-16" if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig")
        lines = text.splitlines()
        header = lines[0] if lines else ""
        found = csv.DictReader(lines, delimiter=max(",;\t", key=header.count), skipinitialspace=True)
        found.fieldnames = [name.strip() for name in found.fieldnames or ()]
        return [{name: str(value or "").strip() for name, value in row.items() if name is not None} for row in found]
    except UnicodeDecodeError as error:
        raise CompbenchError(f"{path.name} {error}") from error
    except csv.Error as error:
        raise CompbenchError(f"{path.name} is not a table of comma-separated values ({error}).") from error


def _own_file(path: Path, limit: int) -> bytes:
    """The bytes of a user's file, which may be a link; a pipe or a device is refused."""
    try:
        if not path.is_file():
            raise CompbenchError(f"{path.name} cannot be read: there is no such file.")
        if (size := path.stat().st_size) > limit:
            raise CompbenchError(f"{path.name} is {size} bytes long; at most {limit} are read.")
        return path.read_bytes()
    except OSError as error:
        raise CompbenchError(f"{path.name} cannot be read: {error.strerror or error}.") from error


def _pictures(files: list[Path], *, grey: bool) -> numpy.ndarray:
    """Pictures of one size as uint8, (N, H, W, 3), or (N, H, W, 1) for an event of one channel."""
    import numpy
    from PIL import Image

    pictures = []
    for file in files:
        content = _own_file(file, MOST_PICTURE_BYTES)
        try:
            with Image.open(io.BytesIO(content)) as picture:
                pictures.append(_pixels(picture, grey=grey))
        except (CompbenchError, OSError, ValueError, Image.DecompressionBombError) as error:
            raise CompbenchError(f"{file.name} cannot be read as a picture ({str(error)[:100]}).") from error
        if pictures[-1].shape != pictures[0].shape:
            raise CompbenchError(f"{file.name} is {pictures[-1].shape[:2]} pixels, {files[0].name} {pictures[0].shape[:2]}.")
    return numpy.stack(pictures)


def _pixels(picture: Image.Image, *, grey: bool) -> numpy.ndarray:
    """A picture as uint8 (H, W, C); 16 bits are scaled, where Pillow's own conversion would clip at 255."""
    import numpy
    from PIL import Image

    if picture.mode == "F":
        raise ValueError("32-bit floating point has no white; save it with 8 or 16 bits")
    if picture.mode.startswith("I"):  # 16 bits of grey
        picture = Image.fromarray(numpy.rint(numpy.asarray(picture, numpy.float64) / 257).clip(0, 255).astype(numpy.uint8))
    pixels: numpy.ndarray = numpy.asarray(picture.convert("L" if grey else "RGB"))
    return pixels[..., None] if grey else pixels


def _labels(found: numpy.ndarray, space: FactorSpace, *, negates: bool) -> numpy.ndarray:
    """Conditions (N, F) as int64, each a combination of the space; where a task negates, a value may be excluded (-2 - v)."""
    import numpy

    if found.ndim != 2 or found.shape[1] != len(space) or not len(found):
        raise CompbenchError(f"conditions must have shape (N, {len(space)}) for {', '.join(space.names)}, got {found.shape}.")
    if found.dtype.kind not in "iuf" or not (numpy.isfinite(found).all() and (found == numpy.rint(found)).all()):
        raise CompbenchError(f"conditions are whole numbers, got {found.dtype}.")
    labels: numpy.ndarray = found.astype(numpy.int64)
    for place, (name, size) in enumerate(zip(space.names, space.sizes, strict=True)):
        values = labels[:, place]
        values = numpy.where(values < NULL, excluding(values), values) if negates else values
        outside = numpy.flatnonzero((values < 0) | (values >= size))
        if len(outside):
            row = int(outside[0])
            raise CompbenchError(
                f"label {found[row, place]} of '{name}' in row {row} is out of range; it has values 0 to {size - 1}."
            )
    return labels


def _values(found: numpy.ndarray, event: Event, count: int, value_range: tuple[float, float] | None) -> numpy.ndarray:
    """Samples (N, *D) as float32, finite; images in [-1, 1]."""
    import numpy

    shape, image = (count, *event.shape), event.kind == "image"
    if value_range is not None and not image:
        raise CompbenchError("--range is for images; the values of other samples are taken as they are.")
    if image and found.ndim == 4 and found.shape == (count, *event.shape[1:], event.shape[0]):
        found = numpy.moveaxis(found, -1, 1)  # channels last
    if found.shape != shape:
        raise CompbenchError(f"samples must have shape {shape}, one for each row of the conditions, got {found.shape}.")
    if image and found.dtype == bool:
        found, value_range = found.astype(numpy.float32), value_range or (0.0, 1.0)
    if found.dtype.kind != "f" and not (image and (found.dtype == numpy.uint8 or (value_range and found.dtype.kind in "iu"))):
        raise CompbenchError(f"samples must be floating point{' or uint8' * image}, got {found.dtype}.")
    values = numpy.ascontiguousarray(found, dtype=numpy.float32)
    finite = numpy.isfinite(values).reshape(count, -1).all(1)
    if not finite.all():
        raise CompbenchError(f"{int((~finite).sum())} of {count} samples hold NaN or infinity, row {int(finite.argmin())} first.")
    return _scaled(values, found.dtype == numpy.uint8, value_range) if image else values


def _scaled(values: numpy.ndarray, bytes_: bool, value_range: tuple[float, float] | None) -> numpy.ndarray:
    """Images with black at -1 and white at 1.

    Raises:
        CompbenchError: the values do not fit the range, or no range was given and two are plausible: if all values lie in
        [0, 1], black may be -1 or 0 (for uint8: white may be 255 or 1).
    """
    least, most = float(values.min()), float(values.max())
    given, usual = value_range is not None, (0.0, 255.0) if bytes_ else (-1.0, 1.0)
    low, high = value_range or usual
    if not given and least >= 0 and most <= 1:
        other = "0,1"
        raise CompbenchError(
            f"the images' values lie in [{least:.3g}, {most:.3g}], which has two readings: use --range {other} if 0 is black and "
            f"1 is white, or --range {usual[0]:g},{usual[1]:g} if {usual[0]:g} is black and {usual[1]:g} is white."
        )
    slack = RANGE_SLACK * (high - low) / 2
    if least < low - slack or most > high + slack:
        reach = most if most > high + slack else least
        described = f"images lie in [{low:g}, {high:g}]" if given else "images lie in [-1, 1], or are uint8"
        raise CompbenchError(f"{described}; these reach {reach:.4g}{'' if given else ' (--range LOW,HIGH names another range)'}.")
    return values if (low, high) == (-1.0, 1.0) else (values - low) * (2 / (high - low)) - 1


class Recorder:
    """Keeps requests and answers, one after the other."""

    def __init__(self) -> None:
        self._parts: dict[str, list[numpy.ndarray]] = defaultdict(list)
        self._streams: list[str] = []

    def note(self, request: Request, stream: str, samples: Tensor) -> None:
        """Keep one request, its stream, and its checked samples (B, *D)."""
        import torch

        known = torch.full_like(request.x0, torch.nan)
        if request.known is not None and request.known_mask is not None:
            known = torch.where(request.known_mask, request.known, known)
        for name, value in ((CONDITIONS, request.condition), (SAMPLES, samples), ("x0", request.x0), ("known", known)):
            self._parts[name].append(value.detach().cpu().numpy())
        self._streams += [stream] * len(samples)

    def arrays(self, *names: str) -> dict[str, numpy.ndarray]:
        """All requests, concatenated: "conditions", "samples", "x0", "known" (NaN where free), "stream"."""
        import numpy

        return {name: numpy.array(self._streams) if name == "stream" else numpy.concatenate(self._parts[name]) for name in names}


def write_pool(path: Path, arrays: dict[str, numpy.ndarray]) -> None:
    """Write an npz file, whole or not at all.  Raises Unwritable."""
    import numpy

    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **cast(Any, arrays))
    write_atomically(path, buffer.getvalue())
