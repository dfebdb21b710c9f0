"""One bump at (x, y) on a grey image; a square of positions is held out in the centre or in a corner.

bump-center   bumps: 37 % of the positions held out: a square in the middle (6 to 22 of 28 pixels)
bump-corner   bumps: 37 % of the positions held out: a square at large x and y (11 to 27 of 28 pixels)
bump-scaling  bumps: 25 % of the positions held out in the middle, few training examples: a sweep finds how many suffice

Forced rendering, sections 2 and 4.  The tasks are deterministic: each condition has exactly one image.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, Problem, Sampler, Source, Task, TaskContext
from compbench.system.errors import CompbenchError
from compbench.tasks.coverage import CoverageSettings, holdout_of, said

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

CITATION = "Compositional Generalization via Forced Rendering of Disentangled Latents"
PAPER_DRAWS = 2000


class Settings(CoverageSettings):
    """Settings of a bump task, changed by `--set task.NAME=VALUE`."""

    size: int = Field(28, ge=4, le=256, description="N: pixels per side; x and y have N values each")
    sigma: float = Field(1.0, gt=0, description="standard deviation of the bump, in pixels")
    first: int = Field(6, ge=0, description="first held-out value of x and of y")
    last: int = Field(22, ge=0, description="last held-out value of x and of y")
    draws: int = Field(
        -1,
        ge=-1,
        description="training examples drawn with replacement from the seen cells; 0: each seen cell once; "
        "-1: the preset's number (2000 under paper, each cell once otherwise)",
    )


SQUARES = {
    "bump-center": Settings(first=6, last=22),
    "bump-corner": Settings(first=11, last=27),
    "bump-scaling": Settings(size=16, first=4, last=11, draws=200),
}


def budgets(size: int) -> dict[str, Budget]:
    """The budget of each preset; `paper` is 50 epochs of 2000 draws at a constant rate, without clipping or averaging."""
    patch = math.gcd(4, size)
    quick = Budget(
        train_steps=3000,
        batch_size=32,
        width=64,
        patch=patch,
        prediction="denoised",
        learning_rate=1e-3,
        warmup_steps=50,
        ema_decay=0.99,
        sample_steps=20,
    )
    smoke = quick.model_copy(update={"train_steps": 12, "batch_size": 16, "width": 16, "sample_steps": 2, "warmup_steps": 2})
    paper = quick.model_copy(
        update={
            "train_steps": 50 * 63,
            "patch": 1,
            "prediction": "velocity",
            "final_learning_rate": 1e-3,
            "warmup_steps": 0,
            "ema_decay": 0.0,
            "gradient_clip": 1e9,
            "sample_steps": 100,
        }
    )
    return {"smoke": smoke, "quick": quick, "standard": quick, "paper": paper}


def make_task(name: str, settings: Settings) -> Task:
    """A bump task that holds out a square or, if a coverage is set, all cells outside the coverage's design.

    Raises:
        CompbenchError: the square is empty, leaves no training data or hides a row, or the bump is wider than the image.
    """
    _check(settings)
    space = FactorSpace([Factor("x", settings.size), Factor("y", settings.size)])

    def inside(x: int, y: int) -> bool:
        return all(settings.first <= place <= settings.last for place in (x, y))

    holdout = holdout_of(space, ("x", "y"), settings, inside)
    event = Event("image", (1, settings.size, settings.size))
    presets = budgets(settings.size)

    return Task(
        name=name,
        family="bumps",
        core=name != "bump-scaling",
        summary=f"a bump on {settings.size} x {settings.size} pixels, "
        + said(settings, f"positions {settings.first} to {settings.last} held out"),
        space=space,
        holdout=holdout,
        event=event,
        budgets=presets,
        source=embedded,
        open=partial(OpenBumps, settings, space, holdout),
        primary="heldout_shape_accuracy",
        metrics=(),
        offers=("singles",),
        settings=settings,
        configure=lambda changed: make_task(name, changed),
        citation=CITATION,
        truth=lambda condition: images(condition, settings),
        notes=(
            "superposition and kernel alignments: the floor comes from true bumps, the ceiling from an exact superposition of "
            "seen bumps.",
            "MSE compares images scaled to [0, 1]; mse_blank divides it by the MSE of an all-background image.",
            "shape_accuracy: the brightest pixel is within one pixel of the requested place, and the cosine with the true image "
            "is above 0.75.",
            "every cell is requested once; seen scores are training scores.",
        ),
        paper_notes=paper_notes(name),
    )


class OpenBumps:
    """The task for one seed, device and preset."""

    def __init__(self, settings: Settings, space: FactorSpace, holdout: Holdout, ctx: TaskContext) -> None:
        self.settings, self.space, self.holdout, self.ctx = settings, space, holdout, ctx

    def problem(self, budget: Budget) -> Problem:
        """Bumps at the seen positions, and the stripes of single factors."""
        from compbench.data.bumps import TableSilo, all_stripes

        settings, device = self.settings, self.ctx.device
        draws = settings.draws
        if draws < 0:
            draws = PAPER_DRAWS if self.ctx.preset == "paper" else 0
        places = training_places(self.holdout, draws, self.ctx.seed).to(device)
        stripes = all_stripes(settings.size).to(device)
        return Problem(
            space=self.space,
            event=Event("image", (1, settings.size, settings.size)),
            federation=Federation([TableSilo("bumps", images(places, settings), places)]),
            budget=budget,
            holdout=self.holdout,
            composed=self.holdout.factors,
            singles=TableSilo("stripes", images(stripes, settings), stripes),
            deterministic=True,
        )

    def prepare(self) -> None:
        """Do nothing: a formula gives the true images."""

    def evaluate(self, sampler: Sampler) -> Evaluation:
        from compbench.tasks.bump_evaluation import evaluate

        return evaluate(sampler, self.holdout, size=self.settings.size, sigma=self.settings.sigma)


def paper_notes(name: str) -> tuple[str, ...]:
    """How `paper` relates to forced rendering, whose text gives few numbers; "the repository" means its authors' code."""
    if name == "bump-scaling":
        return (
            "chosen: all of this task; the paper shows the least data needed against image size, but its repository has no such "
            "experiment.",
            "kept from the other bump tasks: AdamW at a constant 1e-3, batches of 32, as many steps as 50 epochs of 2000 draws.",
        )
    square = "the square includes both ends" if name == "bump-center" else "the repository holds out corners of other sizes"
    return (
        f"follows the repository: 28 pixels, a bump of width 1, 2000 draws with replacement; {square}.",
        "follows the repository for cnn-decoder: two hidden layers of 64, 50 epochs of batches of 32, AdamW at a constant "
        "1e-3, no clipping.",
        "changed: mlp-decoder and transformer-decoder train for the same 50 epochs (there 20); bumps are bright on black "
        "(there dark on white).",
        "changed: transformer-decoder has tokens of 4 x 4 pixels (there 1) and a feed-forward of 4 widths (there 2048); "
        "transformer-decoder, pixel-decoder and low-rank have 3 times the rate (--set rate_factor=1 is the paper's).",
        "changed: pixel-decoder has 64 units (there 256: --set width_factor=4); its weight decay and that of "
        "low-rank is 0.01 (there 1e-4).",
        "changed: in the repository low-rank has images of 32 pixels, bumps of width 1.5 and 1000 epochs of each seen cell once; "
        "the sweep bumps-ablation runs these.",
        "chosen: the code of the absent factor in stripes (zeros), how stripes and bumps mix, and the methods that are not "
        "the paper's.",
    )


