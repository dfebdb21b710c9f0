"""Letters in typefaces, weights and slants (32x32, grey); combinations of content and style are held out.

glyph-light  letters: 25 % of the (letter, typeface) pairs held out, different ones for each seed
glyph-heavy  letters: 75 % of the (letter, typeface, weight, slant) combinations held out, different ones for each seed

A letter's position and size vary, and no condition names them.  Data: fonts that matplotlib ships (`compbench.data.letters`).
"""

from __future__ import annotations

import hashlib
from functools import cached_property, partial
from typing import TYPE_CHECKING

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Event, Task, TaskContext
from compbench.data.letters import EMS, FILES, LETTERS, MARGIN, SHIFTS, SIDE, SLANTS, WEIGHTS, choose
from compbench.flow.transfer import send
from compbench.tasks.coverage import CoverageSettings, chosen, said
from compbench.tasks.image_holdout import budgets
from compbench.tasks.lattice_images import Lattices, OpenLattice
from compbench.tasks.real_pictures import of_lattice

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.tasks.drawn_evaluation import PairedEvaluation

ASKED = (
    Factor("letter", len(LETTERS), LETTERS),
    Factor("typeface", len(FILES), tuple(FILES)),
    Factor("weight", len(WEIGHTS), WEIGHTS),
    Factor("slant", len(SLANTS), SLANTS),
)
SPACE = FactorSpace(ASKED)
FINE = FactorSpace([*ASKED, Factor("size", len(EMS)), Factor("x", SHIFTS), Factor("y", SHIFTS)])
EVENT = Event("image", (1, SIDE, SIDE))
METRICS = (
    *("accuracy", "precision", "recall"),
    *("fwd", "fd_imagenet", "fjd_imagenet", "kid_imagenet", "precision_imagenet", "recall_imagenet"),
)
"""A mean over positions and sizes is a blurred letter that the judge still names right 82 to 85 times in 100, so recall in the
judge's features marks it on the board: it is 0.11 to 0.16 there, and 0.98 to 0.995 for real letters with noise of 25 levels."""
GUIDANCE = 2.0
PER_SPLIT = {"smoke": 40, "quick": 240, "standard": 480, "paper": 2000}
JUDGE_STEPS = 1200
JUDGES = {"dejavu2.35-stix1.00-34cd753248e38ae2": "4b4bd0f856f5db99"}
"""Fingerprint of the letters -> the stored judge (`experiments/frozen_judges.py glyph --write`); the fonts are matplotlib 3.11's.

On 4,000 real pictures the judge is right on all letters, weights and slants, and on 0.984 of typefaces: some letters are the same
in sans and mono.  It was trained on letters up to two pixels from the middle, and they are up to one pixel from it."""
BUDGETS = {
    preset: own.model_copy(update={"patch": min(own.patch, 2)}) for preset, own in budgets("shapes3d", extend=False).items()
}
"""The budgets of Shapes3D; with patches of 2 pixels the network is as large as with patches of 4 on 64 x 64 pixels."""
LARGE_BATCHES: dict[str, float] = {"batch_size": 128, "patch": 4, "learning_rate": 3e-3, "time_location": -0.8}
"""A step on 128 letters with patches of 4 takes less than twice the time of one on 32 letters with patches of 2
(docs/investigations/rates-of-longer-fits.md)."""
BUDGETS["quick"] = BUDGETS["quick"].model_copy(update=LARGE_BATCHES | {"train_steps": 600})
# By experiments/standard_budgets.py `factored` has 0.78 of the ceiling on seen combinations after 2,000 steps, 0.86 after 3,000.
BUDGETS["standard"] = BUDGETS["standard"].model_copy(update=LARGE_BATCHES | {"train_steps": 4000})
HELD_OUT = {
    "light": "a quarter of letter x typeface held out",
    "heavy": "three quarters of letter x typeface x weight x slant held out",
}
FACTORS = {"light": ("letter", "typeface"), "heavy": ("letter", "typeface", "weight", "slant")}


