"""Draw the pictures of the board's questions, `compbench/board/questions/*.png`, all of them or some by name.

    python experiments/question_pictures.py [NAME ...]

Each picture has two tiles of combinations that are in the training data, a gap, and one tile of a combination that shares a value
with each of the two and is never seen.  The tiles are drawn from the tasks' own data, except for plans, which need a simulator
and are cut from a published sample picture.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy
import torch
from PIL import Image
from torch import Tensor

from compbench.api.interfaces import Task
from compbench.board import question_table
from compbench.registry.registry import Registry

SIDE, GAP, BREAK = 64, 2, 10
"""Pixels of a tile, between seen tiles, and before the unseen one."""
SEEN, UNSEEN = numpy.array([64, 110, 150]), numpy.array([214, 106, 30])
ROOT = Path(__file__).parents[1]
EMOJI = (("astronaut", "light"), ("singer", "medium-dark"), ("astronaut", "medium-dark"))
SERIF = "serif"
SOLVED = (0, 4, 7, 5, 2, 6, 1, 3)
"""Columns of eight queens, by row; no queen attacks another."""
PLANS = "leaderboards/records/planning-noniid.dcfm-b.standard.s0.*.samples.png"


def tiled(pictures: Sequence[numpy.ndarray]) -> Image.Image:
    """Two seen tiles and an unseen one, (H, W, 3) each, side by side on white."""
    tiles = [Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.LANCZOS) for picture in pictures]
    whole = Image.new("RGBA", (3 * SIDE + GAP + BREAK, SIDE), (0, 0, 0, 0))
    for tile, left in zip(tiles, (0, SIDE + GAP, 2 * SIDE + GAP + BREAK), strict=True):
        whole.paste(tile, (left, 0))
    return whole


def combinations(
    task: str, unseen: tuple[int, int], seen: tuple[tuple[int, int], tuple[int, int]], rest: dict[str, int]
) -> Tensor:
    """Conditions (3, F) of two seen cells and an unseen one of the holdout's pair, with the other factors fixed.

    Raises:
        AssertionError: a cell that should be seen is held out, or the reverse.
    """
    known = Registry().load("tasks", task)
    pattern = [factor.name for factor in known.holdout.pattern_space.factors]
    held = set(known.holdout.cells)
    assert unseen in held, (task, sorted(held)[:5])
    assert not held & set(seen), task
    names = names_of(known)
    conditions = torch.tensor([[rest.get(name, 0) for name in names]] * 3)
    for line, cell in enumerate((*seen, unseen)):
        for name, value in zip(pattern, cell, strict=True):
            conditions[line, names.index(name)] = value
    return conditions


def names_of(task: Task) -> list[str]:
    """The names of a task's factors, in the order of its conditions."""
    return [factor.name for factor in task.space.factors]


def shapes(task: str, unseen: tuple[int, int], seen: tuple[tuple[int, int], tuple[int, int]]) -> list[numpy.ndarray]:
    from compbench.data.lattice import choose_source, open_images
    from compbench.data.lattices import SHAPES3D

    cache = ROOT / "build"
    source = choose_source(SHAPES3D, cache, "embedded")
    images = open_images(SHAPES3D, source, data=cache, cache=cache, device=torch.device("cpu"))
    rest = {"floor hue": 7, "wall hue": 6, "scale": 6, "orientation": 7}
    pictures = images(combinations(task, unseen, seen, rest))  # (3, 3, 64, 64)
    return [picture.permute(1, 2, 0).numpy() for picture in pictures]


def emoji() -> list[numpy.ndarray]:
    """Drawings of two seen pairs of role and skin tone, and of the pair that seed 0 of emoji-medium holds out."""
    from compbench.data.emoji_drawings import PERSONS, ROLES, TONES, drawings, located
    from compbench.system.home import Home
    from compbench.tasks.emoji import Settings, pattern_of

    settings = Registry().load("tasks", "emoji-medium").settings
    assert isinstance(settings, Settings)
    held = set(pattern_of("medium", settings, 0).cells)
    cells = [(ROLES.index(role), list(TONES).index(tone)) for role, tone in EMOJI]
    assert [cell in held for cell in cells] == [False, False, True]
    pictures = drawings(located(Home.of_user().data, settings.font)).pictures
    pictures = pictures.reshape(len(ROLES), len(PERSONS), len(TONES), *pictures.shape[-3:])
    return [pictures[role, list(PERSONS).index("person"), tone].transpose(1, 2, 0) for role, tone in cells]


