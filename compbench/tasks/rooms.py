"""Two objects in a living room: each of three conditions is a mixture of four classes, composed with weights (1, 1, -1).

rooms-fc-id    rooms with couch and painting: the target almost always shows both, as the sources often do
rooms-nfc-id   rooms with couch and coffee table, which occlude each other: the target almost always shows both
rooms-fc-ood   rooms with couch and painting: the target shows one object alone, which is rare in all sources but one
rooms-nfc-ood  rooms with couch and coffee table: the target shows one object alone, which is rare in all sources but one

Catastrophic Compositional Generation, section 5.3 and appendix F.3.  The paper's pictures were never published: an embedded
renderer or a user's own pictures replace them.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from compbench.api.context import Batch
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, MethodSettings, Problem, Sampler, Source, Task, TaskContext
from compbench.data.class_folders import ROOMS, class_files, fingerprint, have_classes
from compbench.data.room_shares import SOURCES, Cell, Shares, exact_shares
from compbench.flow.transfer import send
from compbench.tasks.real_pictures import of_evaluation

if TYPE_CHECKING:
    import torch
    from torch import Generator

    from compbench.data.class_folders import Second
    from compbench.data.room_images import RoomPictures
    from compbench.tasks.rooms_evaluation import RoomsEvaluation

CITATION = "Catastrophic Compositional Generation: Why Vanilla Diffusion Models Fail to Extrapolate"
SECOND: dict[str, Second] = {"fc": "painting", "nfc": "table"}


class Settings(MethodSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    side: Literal[32, 64, 128, 256] = Field(64, description="pixels per side; the paper has 256")
    pictures: int = Field(2000, ge=1, le=1_000_000, description="training pictures of each class of the embedded renderer")


def budgets(side: int) -> dict[str, Budget]:
    """The budget of each preset; larger pictures get larger patches, except under `paper`."""
    quick = Budget(
        train_steps=1800,
        batch_size=32,
        width=32,
        patch=max(4, side // 16),
        prediction="denoised",
        learning_rate=2e-3,
        warmup_steps=100,
        ema_decay=0.997,
        sample_steps=20,
    )
    smoke = quick.model_copy(update={"train_steps": 12, "batch_size": 16, "width": 16, "sample_steps": 3, "warmup_steps": 2})
    standard = quick.model_copy(update={"train_steps": 7000, "ema_decay": 0.999})
    paper = Budget(
        train_steps=25_000,
        batch_size=16,
        width=128,
        learning_rate=1e-4,
        warmup_steps=500,
        ema_decay=0.9996,
        gradient_clip=1e9,
        sample_steps=100,
        checkpoint_seconds=300.0,
    )
    return {"smoke": smoke, "quick": quick, "standard": standard, "paper": paper}


def make_task(kind: str, where: str, settings: Settings | None = None) -> Task:
    """A task of the family; `kind` is fc or nfc, `where` is id or ood."""
    settings = settings or Settings()
    second = SECOND[kind]
    space = FactorSpace([Factor("couch", 2, ("base", "perturbed")), Factor(second, 2, ("base", "perturbed"))])
    return Task(
        name=f"rooms-{kind}-{where}",
        family="rooms",
        files=("rooms/empty", "rooms/couch"),
        summary=f"rooms with a couch and a {second}, target {'among' if where == 'id' else 'far from'} the sources",
        space=space,
        holdout=Holdout(space, (0, 1), ((1, 1),)),
        event=Event("image", (3, settings.side, settings.side)),
        budgets=budgets(settings.side),
        source=partial(choose, second),
        open=partial(OpenRooms, kind, where, settings),
        real_pictures=of_evaluation,
        primary="heldout_total_variation",
        base=(0, 0),
        guidance_weights=dict.fromkeys(("smoke", "quick", "standard", "paper"), 1.0),
        settings=settings,
        configure=lambda changed: make_task(kind, where, changed),
        citation=CITATION + ", section 5.3 and figure 2",
        metrics=("fid", "fd_judge", "kid", "precision", "recall", "total_variation", "class_share", "rare_share"),
        notes=_notes(where),
        paper_notes=_paper_notes(where),
    )


def _notes(where: str) -> list[str]:
    percent = ", ".join(f"{100 * share:.1f} %" for share in exact_shares(where))
    return [
        f"exact shares of the target: nothing, couch alone, second object alone, both: {percent}",
        "a condition is a mixture of classes; a judge of the four classes measures their shares in the samples, and, for the "
        "floor, in real pictures",
        "the judge assigns a class to every picture, also to a bad one, so fd_judge and precision are reported too",
    ]


def _paper_notes(where: str) -> list[str]:
    """What `paper` follows of appendix F.3, and where the exact target differs from what the text says."""
    notes = [
        "follows appendix F.3: the four classes and their shares in the three conditions, 2000 pictures of each class mirrored "
        "at random, weights (1, 1, -1), batches of 16, AdamW at 1e-4 with 500 steps of warm-up and a cosine, 100 steps",
        "changed: an embedded renderer in place of the text-to-image model, whose pictures were not published; if there is a "
        "folder of pictures for each class, the task reads it instead",
        "changed: 64 pixels per side (--set task.side=256 is the paper's), a UNet of 128 channels without attention, and flow "
        "matching on the linear path in place of zero-terminal-SNR DDPM",
        "chosen: the score; the paper shows pictures and reports no number",
    ]
    if where == "ood":
        notes.append(
            "differs: the exact target shows one object alone (0.496 couch, 0.496 second object, 0.009 both); the paper says it "
            "concentrates on both.  All three conditions give 'both' the same share, so the composition does not raise it"
        )
    return notes


def choose(second: Second, folder: Path, asked: str) -> Source:
    """A user's pictures if each class has a folder in `rooms/` of the data folder, otherwise the renderer."""
    classes = ROOMS[second]
    own = folder / "rooms"
    if asked == "embedded" or (asked == "auto" and not have_classes(own, classes)):
        return Source("embedded", "rooms renderer", "renderer-1")
    return Source("official", "pictures by class", fingerprint(class_files(own, classes)))


