"""Two sprites in a picture: in training one of them is always at its base; in held-out pictures neither sprite is.

two-sprites  two sprites in a picture: one varies in position and shape, the other is at its base; 95 of 2,304 cells are seen

Wiedemer et al. 2023 (Compositional generalization from first principles): does a decoder of one sprite at a time extrapolate
where a decoder of the whole picture does not?  Each condition has one image, drawn by our own renderer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, Problem, Sampler, Source, Task, TaskContext
from compbench.system.errors import CompbenchError
from compbench.tasks.coverage import CoverageSettings, Order, holdout_of, said
from compbench.tasks.lattice_images import Lattices, RenderedSilo

if TYPE_CHECKING:
    from compbench.data.sprites_renderer import SpritesRenderer

SHAPES = ("disc", "triangle", "square")
COLOURS = ("red", "yellow", "green", "blue")
SPACE = FactorSpace(
    factor
    for sprite in ("front", "back")
    for factor in (
        Factor(f"{sprite} x", 4),
        Factor(f"{sprite} y", 4),
        Factor(f"{sprite} shape", 3, SHAPES),
        Factor(f"{sprite} size", 2, ("small", "large")),
        Factor(f"{sprite} colour", 4, COLOURS),
    )
)
PATTERN = tuple(f"{sprite} {name}" for sprite in ("front", "back") for name in ("x", "y", "shape"))
ORDERS: dict[str, Order] = {f"{sprite} {axis}": "line" for sprite in ("front", "back") for axis in "xy"}
BASES = (0, 0, 0), (3, 3, 0)
"""Position and shape of the front and the back base sprite: discs in opposite corners."""


class Settings(CoverageSettings):
    """Settings of the task, changed by `--set task.NAME=VALUE`."""

    support: Literal["orthogonal", "diagonal"] = Field(
        "orthogonal", description="seen: one sprite at its base, or both at most one position apart on each axis"
    )
    side: int = Field(32, ge=16, le=256, multiple_of=4, description="pixels per side; the paper has 64")


BUDGETS = {
    "quick": Budget(
        train_steps=4000,
        batch_size=32,
        width=32,
        patch=4,
        prediction="denoised",
        learning_rate=2e-3,
        warmup_steps=50,
        ema_decay=0.99,
        sample_steps=20,
    )
}
BUDGETS["smoke"] = BUDGETS["quick"].model_copy(
    update={"train_steps": 12, "batch_size": 16, "width": 16, "sample_steps": 2, "warmup_steps": 2}
)
BUDGETS["standard"] = BUDGETS["quick"].model_copy(update={"train_steps": 12_000, "ema_decay": 0.997})
BUDGETS["paper"] = Budget(
    train_steps=390_000,
    batch_size=512,
    width=64,
    learning_rate=1e-3,
    warmup_steps=500,
    ema_decay=0.999,
    sample_steps=100,
    checkpoint_seconds=300.0,
)


def make_task(settings: Settings | None = None) -> Task:
    """The task.  Raises CompbenchError for a coverage that no design has."""
    settings = settings or Settings()
    holdout = holdout_of(
        SPACE, PATTERN, settings, {"orthogonal": neither_at_base, "diagonal": far_apart}[settings.support], ORDERS
    )
    event = Event("image", (3, settings.side, settings.side))
    words = {"orthogonal": "one of them at its base in all seen pictures", "diagonal": "near each other in all seen pictures"}
    return Task(
        name="two-sprites",
        family="bumps",
        summary=f"two sprites on {settings.side} x {settings.side} pixels, {said(settings, words[settings.support])}",
        space=SPACE,
        holdout=holdout,
        event=event,
        budgets=BUDGETS,
        source=embedded,
        open=partial(OpenTwoSprites, settings, holdout, event),
        real_pictures=lambda opened, condition, generator: opened.images(condition),
        primary="heldout_r2",
        offers=("objects",),
        metrics=(),
        settings=settings,
        configure=make_task,
        citation="Compositional Generalization from First Principles, 2023",
        notes=[
            "r2: 1 - squared error over the squared error of the split's mean true image; 1 is exact, 0 is as good as that mean",
            "size and colour of both sprites vary everywhere; the holdout concerns position and shape",
        ],
        paper_notes=[
            "follows the paper: two sprites of five factors each, orthogonal and diagonal support, R2 to the true image, AdamW "
            "at 1e-3 with batches of 512, as many steps as 2,000 epochs of 100,000 images",
            "chosen: values of the factors, the renderer, and 32 x 32 pixels (there 64 x 64: --set task.side=64)",
            "changed: sizes and colours vary in seen pictures too; in the paper the whole base sprite is fixed",
        ],
    )


def neither_at_base(*cell: int) -> bool:
    """Whether both sprites differ from their bases in position or shape."""
    return cell[:3] != BASES[0] and cell[3:] != BASES[1]


def far_apart(*cell: int) -> bool:
    """Whether the sprites are more than one position apart on an axis."""
    return max(abs(cell[0] - cell[3]), abs(cell[1] - cell[4])) > 1


def embedded(folder: Path, asked: str) -> Source:
    """The embedded source is our renderer: the paper's pictures are drawn by its code and not published."""
    if asked == "official":
        raise CompbenchError("two-sprites has no official files, because its pictures are drawn; use --source auto.")
    return Source("embedded", "sprites renderer", "sprites-1")


class OpenTwoSprites:
    """The task with its renderer."""

    def __init__(self, settings: Settings, holdout: Holdout, event: Event, ctx: TaskContext) -> None:
        from compbench.data.sprites_renderer import SpritesRenderer

        self.holdout, self.event, self.ctx = holdout, event, ctx
        self.images: SpritesRenderer = SpritesRenderer(side=settings.side, device=ctx.device)

    def problem(self, budget: Budget) -> Problem:
        """Pictures of the seen combinations."""
        silo = RenderedSilo(self.images, Lattices(SPACE, SPACE, self.holdout), self.ctx)
        return Problem(
            space=SPACE,
            event=self.event,
            federation=Federation([silo]),
            budget=budget,
            holdout=self.holdout,
            composed=self.holdout.factors,
            deterministic=True,
        )

    def prepare(self) -> None:
        """Do nothing: true images are rendered when they are compared."""

    def evaluate(self, sampler: Sampler) -> Evaluation:
        from compbench.tasks.two_sprites_evaluation import evaluate

        return evaluate(sampler, self.images, self.holdout, self.ctx)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return (make_task(),)
