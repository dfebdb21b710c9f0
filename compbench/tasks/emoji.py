"""Drawings of people by one artist (64x64); pairs of role and skin tone, or of role and person, are held out.

emoji-light   drawings of people: 25 % of the (role, tone) pairs held out, different ones for each seed
emoji-medium  drawings of people: 50 % of the (role, tone) pairs held out, different ones for each seed
emoji-heavy   drawings of people: 75 % of the (role, tone) pairs held out, different ones for each seed
emoji-person  drawings of people: 33 % of the (role, person) pairs held out, different ones for each seed
emoji-extend  drawings of people: add skin tone to a model of role and person, nothing held out

The data come from a colour font (`compbench.data.emoji_drawings`).  Each combination has one picture.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Event, Problem, Task, TaskContext
from compbench.data.emoji_drawings import FONT, PERSONS, ROLES, TONES, choose
from compbench.flow.transfer import send
from compbench.tasks.coverage import CoverageSettings, Order, chosen, said
from compbench.tasks.image_holdout import NEAR_NOISE, budgets
from compbench.tasks.lattice_images import Lattices, OpenLattice
from compbench.tasks.real_pictures import of_lattice

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.tasks.drawn_evaluation import DrawnEvaluation

SPACE = FactorSpace(
    [
        Factor("role", len(ROLES), ROLES),
        Factor("person", len(PERSONS), tuple(PERSONS)),
        Factor("tone", len(TONES), tuple(TONES)),
    ]
)
EVENT = Event("image", (3, 64, 64))
METRICS = ("accuracy", "fwd", "fd_imagenet", "kid_imagenet", "precision_imagenet", "recall_imagenet")
GUIDANCE = 2.0
PER_SPLIT = {"smoke": 40, "quick": 240, "standard": 480, "paper": 2000}
JUDGE_STEPS = 1000
JUDGES = {"467924d05ec720d7d82f8794b5c0f654": "651ad2893bd5ddf8"}
"""Fingerprint of a font's drawings -> the stored judge (`experiments/frozen_judges.py emoji --write`): Noto Color Emoji 2.042.

