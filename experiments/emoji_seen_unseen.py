"""Illustrate *seen* and *unseen* with real pictures: some roles in all skin tones of emoji-medium, with held-out cells marked.

    python experiments/emoji_seen_unseen.py --output docs/emoji_seen_unseen.png
    python experiments/emoji_seen_unseen.py --task emoji-heavy --seed 3

Framed cells are held out at that seed: a model is trained on the others and must generate these.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy
from PIL import Image, ImageDraw, ImageFont

from compbench.api.factors import Holdout
from compbench.data.emoji_drawings import PERSONS, ROLES, TONES, drawings, located
from compbench.registry.registry import Registry
from compbench.system.home import Home
from compbench.tasks.emoji import Settings, pattern_of

SHOWN = ("health worker", "farmer", "astronaut", "singer", "detective", "juggling")
PERSON = "person"
TILE, PAD, FRAME = 64, 8, 3
LEFT, TOP, BELOW = 118, 30, 34
INK, SOFT, UNSEEN = "#17191c", "#545d66", "#b45309"


def grid(pictures: numpy.ndarray, holdout: Holdout, roles: tuple[str, ...]) -> Image.Image:
    """The cells of some roles in all tones, one row per role.

    Args:
        pictures: all drawings, uint8 (roles, persons, tones, 3, H, W).
        holdout: pairs of role and tone that are never seen.
        roles: names of the rows.
    """
    step, font = TILE + 2 * PAD, ImageFont.load_default(13)
    whole = Image.new("RGB", (LEFT + step * len(TONES) + PAD, TOP + step * len(roles) + BELOW), "white")
    pen, held = ImageDraw.Draw(whole), set(holdout.cells)
    for column, tone in enumerate(TONES):
        pen.text((LEFT + step * column + step // 2, TOP // 2 + 4), tone, fill=SOFT, font=font, anchor="mm")
    for row, role in enumerate(roles):
        pen.text((LEFT - 8, TOP + step * row + step // 2), role, fill=INK, font=font, anchor="rm")
        for column in range(len(TONES)):
            cell = ROLES.index(role), column
            drawn = pictures[cell[0], list(PERSONS).index(PERSON), column].transpose(1, 2, 0)
            left, top = LEFT + step * column + PAD, TOP + step * row + PAD
            whole.paste(Image.fromarray(drawn), (left, top))
            if cell in held:
                box = (left - FRAME - 1, top - FRAME - 1, left + TILE + FRAME, top + TILE + FRAME)
                pen.rounded_rectangle(box, radius=6, outline=UNSEEN, width=FRAME)
    foot = whole.height - BELOW // 2
    left = LEFT + PAD
    pen.rounded_rectangle((left, foot - 8, left + 16, foot + 8), radius=3, outline=UNSEEN, width=FRAME)
    pen.text((left + 24, foot), "never seen, and asked of the model;", fill=UNSEEN, font=font, anchor="lm")
    pen.text((left + 3 * step + PAD, foot), "all others: seen", fill=INK, font=font, anchor="lm")
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("emoji-light", "emoji-medium", "emoji-heavy"), default="emoji-medium")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--roles", default=",".join(SHOWN), help="names of roles, separated by commas")
    parser.add_argument("--output", type=Path, default=Path("emoji_seen_unseen.png"))
    asked = parser.parse_args()
    settings = Registry().load("tasks", asked.task).settings
    assert isinstance(settings, Settings)
    shape = (len(ROLES), len(PERSONS), len(TONES), 3, TILE, TILE)
    pictures = drawings(located(Home.of_user().data, settings.font)).pictures.reshape(shape)
    holdout = pattern_of(asked.task.removeprefix("emoji-"), settings, asked.seed)
    picture = grid(pictures, holdout, tuple(name.strip() for name in asked.roles.split(",")))
    picture.quantize(128, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(asked.output, optimize=True)
    print(asked.output)


if __name__ == "__main__":
    main()
