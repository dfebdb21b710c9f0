"""Image tasks on a factor grid that a function renders: training data by index, and the referee's judges and scores.

A picture depends on more than its condition: on the position within a bin, and on factors that no condition names.  So there are
two factor grids: a fine one for the pictures, and one for the conditions, whose factors are bins of the fine grid's factors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from compbench.api.context import Batch
from compbench.api.factors import FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Evaluation, Event, Extension, Problem, Sampler, Score, TaskContext
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from compbench.data.lattices import Images
    from compbench.metrics.judge import JudgeSettings
    from compbench.tasks.image_evaluation import ImageEvaluation, Sizes

BLOCK = 512
"""Number of images rendered at a time."""


class Lattices(NamedTuple):
    """The factor grid of pictures and the factor grid of conditions.

    Attributes:
        fine: the factors that a picture depends on; conditions need not name all of them.
        space: the conditions; each factor has the name of one in `fine`, and its values are equal bins of neighbouring values.
        holdout: the held-out combinations of `space`.
    """

    fine: FactorSpace
    space: FactorSpace
    holdout: Holdout

    @property
    def deterministic(self) -> bool:
        """Whether each combination has exactly one picture."""
        return self.fine.num_combinations == self.space.num_combinations

    @property
    def num_seen(self) -> int:
        """Number of pictures of seen combinations."""
        pattern = self.holdout.pattern_space.num_combinations
        return self.fine.num_combinations * (pattern - len(self.holdout.cells)) // pattern

    def condition(self, fine: Tensor) -> Tensor:
        """Conditions (B, F) of fine combinations (B, F')."""
        import torch

        places = [self.fine.index(name) for name in self.space.names]
        widths = [self.fine.sizes[place] // size for place, size in zip(places, self.space.sizes, strict=True)]
        return fine[:, places] // torch.tensor(widths, device=fine.device)

    def refined(self, condition: Tensor, generator: Generator) -> Tensor:
        """Fine combinations (B, F') drawn uniformly among those of full conditions (B, F)."""
        fine = self.fine.uniform(len(condition), generator)
        for column, name in enumerate(self.space.names):
            place = self.fine.index(name)
            width = self.fine.sizes[place] // self.space.sizes[column]
            fine[:, place] = condition[:, column].cpu() * width + fine[:, place] % width
        return fine

    def draw(self, count: int, generator: Generator, *, seen_only: bool) -> Tensor:
        """Fine combinations drawn uniformly from all or only from the seen ones, (count, F')."""
        if not seen_only:
            return self.fine.uniform(count, generator)
        return self.refined(self.holdout.draw(count, generator, heldout=False), generator)


class OpenLattice(ABC):
    """A task with its renderer or file open.

    Args:
        images: fine combinations (B, F') -> uint8 pictures (B, C, H, W), C is 1 or 3.
        lattices: the factor grids of pictures and of conditions.
        event: shape of one sample.
        guidance_weight: w of every composed sample on the holdout's factors.
        ctx: context of the run.
        added: the factor that an extension task adds; "" if none is added.
    """

    def __init__(
        self, images: Images, lattices: Lattices, event: Event, guidance_weight: float, ctx: TaskContext, *, added: str = ""
    ) -> None:
        self.images, self.lattices, self.event = images, lattices, event
        self.guidance_weight, self.ctx, self.added = guidance_weight, ctx, added

    def problem(self, budget: Budget) -> Problem:
        """Pictures of the seen combinations; an extension task begins with the problem that lacks the added factor."""
        full = self._problem(self.lattices, budget)
        if not self.added:
            return full
        base = self.lattices.space.without(self.added)
        without = self.lattices._replace(space=base, holdout=Holdout.empty(base))
        return replace(self._problem(without, budget), extension=Extension(self.added, full))

    def _problem(self, lattices: Lattices, budget: Budget) -> Problem:
        return Problem(
            space=lattices.space,
            event=self.event,
            federation=Federation([RenderedSilo(self.images, lattices, self.ctx)]),
            budget=budget,
            holdout=lattices.holdout,
            composed=lattices.holdout.factors,
            guidance_weight=self.guidance_weight if lattices.holdout.factors else 1.0,
            deterministic=lattices.deterministic,
        )

    @property
    @abstractmethod
    def evaluation(self) -> LatticeEvaluation:
        """Judges and scores; created on first use, which happens only in the referee."""

    def prepare(self) -> None:
        self.evaluation.prepare()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        return self.evaluation.evaluate(sampler)


class LatticeEvaluation(Protocol):
    """What scores a task's samples."""

    def prepare(self) -> None:
        """Train the judges, or load them, before any fit."""
        ...

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Scores of every split, and the sample grid."""
        ...


class Referee(NamedTuple):
    """How a task's samples are scored by two judges.

    Attributes:
        dataset: name of the pictures, a key of the judges' cache.
        judge, sizes: the judges' training settings and the numbers of images under the preset.
        further: (requested conditions, samples as uint8 (N, C, H, W), split) -> scores in addition to the judges'.
    """

    dataset: str
    judge: JudgeSettings
    sizes: Sizes
    further: Callable[[Tensor, Tensor, str], list[Score]] | None = None


class JudgedLattice(OpenLattice):
    """A task whose samples two judges score: one trained on all combinations, one on the seen combinations."""

    def __init__(
        self,
        images: Images,
        lattices: Lattices,
        event: Event,
        referee: Referee,
        guidance_weight: float,
        ctx: TaskContext,
        *,
        added: str = "",
    ) -> None:
        super().__init__(images, lattices, event, guidance_weight, ctx, added=added)
        self.referee = referee

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """The judges' scores, the distances, and the task's own scores."""
        from compbench.tasks.image_evaluation import to_uint8

        own: list[Score] = []

        def asking(condition: Tensor, *, stream: str, **given: Tensor | None) -> Tensor:
            samples = sampler(condition, stream=stream, **given)
            if self.referee.further is not None and stream in ("heldout", "seen"):
                own.extend(self.referee.further(condition, to_uint8(samples), stream))
            return samples.expand(-1, 3, -1, -1)

        found = self.evaluation.evaluate(asking)
        return Evaluation((*found.scores, *own), found.pictures)

    @cached_property
    def evaluation(self) -> ImageEvaluation:
        """Judges and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.image_evaluation import ImageEvaluation

        return ImageEvaluation(
            real=RenderedImages(self.images, self.lattices, self.event, self.ctx),
            space=self.lattices.space,
            holdout=self.lattices.holdout,
            judge=self.referee.judge,
            sizes=self.referee.sizes,
            dataset=self.referee.dataset,
            added=self.added,
            ctx=self.ctx,
        )


class RenderedSilo:
    """Pictures of seen combinations, drawn uniformly with replacement and rendered on the device without workers or I/O."""

    name = "all"

    def __init__(self, images: Images, lattices: Lattices, ctx: TaskContext) -> None:
        self._images, self._lattices, self._device = images, lattices, ctx.device
        self.size = lattices.num_seen

    def batch(self, size: int, generator: Generator) -> Batch:
        """A batch of seen pictures in [-1, 1] and their conditions."""
        fine = self._lattices.draw(size, generator, seen_only=True)
        x1 = send(self._images(fine), self._device).float().div_(127.5).sub_(1)
        return Batch(x1, send(self._lattices.condition(fine), self._device))


class RenderedImages:
    """Real pictures for the referee, in three channels, because judges and Inception take three."""

    def __init__(self, images: Images, lattices: Lattices, event: Event, ctx: TaskContext) -> None:
        self._images, self._lattices, self._device = images, lattices, ctx.device
        self.shape: tuple[int, int, int] = (3, event.shape[1], event.shape[2])

    def of(self, condition: Tensor, generator: Generator) -> Tensor:
        return self._of(self._lattices.refined(condition, generator))

    def labelled(self, size: int, generator: Generator, *, seen_only: bool) -> tuple[Tensor, Tensor]:
        fine = self._lattices.draw(size, generator, seen_only=seen_only)
        return self._of(fine), send(self._lattices.condition(fine), self._device)

    def _of(self, fine: Tensor) -> Tensor:
        import torch

        made = [self._images(fine[first : first + BLOCK]) for first in range(0, len(fine), BLOCK)]
        return send(torch.cat(made), self._device).expand(-1, 3, -1, -1)


def binned(fine: FactorSpace, bins: dict[str, int]) -> FactorSpace:
    """The factor grid of conditions over some factors of a fine grid, with the given numbers of bins, in the given order.

    Raises:
        CompbenchError: a number of bins does not divide the factor's number of values.
    """
    factors = []
    for name, count in bins.items():
        factor = fine.factors[fine.index(name)]
        if factor.size % count:
            raise CompbenchError(f"{count} bins of '{name}': must divide {factor.size}, the number of its values.")
        factors.append(factor._replace(size=count, values=factor.values if count == factor.size else ()))
    return FactorSpace(factors)
