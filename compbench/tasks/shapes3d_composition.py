"""Shapes3D split by composition: each value of each factor is seen, but few values are seen together.

shapes3d-composition  images of a room; seen: at most one of wall hue, object hue and shape in its upper half; held out: more

This is the composition split of Schott et al. 2022 (arXiv 2107.08221); CoInD (Gaudi et al. 2025, arXiv 2503.01145) calls its
support orthogonal.  Its authors publish image files without the rule, so the choice of held-out cells is ours.
"""

from __future__ import annotations

import operator
from functools import partial

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Task
from compbench.data.lattice import choose_source
from compbench.data.lattices import SHAPES3D
from compbench.tasks.coverage import holdout_of, said
from compbench.tasks.image_holdout import EVENT, GUIDANCE, HUES, Settings, budgets, condition_space, open_task
from compbench.tasks.real_pictures import of_lattice

NAMES = ("wall hue", "object hue", "shape")
WORDS = "at most one of wall, object and shape in its upper half"
FEWEST_STEPS = 300
"""The judges train for at least this many steps, even at `smoke`, because three factors must be right together."""


BUDGETS = budgets("shapes3d", extend=False)
BUDGETS["paper"] = BUDGETS["paper"].model_copy(update={"batch_size": 64})


def make_task(settings: Settings | None = None) -> Task:
    """The task.  Raises CompbenchError for a coverage that no design has."""
    settings = settings or Settings()
    space = condition_space(SHAPES3D, settings.axis_bins)
    halves = [space.sizes[space.index(name)] // 2 for name in NAMES]
    holdout = holdout_of(space, NAMES, settings, lambda *cell: sum(map(operator.ge, cell, halves)) > 1, HUES)
    return Task(
        name="shapes3d-composition",
        family="images",
        files=("3dshapes.h5",),
        summary=f"shapes3d images, {said(settings, WORDS)}",
        space=space,
        holdout=holdout,
        event=EVENT,
        budgets=BUDGETS,
        source=partial(choose_source, SHAPES3D),
        open=partial(open_task, SHAPES3D, settings, space, holdout, fewest_steps=FEWEST_STEPS),
        real_pictures=of_lattice,
        primary="heldout_accuracy",
        guidance_weights=dict.fromkeys(BUDGETS, GUIDANCE),
        settings=settings,
        configure=make_task,
        citation="CoInD: Enabling Logical Compositions in Diffusion Models, Shapes3D with orthogonal support",
        notes=[
            "200 of 400 cells are seen: at most one of wall hue, object hue and shape is in the upper half of its values",
            "the choice of cells is ours: the paper publishes its split only as image files and does not state the rule",
        ],
        paper_notes=[
            "follows the paper: each value is seen but many combinations are not, 100,000 steps, batches of 64",
            "chosen: which cells are held out, and FVF's network, rates and averages (CoInD's UNet has 17.2 million parameters)",
            "changed: the joint accuracy is over the three factors of the holdout; CoInD's conformity is over all six factors",
            "changed: flow matching and Euler steps in place of DDPM and DDIM; weight 3 (7.5 in the authors' code)",
        ],
    )


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return (make_task(),)