def turned(pattern: str, seed: int) -> Holdout:
    """The held-out combinations of a seed: one fixed pattern, in which the seed shuffles the letters.

    light: the letter at place p lacks typeface p mod 4.  heavy: the letter is seen once in each typeface t, in the weight and
    slant number (t + p) mod 4, so each letter has four of sixteen styles and every value of every factor is seen.
    """
    order = sorted(range(len(LETTERS)), key=lambda letter: hashlib.sha256(f"glyphs {seed} {letter}".encode()).digest())
    places = {letter: place for place, letter in enumerate(order)}

    def light(letter: int, typeface: int) -> bool:
        return (typeface - places[letter]) % len(FILES) == 0

    def heavy(letter: int, typeface: int, weight: int, slant: int) -> bool:
        return (typeface + places[letter] - 2 * weight - slant) % 4 != 0

    return Holdout.by_rule(SPACE, FACTORS[pattern], light if pattern == "light" else heavy)


def pattern_of(pattern: str, settings: CoverageSettings, seed: int) -> Holdout:
    """The held-out combinations of a run's seed; under a coverage they do not depend on the seed."""
    return chosen(turned(pattern, seed), settings)


def make_task(pattern: str, settings: CoverageSettings | None = None) -> Task:
    """A task of the family; `pattern` is light or heavy.  Raises CompbenchError for a coverage that no design has."""
    settings = settings or CoverageSettings()
    return Task(
        name=f"glyph-{pattern}",
        family="drawings",
        core=True,
        extra="glyphs",
        summary=f"letters in typefaces, {said(settings, HELD_OUT[pattern])}",
        space=SPACE,
        holdout=pattern_of(pattern, settings, 0),
        event=EVENT,
        budgets=BUDGETS,
        source=choose,
        open=partial(OpenGlyphs, pattern, settings),
        real_pictures=of_lattice,
        primary="heldout_accuracy",
        version=6,
        metrics=METRICS,
        features=("imagenet", "judge"),
        guidance_weights=dict.fromkeys(BUDGETS, GUIDANCE),
        settings=settings,
        configure=lambda changed: make_task(pattern, changed),
        citation="DejaVu and STIX fonts, as matplotlib ships them",
        notes=[
            "each seed holds out different combinations, equally many: intervals over seeds include the choice of combinations",
            "position and size vary, and no condition names them; compbench ships a judge for known versions of the fonts",
        ],
        paper_notes=[
            "chosen: all of it; no paper has this data.  Network, rates, steps and averages are those of the Shapes3D tasks "
            "at their paper preset",
        ],
    )


class OpenGlyphs(OpenLattice):
    """A task with its letters rendered."""

    def __init__(self, pattern: str, settings: CoverageSettings, ctx: TaskContext) -> None:
        import torch

        from compbench.data.letters import drawn

        self._table = torch.from_numpy(drawn()).to(ctx.device)
        super().__init__(self._drawn, Lattices(FINE, SPACE, pattern_of(pattern, settings, ctx.seed)), EVENT, GUIDANCE, ctx)

    def _drawn(self, fine: Tensor) -> Tensor:
        """Fine combinations (B, 7) -> uint8 pictures (B, 1, 32, 32)."""
        import torch

        fine = send(fine, self._table.device)
        own = torch.arange(SIDE, device=fine.device)
        last = MARGIN + SHIFTS // 2  # an earlier cut moves the letter right and down
        rows = (last - fine[:, 6, None] + own)[:, :, None]  # (B, 32, 1)
        columns = (last - fine[:, 5, None] + own)[:, None, :]
        at = [fine[:, k, None, None] for k in range(5)]
        return self._table[at[0], at[1], at[2], at[3], at[4], rows, columns][:, None]

    @cached_property
    def evaluation(self) -> PairedEvaluation:
        """Judge and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.drawn_evaluation import PairedEvaluation, Referee

        steps = 60 if self.ctx.preset == "smoke" else JUDGE_STEPS
        return PairedEvaluation(self.images, self.lattices, Referee(JUDGES, steps, PER_SPLIT[self.ctx.preset]), self.ctx)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return tuple(make_task(pattern) for pattern in FACTORS)