Accuracy of the judge on 4,260 real pictures: role 1.000, person 0.994, tone 0.996, all three 0.991; all three are right on 0.985
of the pictures when they are corrupted as in training."""

BUDGETS = budgets("shapes3d", extend=False)
BUDGETS["quick"] = BUDGETS["quick"].model_copy(update=NEAR_NOISE)
# At the rate of `quick` the loss leapt in 5 of 12 fits of 2,000 steps (docs/investigations/rates-of-longer-fits.md).
BUDGETS["standard"] = BUDGETS["standard"].model_copy(update=NEAR_NOISE | {"train_steps": 2000, "learning_rate": 2.5e-3})
EXTENDING = budgets("shapes3d", extend=True)
for _preset in ("quick", "standard"):
    EXTENDING[_preset] = EXTENDING[_preset].model_copy(update={"time_location": NEAR_NOISE["time_location"]})


class Settings(CoverageSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    font: str = Field(
        FONT, min_length=1, description="file of the colour font: a path, or a name in the data folder or a font folder"
    )


WIDTHS = {"light": (2, 1, 1, 1), "medium": (3, 2), "heavy": (3, 4, 4, 4), "person": (1,)}
"""How many consecutive values of the second factor each role lacks.  The entries alternate over blocks of roles; a block has as
many roles as the second factor has values."""
PAIRS = {"light": "tone", "medium": "tone", "heavy": "tone", "person": "person"}
HELD_OUT = {
    "light": "a quarter of role x skin tone held out",
    "medium": "half of role x skin tone held out",
    "heavy": "three quarters of role x skin tone held out",
    "person": "a third of role x person held out",
}
ORDERS: dict[str, Order] = {"tone": "line"}
"""A permuted pattern keeps tones from light to dark, or reverses them."""
ADDED = "tone"


def turned(pattern: str, seed: int) -> Holdout:
    """The held-out pairs of a seed: one fixed pattern, in which the seed shuffles the roles.

    The role at place p lacks w neighbouring values of the other factor (cyclically), starting at value p mod n; `WIDTHS` gives
    the sequence of w.  So all seeds hold out equally many pairs, and every value is seen.
    """
    other = PAIRS[pattern]
    size, widths = SPACE.sizes[SPACE.index(other)], WIDTHS[pattern]
    order = sorted(range(len(ROLES)), key=lambda role: hashlib.sha256(f"emoji {seed} {role}".encode()).digest())
    places = {role: place for place, role in enumerate(order)}

    def rule(role: int, value: int) -> bool:
        place = places[role]
        return (value - place) % size < widths[place // size % len(widths)]

    return Holdout.by_rule(SPACE, ("role", other), rule)


def make_task(pattern: str, settings: Settings | None = None) -> Task:
    """A task of the family; `pattern` is light, medium, heavy, person or extend.

    Raises:
        CompbenchError: no design has the coverage, or the task holds nothing out.
    """
    settings = settings or Settings()
    extend = pattern == "extend"
    holdout = chosen(Holdout.empty(SPACE), settings) if extend else pattern_of(pattern, settings, 0)
    found = EXTENDING if extend else BUDGETS
    return Task(
        name=f"emoji-{pattern}",
        family="drawings",
        core=pattern != "extend",
        files=("NotoColorEmoji.ttf",),
        extra="emoji",
        summary="drawings of people, " + ("adding skin tone" if extend else said(settings, HELD_OUT[pattern])),
        space=SPACE,
        holdout=holdout,
        event=EVENT,
        budgets=found,
        source=partial(choose, font=settings.font),
        open=partial(OpenEmoji, pattern, settings),
        real_pictures=of_lattice,
        primary=f"all_accuracy_{ADDED}" if extend else "heldout_accuracy",
        version=2,
        extends=ADDED if extend else "",
        metrics=METRICS,
        features=("imagenet",),
        guidance_weights={} if extend else dict.fromkeys(found, GUIDANCE),
        settings=settings,
        configure=lambda changed: make_task(pattern, changed),
        citation="Google, Noto Color Emoji (SIL Open Font License 1.1)",
        notes=[
            *(
                []
                if extend
                else ["each seed holds out different pairs, equally many: intervals over seeds include the choice of pairs"]
            ),
            "true_rank: rank of the true picture among all 1,065 by distance to the sample; true_first: share with rank 1",
            "copied: share of samples to which, of all pictures, a training picture of another combination is the nearest, "
            "however far it is: an upper bound of memorisation",
            "compbench ships a judge for known versions of the font; for another font the referee trains one",
        ],
        paper_notes=[
            "chosen: all of it; no paper has this data.  Network, rates, steps and averages are those of the Shapes3D tasks "
            "at their paper preset",
        ],
    )


def pattern_of(pattern: str, settings: Settings, seed: int) -> Holdout:
    """The held-out pairs of a run's seed; under a coverage they do not depend on the seed."""
    return chosen(turned(pattern, seed), settings, ORDERS)


class OpenEmoji(OpenLattice):
    """A task with its font decoded."""

    def __init__(self, pattern: str, settings: Settings, ctx: TaskContext) -> None:
        import torch

        from compbench.data.emoji_drawings import drawings, located

        self._table = torch.from_numpy(drawings(located(ctx.data, settings.font)).pictures).to(ctx.device)
        extend = pattern == "extend"
        holdout = Holdout.empty(SPACE) if extend else pattern_of(pattern, settings, ctx.seed)
        lattices = Lattices(SPACE, SPACE, holdout)
        super().__init__(self._drawn, lattices, EVENT, GUIDANCE, ctx, added=ADDED if extend else "")

    def _problem(self, lattices: Lattices, budget: Budget) -> Problem:
        """As on Shapes3D, methods are not told that each combination has one picture: networks have the sizes of other tasks."""
        return replace(super()._problem(lattices, budget), deterministic=False)

    def _drawn(self, fine: Tensor) -> Tensor:
        """Combinations (B, 3) -> uint8 pictures (B, 3, 64, 64)."""
        _, persons, tones = SPACE.sizes
        return self._table[send((fine[:, 0] * persons + fine[:, 1]) * tones + fine[:, 2], self._table.device)]

    @cached_property
    def evaluation(self) -> DrawnEvaluation:
        """Judge and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.drawn_evaluation import DrawnEvaluation, Referee

        steps = 60 if self.ctx.preset == "smoke" else JUDGE_STEPS
        referee = Referee(JUDGES, steps, PER_SPLIT[self.ctx.preset], self.added)
        return DrawnEvaluation(self.images, self.lattices, referee, self.ctx)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return tuple(make_task(pattern) for pattern in (*WIDTHS, "extend"))
