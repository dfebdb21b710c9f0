"""Four Gaussian modes at the corners of a square: one is never seen, the others are spread over two silos.

blobs-iid     right-top is never seen; both silos have the three other modes
blobs-noniid  right-top is never seen; each silo has two modes, left-bottom is shared

Decentralized Compositional Flow Matching (DCFM), section 4, figures 2 and 3.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, Problem, Sampler, Source, Task, TaskContext
from compbench.data.blob_mixture import HOLDOUT, SPACE, Settings, centre
from compbench.system.errors import CompbenchError

CITATION = "Decentralized Compositional Flow Matching"


EVENT = Event("vector", (2,))
SILOS = {
    "iid": (((0, 0), (0, 1), (1, 1)), ((0, 0), (0, 1), (1, 1))),
    "noniid": (((0, 0), (0, 1)), ((0, 1), (1, 1))),
}
"""The modes that each silo has; in figure 2 each silo of the non-iid split has two."""


BUDGETS = {
    "paper": Budget(train_steps=20_000, batch_size=512, width=256, learning_rate=1e-3, ema_decay=0.999, sample_steps=100),
    "quick": Budget(train_steps=2000, batch_size=128, width=64, learning_rate=2e-3, ema_decay=0.99, sample_steps=50),
    "smoke": Budget(train_steps=30, batch_size=32, width=32, learning_rate=2e-3, ema_decay=0.9, sample_steps=5),
}
BUDGETS["standard"] = BUDGETS["quick"]
"""The paper states no budget; `paper` is a longer `quick`.  Steps are counted per silo, over all its stages together."""


def make_task(split: Literal["iid", "noniid"], settings: Settings | None = None) -> Task:
    """A task of the family.  Raises CompbenchError for modes that overlap."""
    settings = settings or Settings()
    if settings.std > settings.side / 3:
        raise CompbenchError(
            f"--set task.std={settings.std:g}: modes {settings.side:g} from the axes must have a std of at most a third of that "
            f"({settings.side / 3:.3g}); otherwise a sample's mode is not clear."
        )
    where = "three modes in each silo" if split == "iid" else "two modes in each silo, one shared"
    return Task(
        name=f"blobs-{split}",
        family="silos",
        core=split == "noniid",
        summary=f"four modes in the plane, one never seen; {where}",
        space=SPACE,
        holdout=HOLDOUT,
        event=EVENT,
        budgets=BUDGETS,
        source=_source,
        open=partial(OpenBlobs, split, settings),
        primary="heldout_sw2",
        version=3,
        silos=2,
        guidance_weights=dict.fromkeys(BUDGETS, 1.0),
        settings=settings,
        configure=lambda changed: make_task(split, changed),
        citation=CITATION + ", section 4 and figure 3",
        notes=[
            "silos: " + "; ".join(", ".join(_words(cell) for cell in cells) for cells in SILOS[split]),
            "the paper shows a figure and states no numbers",
        ],
        paper_notes=[
            "follows figures 2 and 3: four Gaussian modes, right-top never seen, two silos, and which modes each silo has",
            "chosen: places and widths of the modes, points, network, steps, batches, and every weight and mask of the methods: "
            "the paper states none of them; `paper` is a longer `quick`",
            "chosen: the scores; the paper only shows samples. SW2 ranks, because a sampler that collapses to a "
            "mode's centre would have a perfect mode share",
        ],
    )


def _words(cell: tuple[int, int]) -> str:
    return "-".join(factor.values[value] for factor, value in zip(SPACE.factors, cell, strict=True))


def _source(folder: object, asked: str) -> Source:
    if asked == "official":
        raise CompbenchError("these tasks draw their points themselves and have no official files; use --source embedded.")
    return Source("embedded", "exact sampler", "blobs-1")


class OpenBlobs:
    """The task for one seed, device and preset."""

    def __init__(self, split: str, settings: Settings, ctx: TaskContext) -> None:
        self.split, self.settings, self.ctx = split, settings, ctx

    def problem(self, budget: Budget) -> Problem:
        """Points of the modes that each silo has, from the run's seed."""
        import torch

        from compbench.data.silo_shards import TensorSilo

        settings, device = self.settings, self.ctx.device
        generator = torch.Generator().manual_seed(self.ctx.seed * 1_000_003 + 29)
        silos = []
        for number, cells in enumerate(SILOS[self.split]):
            condition = torch.tensor(cells).repeat_interleave(settings.points, 0)
            centres = torch.tensor([centre(cell, settings) for cell in cells]).repeat_interleave(settings.points, 0)
            x1 = centres + settings.std * torch.randn(centres.shape, generator=generator)
            silos.append(TensorSilo(f"silo {number + 1}", x1.to(device), condition.to(device)))
        return Problem(SPACE, EVENT, Federation(silos), budget, HOLDOUT, composed=(0, 1))

    def prepare(self) -> None:
        """Do nothing: reference samples are drawn exactly when they are needed."""

    def evaluate(self, sampler: Sampler) -> Evaluation:
        from compbench.tasks.blobs_evaluation import BlobsEvaluation

        return BlobsEvaluation(self.settings, self.ctx).evaluate(sampler)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return make_task("iid"), make_task("noniid")
