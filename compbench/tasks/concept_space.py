"""One coloured shape (28x28): two shapes, two colours, two sizes; the four combinations with at most one change are seen.

concept-space  coloured shapes; seen: a small red disc, and the disc with one factor changed; held out: two or three changes

Okawa et al. 2023 (Compositional abilities emerge multiplicatively) and Park et al. 2024 (Emergence of hidden capabilities).
Their pictures are not published, so our own renderer draws them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Event, Source, Task, TaskContext
from compbench.system.errors import CompbenchError
from compbench.tasks.cmnist import BUDGETS as DIGIT_BUDGETS
from compbench.tasks.coverage import CoverageSettings, holdout_of, said
from compbench.tasks.lattice_images import JudgedLattice, Lattices, Referee, binned
from compbench.tasks.real_pictures import of_lattice

EVENT = Event("image", (3, 28, 28))
FINE = FactorSpace(
    [Factor("shape", 2, ("disc", "triangle")), Factor("colour", 16), Factor("size", 8), Factor("x", 9), Factor("y", 9)]
)
NAMES = ("shape", "colour", "size")
WORDS = {"colour": ("red", "blue"), "size": ("small", "large")}


class Settings(CoverageSettings):
    """Settings of the task, changed by `--set task.NAME=VALUE`."""

    colour_signal: float = Field(
        0.7, gt=0.2, le=0.8, description="distance of the two colours, as a share of the distance of red and blue"
    )
    size_signal: float = Field(3.0, gt=1, le=5, description="distance of the two sizes, in pixels of radius")
    judge: Literal["plain", "pooled"] = Field("plain", description="architecture of both judges")


BUDGETS = {
    "smoke": DIGIT_BUDGETS["smoke"],
    "quick": Budget(
        train_steps=800,
        batch_size=32,
        width=32,
        patch=4,
        prediction="denoised",
        learning_rate=2e-3,
        warmup_steps=50,
        ema_decay=0.99,
        sample_steps=20,
    ),
}
BUDGETS["standard"] = BUDGETS["quick"].model_copy(update={"train_steps": 3200, "ema_decay": 0.997})
BUDGETS["paper"] = DIGIT_BUDGETS["paper"]
GUIDANCE = 2.0


def make_task(settings: Settings | None = None) -> Task:
    """The task.  Raises CompbenchError for a coverage that no design has."""
    settings = settings or Settings()
    space = FactorSpace(
        factor._replace(values=WORDS.get(factor.name, factor.values)) for factor in binned(FINE, dict.fromkeys(NAMES, 2)).factors
    )
    holdout = holdout_of(space, NAMES, settings, lambda *cell: sum(cell) > 1)
    lattices = Lattices(FINE, space, holdout)
    return Task(
        name="concept-space",
        family="images",
        summary=f"a coloured shape of two kinds each, {said(settings, 'two or three changes of the base never seen')}",
        space=space,
        holdout=holdout,
        event=EVENT,
        budgets=BUDGETS,
        source=embedded,
        open=partial(open_concepts, lattices, settings),
        real_pictures=of_lattice,
        primary="heldout_accuracy",
        guidance_weights=dict.fromkeys(BUDGETS, GUIDANCE),
        settings=settings,
        configure=make_task,
        citation="Compositional Abilities Emerge Multiplicatively, 2023; Emergence of Hidden Capabilities, 2024",
        notes=[
            "seen: 000, 100, 010, 001; held out at distance 1 from a seen cell: 110, 101, 011; at distance 2: 111",
            "position, exact shade and exact radius vary, and no condition names them",
        ],
        paper_notes=[
            "follows both papers: a 2 x 2 x 2 grid of shape, colour and size, four cells seen, 28 x 28 pixels, and signals as "
            "the distance between a concept's two classes",
            "chosen: the renderer, the bands' widths, network, steps and rates; one judge with three heads replaces three probes",
        ],
    )


def embedded(folder: Path, asked: str) -> Source:
    """The embedded source is our renderer, because the papers publish no pictures."""
    if asked == "official":
        raise CompbenchError("concept-space has no official files, because its papers publish none; use --source auto.")
    return Source("embedded", "concepts renderer", "concepts-1")


def open_concepts(lattices: Lattices, settings: Settings, ctx: TaskContext) -> JudgedLattice:
    """The task with its renderer."""
    from compbench.data.concepts_renderer import ConceptsRenderer
    from compbench.metrics.judge import JudgeSettings
    from compbench.tasks.image_evaluation import DIGIT_SIZES

    steps, width = {"smoke": (60, 16), "quick": (400, 16), "standard": (400, 16), "paper": (3000, 32)}[ctx.preset]
    signals = {"colour_signal": settings.colour_signal, "size_signal": settings.size_signal}
    referee = Referee(f"concepts {signals}", JudgeSettings(settings.judge, width, steps, 64), DIGIT_SIZES[ctx.preset])
    return JudgedLattice(ConceptsRenderer(**signals, device=ctx.device), lattices, EVENT, referee, GUIDANCE, ctx)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return (make_task(),)
