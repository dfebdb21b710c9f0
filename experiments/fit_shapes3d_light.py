"""Fit the light of the embedded Shapes3D to real images and print its constants in `compbench/data/shapes3d_renderer.py`.

    python experiments/fit_shapes3d_light.py ../shared/data/samples/3dshapes

The folder has recovered25_uint8_64x64.npy and recovered25_labels.csv.  Each surface gets a quadratic in three coordinates
(column, row, camera angle; for the object its normal), by least squares on the channels that are neither clipped nor dark.
"""

import sys
from pathlib import Path

import torch
from compare_shapes3d import read_real

from compbench.data import shapes3d_renderer as renderer


def main(folder: Path) -> None:
    real, conditions, _ = read_real(folder)
    images = torch.from_numpy(real).float() / 255  # (25, 64, 64, 3)
    gathered: dict[str, list] = {name: [] for name in ("floor", "back", "right", "left", "object", "shadow")}
    for image, (*hues, scale, shape, orientation) in zip(images, conditions.tolist(), strict=True):
        surface, pure = _pure(renderer.trace(scale, shape, orientation))
        pixels = image.reshape(-1, 3)
        for name, mask, coordinates, hue in (
            ("floor", pure["floor"] & ~surface.shadow, surface.place, 0),
            ("shadow", pure["floor"] & surface.shadow, surface.place, 0),
            ("back", pure["wall"] & (surface.facing == 0), surface.place, 1),
            ("right", pure["wall"] & (surface.facing == 1), surface.place, 1),
            ("left", pure["wall"] & (surface.facing == 2), surface.place, 1),
            ("object", pure["object"], surface.normal, 2),
        ):
            colour = torch.tensor(renderer.hue_colour(hues[hue] / 10))
            for channel in range(3):
                if colour[channel] < 0.3:
                    continue
                value = pixels[:, channel]
                usable = mask & (value < 0.985) & (value > 0.02)
                gathered[name].append((coordinates[usable], value[usable] / colour[channel]))
    print("FLOOR =", _fit(gathered["floor"]))
    print("WALL = (")
    for name in ("back", "right", "left"):
        print(f"    {_fit(gathered[name])},")
    print(")")
    print("OBJECT =", _fit(gathered["object"]))
    shadow = torch.cat([value for _, value in gathered["shadow"]])
    print(f"SHADOW = {shadow.median().item():.3f}")
    print("HIGHLIGHT = (0.2, 30.0, -0.35, -0.75, 0.55)")
    print('"""Strength, exponent and direction (right, away, up in the camera\'s frame) of the grey highlight."""')


def _pure(surface: renderer.Surface) -> tuple[renderer.Surface, dict]:
    """One ray per pixel (the middle one), and masks of pixels for which all rays agree."""
    rays = renderer.SAMPLES**2
    middle = renderer.Surface(*(part.view(4096, rays, *part.shape[1:])[:, rays // 2] for part in surface))
    masks = {name: getattr(surface, name).view(4096, rays).all(1) for name in ("floor", "wall", "object")}
    return middle, masks


def _fit(samples: list) -> tuple:
    x = torch.cat([coordinates for coordinates, _ in samples])
    y = torch.cat([value for _, value in samples])
    design = renderer.monomials(x).double()
    y = y.double()
    ridge = 1e-3 * len(y) * torch.eye(10, dtype=torch.float64)
    ridge[0, 0] = 0
    weight = torch.ones_like(y)
    for _ in range(20):  # reweighted: pixels on misaligned edges and highlights are outliers
        a = design.T @ (design * weight[:, None]) + ridge * 0.01
        solution = torch.linalg.solve(a, design.T @ (y * weight))
        weight = 1 / (1 + ((design @ solution - y) / 0.05).square())
    return tuple(round(value, 3) for value in solution.tolist())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
