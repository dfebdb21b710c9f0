"""Drawings of people by two artists (64x64): some roles were never drawn by one of them.

emoji-artist   drawings by two artists: 25 % of the (role, artist) pairs held out, different ones for each seed

The artists are two colour fonts (`compbench.data.emoji_drawings`), and the second one is the user's own: content is the role,
style is the hand that drew it.  Each combination has one picture.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Problem, Source, Task, TaskContext
from compbench.data.emoji_drawings import choose, drawings, located
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError
from compbench.system.fonts import find_font, no_font
from compbench.tasks import emoji
from compbench.tasks.coverage import chosen, permuted, said
from compbench.tasks.lattice_images import Lattices, OpenLattice
from compbench.tasks.real_pictures import of_lattice

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.tasks.drawn_evaluation import DrawnEvaluation

NAME = "emoji-artist"
ARTISTS = ("first", "second")
SECOND = "SecondEmoji.ttf"
"""Name of the second font in the data folder, unless a setting names another file."""
MOST_EQUAL = 0.02
"""Largest share of drawings that both fonts may have in common: more are two versions of one artist's font."""
SPACE = FactorSpace([*emoji.SPACE.factors, Factor("artist", len(ARTISTS), ARTISTS)])


class Settings(emoji.Settings):
    """Settings of this task, changed by `--set task.NAME=VALUE`."""

    second_font: str = Field(
        SECOND, min_length=1, description="file of the second artist's colour font: a path, or a name as for `font`"
    )


def turned(seed: int) -> Holdout:
    """The held-out pairs of a seed: one fixed pattern with roles and artists renamed.

    In the pattern every fourth role lacks the first artist and the role after it the second; the other half have both, which
    relate the artists to each other.
    """
    return permuted(Holdout.by_rule(SPACE, ("role", "artist"), lambda role, artist: role % 4 == artist), seed)


def pattern_of(settings: Settings, seed: int) -> Holdout:
    """The held-out pairs of a run's seed; under a coverage they do not depend on the seed."""
    return chosen(turned(seed), settings)


def fonts(folder: Path, settings: Settings) -> tuple[Path, Path]:
    """The files of both fonts.  Raises CompbenchError if one is missing."""
    second = find_font(settings.second_font, folder)
    if second is None and settings.second_font == SECOND:
        raise CompbenchError(
            f"{NAME} needs a second artist, a colour font with drawings of the same combinations: --set task.second_font=PATH, "
            f"or put it into {folder} as {SECOND} (docs/data.md)."
        )
    if second is None:
        raise CompbenchError(no_font("task.second_font", settings.second_font, folder))
    return located(folder, settings.font), second


def choose_both(folder: Path, asked: str, settings: Settings) -> Source:
    """Both fonts as one source, whose fingerprint is of all their drawings.

    Raises:
        CompbenchError: embedded data is requested, a font is missing or lacks pictures, or too many drawings are the same.
    """
    first = choose(folder, asked, settings.font)
    own, other = fonts(folder, settings)
    one, two = drawings(own), drawings(other)
    same = (one.pictures == two.pictures).reshape(len(one.pictures), -1).all(1).mean()
    if same > MOST_EQUAL:
        raise CompbenchError(
            f"--set task.second_font={settings.second_font}: {same:.0%} of its drawings are those of {own.name}; bring another "
            "artist's font."
        )
    both = hashlib.sha256(f"{first.fingerprint} {two.fingerprint}".encode()).hexdigest()[:32]
    return Source("official", f"{own.name} and {other.name}", both)


def make_task(settings: Settings | None = None) -> Task:
    """The task.  Raises CompbenchError if no design has the coverage."""
    settings = settings or Settings()
    return Task(
        name=NAME,
        family="drawings",
        core=False,
        files=("NotoColorEmoji.ttf", "SecondEmoji.ttf"),
        extra="emoji",
        summary=f"drawings of people by two artists, {said(settings, 'a quarter of role x artist held out')}",
        space=SPACE,
        holdout=pattern_of(settings, 0),
        event=emoji.EVENT,
        budgets=emoji.BUDGETS,
        source=partial(choose_both, settings=settings),
        open=partial(OpenArtists, settings),
        real_pictures=of_lattice,
        primary="heldout_accuracy",
        version=4,
        metrics=emoji.METRICS,
        features=("imagenet",),
        guidance_weights=dict.fromkeys(emoji.BUDGETS, emoji.GUIDANCE),
        settings=settings,
        configure=make_task,
        citation="Google, Noto Color Emoji (SIL Open Font License 1.1); the second font is yours",
        notes=[
            "the second font is yours, so compbench publishes no record of this task",
            "true_rank: rank of the true picture among all 2,130 by distance to the sample; true_first: share with rank 1",
            "copied: share of samples to which, of all pictures, a training picture of another combination is the nearest, "
            "however far it is: an upper bound of memorisation",
        ],
        paper_notes=["chosen: all of it; no paper has this data.  Budgets are those of emoji-light"],
    )


class OpenArtists(OpenLattice):
    """The task with both fonts decoded."""

    def __init__(self, settings: Settings, ctx: TaskContext) -> None:
        import torch

        tables = [torch.from_numpy(drawings(path).pictures) for path in fonts(ctx.data, settings)]
        self._table = torch.stack(tables, dim=1).flatten(0, 1).to(ctx.device)  # the artist varies fastest
        lattices = Lattices(SPACE, SPACE, pattern_of(settings, ctx.seed))
        super().__init__(self._drawn, lattices, emoji.EVENT, emoji.GUIDANCE, ctx)

    def _problem(self, lattices: Lattices, budget: Budget) -> Problem:
        """As on the other tasks of drawings."""
        return replace(super()._problem(lattices, budget), deterministic=False)

    def _drawn(self, fine: Tensor) -> Tensor:
        """Combinations (B, 4) -> uint8 pictures (B, 3, 64, 64)."""
        _, persons, tones, artists = SPACE.sizes
        place = ((fine[:, 0] * persons + fine[:, 1]) * tones + fine[:, 2]) * artists + fine[:, 3]
        return self._table[send(place, self._table.device)]

    @cached_property
    def evaluation(self) -> DrawnEvaluation:
        """Judge and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.drawn_evaluation import DrawnEvaluation, Referee

        steps = 60 if self.ctx.preset == "smoke" else emoji.JUDGE_STEPS
        return DrawnEvaluation(self.images, self.lattices, Referee({}, steps, emoji.PER_SPLIT[self.ctx.preset]), self.ctx)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return (make_task(),)