def letters() -> list[numpy.ndarray]:
    """A letter in another typeface, another letter in one typeface, and the first letter in that typeface, which is held out."""
    from compbench.data.letters import FILES, LETTERS, MARGIN, drawn

    held = set(Registry().load("tasks", "glyph-light").holdout.cells)
    faces, face = list(FILES), list(FILES).index(SERIF)
    unseen = [number for number in range(len(LETTERS)) if (number, face) in held]
    letter = max(unseen, key=lambda number: LETTERS[number] in "gra")  # one whose serifs show
    other = next(number for number, name in enumerate(LETTERS) if name in "nmhu" and (number, face) not in held)
    elsewhere = next(number for number in range(len(faces)) if number != face and (letter, number) not in held)
    made = drawn()[:, :, 0, 0, -1, MARGIN:-MARGIN, MARGIN:-MARGIN]
    cells = [(letter, elsewhere), (other, face), (letter, face)]
    return [(255 - made[cell])[..., None].repeat(3, 2) for cell in cells]


def queens() -> list[numpy.ndarray]:
    """Boards with a queen in each row, with a queen in each column, and with both and no two on a diagonal."""
    from compbench.data.constraint_laws import BlockLaw, violations
    from compbench.tasks.constraints import KINDS, puzzle_of

    puzzle = puzzle_of(KINDS["queens-8"], KINDS["queens-8"].settings)
    laws = {name: BlockLaw.of(puzzle.dimension, lines) for name, lines in puzzle.groups.items()}
    solved = -torch.ones(8, 8, dtype=torch.float64)
    solved[range(8), SOLVED] = 1
    assert violations(list(laws.values()), solved.view(1, -1)).item() == 0
    boards = [laws[name].signs(1, torch.Generator().manual_seed(1)).view(8, 8) for name in ("rows", "columns")]
    return [board(signs) for signs in (*boards, solved)]


def board(signs: Tensor) -> numpy.ndarray:
    """A board (8, 8) of signs, positive where a queen stands."""
    from PIL import ImageDraw

    step = 4 * SIDE // 8
    image = Image.new("RGB", (4 * SIDE, 4 * SIDE))
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(signs.tolist()):
        for column, sign in enumerate(line):
            box = (column * step, row * step, (column + 1) * step, (row + 1) * step)
            draw.rectangle(box, fill=(238, 232, 213) if (row + column) % 2 else (205, 196, 168))
            if sign > 0:
                draw.ellipse((box[0] + 5, box[1] + 5, box[2] - 5, box[3] - 5), fill=(40, 40, 60))
    return numpy.asarray(image)


def sprites() -> list[numpy.ndarray]:
    from compbench.data.dsprites_renderer import DSpritesRenderer

    task = Registry().load("tasks", "dsprites-light")
    names = [factor.name for factor in task.holdout.pattern_space.factors]
    held = set(task.holdout.cells)
    unseen = max(held)
    seen = tuple(
        next(cell for cell in sorted(task.holdout.seen_cells, reverse=True) if cell[axis] == unseen[axis]) for axis in (0, 1)
    )
    assert names == ["shape", "orientation"]
    places = combinations("dsprites-light", unseen, seen, {})[:, [names_of(task).index(name) for name in names]]
    turns = 10 // {factor.name: factor.size for factor in task.space.factors}["orientation"]
    fine = torch.tensor([[shape, 5, turn * turns, 16, 16] for shape, turn in places.tolist()])
    return [picture.permute(1, 2, 0).numpy() for picture in DSpritesRenderer()(fine).expand(-1, 3, -1, -1)]


def clouds(groups: Sequence[tuple[Tensor, numpy.ndarray]], reach: float) -> numpy.ndarray:
    """Points (N, 2) of each group in its colour on white, over [-reach, reach] on both axes."""
    ink = numpy.zeros((SIDE, SIDE, 3))
    for points, colour in groups:
        counts, _, _ = numpy.histogram2d(points[:, 1].numpy(), points[:, 0].numpy(), SIDE, [[-reach, reach]] * 2)
        share = 1 - numpy.exp(-counts / max(1.0, numpy.quantile(counts[counts > 0], 0.6)))
        ink = numpy.maximum(ink, share[::-1, :, None] * (255 - colour))
    return (255 - ink).astype(numpy.uint8)


