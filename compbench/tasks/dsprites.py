"""One white sprite on black (dSprites, 64x64); pairs of factors or a square of positions are held out.

dsprites-light     sprites: 27 % of the (shape, orientation) pairs held out: (a + b) mod 4 = 0
dsprites-heavy     sprites: 67 % of the (shape, x) pairs held out: (a + b) mod 3 != 0
dsprites-position  sprites: 25 % of the (x, y) positions held out: a square in the middle

Data: Matthey et al. 2017.  The patterns resemble those of the Shapes3D tasks.  The task uses the orientations of the first
quarter turn, because a square looks the same after it: only these orientations are distinguishable for every shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Event, Source, Task, TaskContext
from compbench.data.lattice import choose_source
from compbench.data.lattices import DSPRITES
from compbench.tasks.coverage import UNORDERED, CoverageSettings, Order, holdout_of, said
from compbench.tasks.image_holdout import budgets
from compbench.tasks.lattice_images import JudgedLattice, Lattices, Referee, binned
from compbench.tasks.real_pictures import of_lattice

if TYPE_CHECKING:
    from compbench.data.lattices import Images

QUARTER = 10
"""Number of orientations in a quarter turn, 0 ... 83 degrees; the data has 40 in a full turn."""
EVENT = Event("image", (1, 64, 64))
FINE = FactorSpace(
    [
        Factor("shape", 3, ("square", "ellipse", "heart")),
        Factor("scale", 6),
        Factor("orientation", QUARTER),
        Factor("x", 32),
        Factor("y", 32),
    ]
)


class Settings(CoverageSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    position_bins: int = Field(8, ge=2, le=32, description="bins for the 32 positions of each axis in a condition")
    orientation_bins: int = Field(5, ge=2, le=10, description="bins for the 10 orientations of a quarter turn in a condition")
    judge: Literal["plain", "pooled"] = Field("pooled", description="architecture of both judges")


class Pattern(NamedTuple):
    """Which cells of which factors are held out, and the factors whose order a permuted pattern keeps."""

    names: tuple[str, str]
    rule: Callable[[Settings, int, int], bool]
    orders: Mapping[str, Order] = UNORDERED


def in_the_middle(settings: Settings, x: int, y: int) -> bool:
    """Whether a position lies in the square whose sides are the middle half of each axis."""
    quarter = settings.position_bins // 4
    return all(quarter <= place < settings.position_bins - quarter for place in (x, y))


PATTERNS = {
    "light": Pattern(("shape", "orientation"), lambda settings, a, b: (a + b) % 4 == 0, {"orientation": "line"}),
    "heavy": Pattern(("shape", "x"), lambda settings, a, b: (a + b) % 3 != 0, {"x": "line"}),
    "position": Pattern(("x", "y"), in_the_middle),
}
HELD_OUT = {
    "light": "a quarter of shape x orientation held out",
    "heavy": "two thirds of shape x position held out",
    "position": "a square of positions held out",
}

BUDGETS = budgets("shapes3d", extend=False)
BUDGETS["standard"] = BUDGETS["standard"].model_copy(update={"train_steps": 13_200, "learning_rate": 7e-4})
"""Small shapes whose orientation matters take longer to learn than Shapes3D, and at 2e-3 a fit may diverge."""
GUIDANCE = 2.0


def make_task(pattern: str, settings: Settings | None = None) -> Task:
    """A task of the family; `pattern` is light, heavy or position.

    Raises:
        CompbenchError: bins that do not divide the values, or a coverage that no design has.
    """
    settings = settings or Settings()
    bins = {
        "shape": 3,
        "scale": 6,
        "orientation": settings.orientation_bins,
        "x": settings.position_bins,
        "y": settings.position_bins,
    }
    space = binned(FINE, bins)
    names, rule, orders = PATTERNS[pattern]
    lattices = Lattices(FINE, space, holdout_of(space, names, settings, partial(rule, settings), orders))
    return Task(
        name=f"dsprites-{pattern}",
        family="images",
        core=pattern == "light",
        files=("dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",),
        summary=f"one sprite on black, {said(settings, HELD_OUT[pattern])}",
        space=space,
        holdout=lattices.holdout,
        event=EVENT,
        budgets=BUDGETS,
        source=choose,
        open=partial(open_sprites, lattices, settings),
        real_pictures=of_lattice,
        primary="heldout_accuracy",
        guidance_weights=dict.fromkeys(BUDGETS, GUIDANCE),
        settings=settings,
        configure=lambda changed: make_task(pattern, changed),
        citation="dSprites: Disentanglement testing Sprites dataset, 2017",
        notes=[
            "orientations are those of the first quarter turn: a square looks the same after it, an ellipse after half a turn",
            "iou: intersection over union of a sample, cut at mid-grey, with the best-fitting true image of its condition",
            "--set task.position_bins=32 --set task.orientation_bins=10 gives each condition one image, for regression methods",
        ],
        paper_notes=[
            "chosen: all of it; no paper has generative results on these holdouts.  Network, rates, steps and averages are those "
            "of the Shapes3D tasks at their paper preset",
        ],
    )


def choose(folder: Path, asked: str) -> Source:
    """The official npz file if it lies in the data folder, otherwise the embedded renderer."""
    source = choose_source(DSPRITES, folder, asked)
    if source.kind == "official":
        from compbench.data.dsprites_file import check_official

        check_official(folder / source.name)
    return source


def open_sprites(lattices: Lattices, settings: Settings, ctx: TaskContext) -> JudgedLattice:
    """The task with its renderer or file open."""
    from compbench.tasks.dsprites_evaluation import JUDGES, overlap_scores
    from compbench.tasks.image_evaluation import SIZES

    images = sprites(ctx)
    referee = Referee(
        "dsprites",
        replace(JUDGES[ctx.preset], architecture=settings.judge),
        SIZES[ctx.preset],
        partial(overlap_scores, images=images, lattices=lattices),
    )
    return JudgedLattice(images, lattices, EVENT, referee, GUIDANCE, ctx)


def sprites(ctx: TaskContext) -> Images:
    """The images of the run's source."""
    if ctx.source.kind == "official":
        from compbench.data.dsprites_file import open_dsprites

        return open_dsprites(ctx.data / ctx.source.name, ctx.device, progress=ctx.progress)
    from compbench.data.dsprites_renderer import DSpritesRenderer

    return DSpritesRenderer(device=ctx.device)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return tuple(make_task(pattern) for pattern in PATTERNS)
