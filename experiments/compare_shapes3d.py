"""Compare the embedded Shapes3D with real images: mean absolute differences, and a picture (real above, rendered below).

python experiments/compare_shapes3d.py ../shared/data/samples/3dshapes docs/shapes3d_real_vs_rendered.png
"""

import csv
import sys
from pathlib import Path

import numpy
import torch
from PIL import Image

from compbench.data.shapes3d_renderer import Shapes3DRenderer

SHAPES = ("cube", "cylinder", "sphere", "capsule")


def read_real(folder: Path) -> tuple[numpy.ndarray, torch.Tensor, numpy.ndarray]:
    """Real images (25, 64, 64, 3), their estimated conditions (25, 6), and whether each has two materials of one hue."""
    images = numpy.load(folder / "recovered25_uint8_64x64.npy")
    with (folder / "recovered25_labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    conditions = [
        [
            *(round(10 * float(row[f"{part}_hue"])) % 10 for part in ("floor", "wall", "object")),
            int(row["scale_idx_0_7"]),
            SHAPES.index(row["shape"]),
            int(row["orientation_idx_0_14"]),
        ]
        for row in rows
    ]
    return images, torch.tensor(conditions), numpy.array([row["hue_collision"] == "1" for row in rows])


def main(folder: Path, picture: Path) -> None:
    real, conditions, collision = read_real(folder)
    rendered = Shapes3DRenderer()(conditions).permute(0, 2, 3, 1).numpy()
    difference = numpy.abs(real.astype(int) - rendered.astype(int)).mean(axis=(1, 2, 3))
    for index, value in enumerate(difference):
        print(f"image {index:2d}: {value:5.2f} {'(two materials of one hue)' if collision[index] else ''}")
    print(f"mean absolute difference of 255: {difference.mean():.2f} over all {len(real)},", end=" ")
    print(f"{difference[~collision].mean():.2f} over the {int((~collision).sum())} without equal hues")
    rows = []
    for start in range(0, 25, 9):
        for block in (real, rendered):
            tiles = [*block[start : start + 9]]
            tiles += [numpy.full((64, 64, 3), 255, numpy.uint8)] * (9 - len(tiles))
            rows.append(numpy.concatenate(tiles, axis=1))
        rows.append(numpy.full((6, 64 * 9, 3), 255, numpy.uint8))
    Image.fromarray(numpy.concatenate(rows[:-1])).resize((1152, 64 * 12 + 24), Image.Resampling.NEAREST).save(
        picture, optimize=True
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