def embedded(data: Path, source: str) -> Source:
    """The embedded source: a formula gives the images, so there is no official file."""
    if source == "official":
        raise CompbenchError("bump images come from a formula and have no official file; use --source auto.")
    return Source("embedded", "bumps", "bumps-1")


def training_places(holdout: Holdout, draws: int, seed: int) -> Tensor:
    """Seen cells, each once, or `draws` of them with replacement, (n, 2)."""
    import torch

    cells = torch.tensor(holdout.seen_cells)
    if not draws:
        return cells
    return cells[torch.randint(len(cells), (draws,), generator=torch.Generator().manual_seed(seed))]


def images(places: Tensor, settings: Settings) -> Tensor:
    """Samples (B, 1, N, N) of places (B, 2)."""
    from compbench.data.bumps import as_samples, bumps

    return as_samples(bumps(places, size=settings.size, sigma=settings.sigma))


def _check(settings: Settings) -> None:
    size, first, last = settings.size, settings.first, settings.last
    square = f"--set task.first={first} task.last={last}"
    if first > last or last >= size:
        raise CompbenchError(f"{square}: must be first <= last <= {size - 1} on an image of {size} pixels.")
    if first == 0 and last == size - 1:
        raise CompbenchError(f"{square}: the square hides every row and leaves no training data; make it smaller.")
    width = 2 * math.sqrt(2 * math.log(2)) * settings.sigma
    if width > size:
        raise CompbenchError(
            f"--set task.sigma={settings.sigma}: the bump is {width:.1f} pixels wide at half its height, and the image {size}; "
            f"use less than {size / (width / settings.sigma):.1f}."
        )


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return tuple(make_task(name, settings) for name, settings in SQUARES.items())