def plane(name: str, reach: float) -> list[numpy.ndarray]:
    """Two perturbed sources over their base, and the double perturbation."""
    from compbench.data.gaussians import base_composition
    from compbench.tasks.gaussian import distributions

    generator = torch.Generator().manual_seed(0)
    laws = distributions(name, Registry().load("tasks", name).settings)
    drawn = {cell: law.sample(1500, generator) for cell, law in laws.items()}
    target = base_composition(laws[1, 0], laws[0, 1], laws[0, 0], 1500, generator)
    return [clouds([(points, colour)], reach) for points, colour in ((drawn[1, 0], SEEN), (drawn[0, 1], SEEN), (target, UNSEEN))]


def blobs() -> list[numpy.ndarray]:
    from compbench.data.blob_mixture import HOLDOUT, MISSING, centre

    settings = Registry().load("tasks", "blobs-noniid").settings
    generator = torch.Generator().manual_seed(0)

    def points(cell: tuple[int, ...]) -> Tensor:
        return torch.tensor(centre(cell, settings)) + settings.std * torch.randn(500, 2, generator=generator)

    near = [cell for cell in HOLDOUT.seen_cells if sum(a != b for a, b in zip(cell, MISSING, strict=True)) == 1]
    far = next(cell for cell in HOLDOUT.seen_cells if cell not in near)
    return [clouds([(torch.cat([points(far), points(cell)]), SEEN)], 2.0) for cell in near] + [
        clouds([(points(MISSING), UNSEEN)], 2.0)
    ]


def bump() -> list[numpy.ndarray]:
    from compbench.data.bumps import bumps

    settings = Registry().load("tasks", "bump-center").settings
    middle, aside = (settings.first + settings.last) // 2, settings.size // 6
    places = torch.tensor([[middle, aside], [aside, middle], [middle, middle]])
    drawn = bumps(places, size=settings.size, sigma=settings.sigma)
    return [(255 * picture).to(torch.uint8).numpy()[..., None].repeat(3, 2) for picture in drawn]


def digits() -> list[numpy.ndarray]:
    from compbench.data.coloured_digits import coloured, embedded_digits
    from compbench.tasks.cmnist import PALETTE

    unseen, seen = (3, 8), ((3, 4), (7, 8))
    conditions = combinations("cmnist-noniid", unseen, seen, {})
    known, _ = embedded_digits()
    grey = torch.stack([known.images[(known.labels == digit).nonzero()[2, 0]] for digit in conditions[:, 0]])
    return [picture.permute(1, 2, 0).numpy() for picture in coloured(grey, conditions[:, 1], list(PALETTE.values()))]


def plans() -> list[numpy.ndarray]:
    """Moves to the right, downwards, and (never seen) to the right and downwards."""
    picture = numpy.asarray(Image.open(sorted(ROOT.glob(PLANS))[0]).convert("RGB"))
    top, left, height, width, down, across = 31, 8, 112, 217, 140, 226

    def tile(row: int, column: int) -> numpy.ndarray:
        y, x = top + row * down, left + column * across
        return picture[y : y + height, x : x + width]

    return [tile(0, 1), tile(0, 2), tile(0, 3)]


def main(asked: Sequence[str]) -> None:
    made = {
        "emoji": emoji(),
        "shapes-quarter": shapes("shapes3d-light", (0, 4), ((0, 1), (3, 4))),
        "shapes-half": shapes("shapes3d-medium", (1, 4), ((1, 1), (2, 4))),
        "shapes-three-quarters": shapes("shapes3d-heavy", (3, 4), ((3, 1), (0, 4))),
        "sprites": sprites(),
        "plane-near": plane("gmm-id", 6.0),
        "plane-far": plane("gmm-ood", 13.0),
        "bump": bump(),
        "digits": digits(),
        "blobs": blobs(),
        "plans": plans(),
        "letters": letters(),
        "queens": queens(),
    }
    assert set(made) == {question.picture for question in question_table.QUESTIONS if question.picture}
    for name, pictures in made.items():
        if asked and name not in asked:
            continue
        path = question_table.PICTURES / f"{name}.png"
        tiled(pictures).quantize(96, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