class OpenRooms:
    """A task with its pictures loaded."""

    def __init__(self, kind: str, where: str, settings: Settings, ctx: TaskContext) -> None:
        from compbench.data.room_images import FolderRooms, RenderedRooms

        self.where, self.settings, self.ctx, self.task = where, settings, ctx, make_task(kind, where, settings)
        self.pictures: RoomPictures
        if ctx.source.kind == "official":
            self.pictures = FolderRooms(SECOND[kind], settings.side, ctx)
        else:
            self.pictures = RenderedRooms(SECOND[kind], settings.side, settings.pictures, ctx)

    def problem(self, budget: Budget) -> Problem:
        return Problem(
            space=self.task.space,
            event=self.task.event,
            federation=Federation([MixtureSilo(self.pictures, SOURCES[self.where], self.ctx.device, 4 * self.settings.pictures)]),
            budget=budget,
            holdout=self.task.holdout,
            base=(0, 0),
            composed=(0, 1),
        )

    def prepare(self) -> None:
        self.evaluation.prepare()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        return self.evaluation.evaluate(sampler)

    @cached_property
    def evaluation(self) -> RoomsEvaluation:
        """Judge and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.rooms_evaluation import JUDGES, NUM_SAMPLES, RealRooms, RoomsEvaluation

        laws = {**SOURCES[self.where], (1, 1): exact_shares(self.where)}
        return RoomsEvaluation(
            real=RealRooms(self.pictures, laws, self.settings.side, self.ctx.device),
            space=self.task.space,
            holdout=self.task.holdout,
            judge=JUDGES[self.ctx.preset],
            sizes=NUM_SAMPLES[self.ctx.preset],
            dataset=f"rooms-{self.task.space.names[1]}-{self.settings.side}-{self.settings.pictures}",
            ctx=self.ctx,
        )


class MixtureSilo:
    """Pictures of the three conditions: draw a condition uniformly, a class by the condition's shares, a picture of the class.

    Args:
        pictures: pictures of the four classes.
        sources: class shares of each condition.
        device: device of the batches.
        size: number of training pictures.
    """

    name = "all"

    def __init__(self, pictures: RoomPictures, sources: dict[Cell, Shares], device: torch.device, size: int) -> None:
        self._pictures, self._sources, self._device, self.size = pictures, sources, device, size

    def batch(self, size: int, generator: Generator) -> Batch:
        """Pictures in [-1, 1] and their conditions."""
        import torch

        cells, shares = torch.tensor(list(self._sources)), torch.tensor(list(self._sources.values()))
        rows = torch.randint(len(cells), (size,), generator=generator)
        classes = torch.multinomial(shares[rows], 1, generator=generator)[:, 0]
        x1 = self._pictures.training(classes, generator).float().div_(127.5).sub_(1)
        return Batch(x1, send(cells[rows], self._device))


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return tuple(make_task(kind, where) for kind in SECOND for where in SOURCES)
