"""Chest radiographs in four silos: 14 binary findings have 16,384 label sets, of which 54 are frequent enough to request.

chest-iid     radiographs in four silos, each image in a silo drawn uniformly
chest-noniid  radiographs in four silos, label sets shared out by Dirichlet(0.1): one or two silos have most images of a set

Decentralized Compositional Flow Matching (DCFM), section 6.3.  The question is how well a classifier that was trained only on
generated images does on real ones.  The task reads NIH's images if they are installed, and otherwise draws a phantom.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, MethodSettings, Problem, Sampler, Source, Task, TaskContext
from compbench.data import chest_files
from compbench.data.chest_findings import FINDINGS
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.data.chest_images import Radiographs
    from compbench.tasks.chest_evaluation import ChestEvaluation

CITATION = "Decentralized Compositional Flow Matching"
SPACE = FactorSpace([Factor(name.lower().replace("_", " "), 2, ("absent", "present")) for name in FINDINGS])
HOLDOUT = Holdout.empty(SPACE)
GUIDANCE = 1.0
"""Guidance weight w of every composed sample; the paper states none.  With w = 1 the composition is equation 5."""


class Settings(MethodSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    side: Literal[32, 64, 128, 256] = Field(64, description="pixels per side; the paper has 256")
    silos: int = Field(4, ge=1, le=100, description="number of silos")
    images: int = Field(20_000, ge=1000, le=1_000_000, description="training images of the embedded phantom")
    concentration: float = Field(0.1, gt=0, le=1e6, description="alpha of the Dirichlet shares of chest-noniid")
    split_seed: int = Field(0, ge=0, le=2**31, description="seed of the split into silos; the run's seed does not change it")


def budgets(side: int) -> dict[str, Budget]:
    """The budget of each preset.  Steps are counted per silo, over all its stages together.  The paper states no budget."""
    quick = Budget(
        train_steps=500,
        batch_size=32,
        width=24,
        patch=8,
        prediction="denoised",
        learning_rate=2e-3,
        warmup_steps=20,
        ema_decay=0.99,
        sample_steps=8,
    )
    smoke = quick.model_copy(update={"train_steps": 6, "batch_size": 16, "width": 16, "sample_steps": 2, "warmup_steps": 2})
    standard = quick.model_copy(
        update={"train_steps": 3000, "width": 32, "patch": max(4, side // 16), "ema_decay": 0.999, "sample_steps": 10}
    )
    paper = Budget(
        train_steps=100_000,
        batch_size=128,
        width=64,
        patch=max(1, side // 64),
        learning_rate=2e-4,
        final_learning_rate=1e-5,
        warmup_steps=1000,
        ema_decay=0.999,
        sample_steps=100,
        checkpoint_seconds=300.0,
    )
    return {"smoke": smoke, "quick": quick, "standard": standard, "paper": paper}


def make_task(split: Literal["iid", "noniid"], settings: Settings | None = None) -> Task:
    """A task of the family."""
    settings = settings or Settings()
    how = "shared out evenly" if split == "iid" else f"label sets by Dirichlet({settings.concentration:g})"
    return Task(
        name=f"chest-{split}",
        family="radiographs",
        files=("chest/Data_Entry_2017.csv",),
        summary=f"chest radiographs with 14 findings in {settings.silos} silos, {how}",
        space=SPACE,
        holdout=HOLDOUT,
        event=Event("image", (1, settings.side, settings.side)),
        budgets=budgets(settings.side),
        source=choose,
        open=partial(OpenChest, split, settings),
        primary="all_utility",
        silos=settings.silos,
        guidance_weights=dict.fromkeys(("smoke", "quick", "standard", "paper"), GUIDANCE),
        settings=settings,
        configure=lambda changed: make_task(split, changed),
        citation=CITATION + ", section 6.3 and figure 6",
        metrics=("accuracy", "fid", "fd_judge", "kid", "precision", "recall", "utility"),
        notes=[
            "nothing is held out, but a rare label set has few images, in one or two silos",
            "utility: a classifier is trained on equally many samples of each of the 54 label sets; the score is its exact-match "
            "recall on real images, averaged over the sets; the ceiling is the recall of the same classifier trained on real "
            "images, and chance is 1/54",
            "the phantom draws each finding as a simple sign, with the label sets of the published random sample of 5,606 images",
        ],
        paper_notes=[
            "follows section 6.3: 14 findings, four silos, iid and non-iid, label sets of at least 0.1 % (54 of them), utility "
            "(equation 17) of a classifier trained only on samples, FID of all label sets together",
            "chosen: Dirichlet(0.1), network, steps, rates, images of each label set, weight 1; the paper states none of them",
            "changed: flow matching on 64 x 64 pixels in place of the latents of 256 x 256 (--set task.side=256); the classifier "
            "is our judge's network, not a ResNet-18",
        ],
    )


def choose(folder: Path, asked: str) -> Source:
    """NIH's images if their table of labels lies in `chest/` of the data folder, otherwise the phantom.

    Raises:
        CompbenchError: the table is requested and missing, the table is invalid, or images are missing.
    """
    if asked == "embedded" or (asked == "auto" and not chest_files.is_here(folder)):
        return Source("embedded", "chest phantom", "phantom-1")
    if not chest_files.is_here(folder):
        raise CompbenchError(
            f"--source official: {chest_files.TABLE} is not in {folder / 'chest'}; put NIH's table and images there."
        )
    chest_files.find_images(folder, chest_files.read_table(folder))
    return Source("official", "NIH chest X-ray 14", chest_files.fingerprint(folder))


class OpenChest:
    """A task with its radiographs loaded."""

    def __init__(self, split: str, settings: Settings, ctx: TaskContext) -> None:
        from compbench.data.chest_images import OfficialRadiographs, PhantomRadiographs

        self.split, self.settings, self.ctx = split, settings, ctx
        self.radiographs: Radiographs
        if ctx.source.kind == "official":
            self.radiographs = OfficialRadiographs(settings.side, ctx)
        else:
            self.radiographs = PhantomRadiographs(settings.side, settings.images, ctx)

    def problem(self, budget: Budget) -> Problem:
        """The silos of radiographs; the split's seed assigns images to silos."""
        import torch

        from compbench.data.silo_shards import TensorSilo, check_marginals, dirichlet_owners, iid_owners

        stored, labels, decode = self.radiographs.training
        generator = torch.Generator().manual_seed(self.settings.split_seed * 1_000_003 + 43)
        if self.split == "iid":
            owner = iid_owners(len(labels), self.settings.silos, generator)
        else:
            _, cell = labels.cpu().unique(dim=0, return_inverse=True)
            owner = dirichlet_owners(cell, self.settings.silos, self.settings.concentration, generator)
        silos = []
        for number in range(self.settings.silos):
            rows = (owner == number).to(labels.device)
            silos.append(TensorSilo(f"silo {number + 1}", stored[rows], labels[rows], decode))
        check_marginals([silo.condition for silo in silos], SPACE)
        event = Event("image", (1, self.settings.side, self.settings.side))
        return Problem(SPACE, event, Federation(silos), budget, HOLDOUT, guidance_weight=GUIDANCE)

    def prepare(self) -> None:
        self.evaluation.prepare()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        return self.evaluation.evaluate(sampler)

    @cached_property
    def evaluation(self) -> ChestEvaluation:
        """Judge, classifier and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.chest_evaluation import JUDGES, NUM_IMAGES, ChestEvaluation, RealRadiographs

        return ChestEvaluation(
            real=RealRadiographs(self.radiographs, self.settings.side),
            space=SPACE,
            holdout=HOLDOUT,
            judge=JUDGES[self.ctx.preset],
            sizes=NUM_IMAGES[self.ctx.preset],
            dataset=f"chest-{self.settings.side}-{self.settings.images}",
            added="utility",
            ctx=self.ctx,
        )


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return make_task("iid"), make_task("noniid")
