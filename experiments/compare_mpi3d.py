"""Compare the embedded MPI3D with real pictures: for each factor, frames of the real animation above, rendered ones below.

    python experiments/compare_mpi3d.py ../shared/data/samples/mpi3d docs/mpi3d_real_vs_rendered.png

The animation has seven 64 x 64 panels, one factor each; which axis positions its frames show is not published.
"""

import sys
from pathlib import Path

import numpy
import torch
from PIL import Image, ImageSequence

from compbench.data.mpi3d_renderer import SIZES, MPI3DRenderer

FRAMES = 8
BASE = [2, 0, 1, 1, 0, 18, 7]
"""Red, cone, large, centre camera, purple, and the axis positions that look like the animation's first frame."""


def main(folder: Path, picture: Path) -> None:
    with Image.open(folder / "real1.gif") as animation:
        frames = [numpy.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(animation)]
    renderer = MPI3DRenderer()
    rows = []
    for factor, size in enumerate(SIZES):
        top, left = (6, 10 + 74 * factor) if factor < 4 else (80, 10 + 74 * (factor - 4))
        chosen = numpy.linspace(0, len(frames) - 1, FRAMES).round().astype(int)
        real = [frames[index][top : top + 64, left : left + 64] for index in chosen]
        conditions = torch.tensor([BASE] * FRAMES)
        conditions[:, factor] = torch.linspace(0, size - 1, FRAMES).round().long()
        rendered = renderer(conditions).permute(0, 2, 3, 1).numpy()
        rows += [numpy.concatenate([*real, numpy.full((64, 8, 3), 255, numpy.uint8), *rendered], axis=1)]
        rows += [numpy.full((4, rows[0].shape[1], 3), 255, numpy.uint8)]
    Image.fromarray(numpy.concatenate(rows[:-1])).save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
