"""A task in a notebook: `compbench.task("bump-center").render([[3, 4]])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.api.context import Presets
from compbench.api.factors import FactorSpace
from compbench.api.interfaces import Problem, Task
from compbench.api.schemas import RunRequest
from compbench.notebook.record_view import plain_errors
from compbench.registry.registry import Registry
from compbench.registry.resolve import budget_of, task_context, task_of
from compbench.system.devices import own_threads
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 512
BATCHES = 400
"""Number of batches of training data that are searched for a combination."""


@dataclass(frozen=True)
class TaskView:
    """A task at a preset and a seed.

    Attributes:
        task: the task itself: its space, holdout, budgets, citation and notes.
        request: the preset, seed and `task.NAME` settings with which its data is opened.
    """

    task: Task
    request: RunRequest

    def __repr__(self) -> str:
        held, event = self.task.holdout, self.task.event
        cells = f"{len(held.cells)} of {held.pattern_space.num_combinations} cells held out"
        shape = " x ".join(map(str, event.shape))
        return f"<task {self.task.name}, {self.request.preset}, seed {self.request.seed}: {cells}, {event.kind} {shape}>"

    @cached_property
    @own_threads()
    def problem(self) -> Problem:
        """What a method may know of the task: the lattice, the budget, and the seen data.  Opens the data."""
        import torch

        home = Home(Path(self.request.home))
        cache = home.cache / "notebooks"
        home.share_data(cache)
        source = self.task.source(home.data, self.request.source)
        ctx = task_context(self.request, source, torch.device("cpu"), precision="fp32", cache=cache)
        return self.task.open(ctx).problem(budget_of(self.request, self.task))

    @own_threads()
    def render(self, conditions: Tensor | Sequence[Sequence[int]]) -> Tensor:
        """One real sample of each combination: the exact one if the task has a closed form, else one from the training data.

        Args:
            conditions: (B, F) values of the factors.

        Returns:
            samples, (B, *D).

        Raises:
            CompbenchError: a combination is held out, and the task has no closed form, so only the referee has its samples.
        """
        import torch

        condition = as_conditions(self.task.space, conditions)
        if (condition < 0).any():
            raise CompbenchError("render takes combinations: give every factor a value, not -1.")
        if self.task.truth is not None:
            return self.task.truth(condition)
        if self.problem.holdout.contains(condition).any():  # the seed's own pattern, unlike that of the task
            raise CompbenchError(f"only the referee may see held-out samples of '{self.task.name}'; render seen combinations.")
        silo, generator = self.problem.federation.unmetered().pooled(), torch.Generator().manual_seed(self.request.seed)
        found: list[Tensor | None] = [None] * len(condition)
        for _ in range(BATCHES):
            batch = silo.batch(BATCH, generator)
            for row in (place for place, sample in enumerate(found) if sample is None):
                match = (batch.condition == condition[row]).all(1).nonzero()
                found[row] = batch.x1[int(match[0])] if len(match) else None
            if all(sample is not None for sample in found):
                return torch.stack([sample for sample in found if sample is not None])
        raise CompbenchError(f"none of {BATCHES * BATCH} training examples of '{self.task.name}' shows one of the combinations.")


@plain_errors
def task(name: str, *, preset: Presets = "quick", seed: int = 0, **settings: object) -> TaskView:
    """The task with this name, with `task.NAME` settings.

    Raises:
        CompbenchError: the task, a setting, the preset or the seed is unknown or invalid.
    """
    overrides = {f"task.{key}": value for key, value in settings.items()}
    request = RunRequest.of(
        task=name, method="none", overrides=overrides, preset=preset, seed=seed, home=str(Home.of_user().root)
    )
    return TaskView(task_of(request, Registry()), request)


def as_conditions(space: FactorSpace, conditions: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """Conditions as a LongTensor (B, F).

    Raises:
        CompbenchError: the shape is wrong, or a factor does not have a value.
    """
    import torch

    try:
        condition = torch.as_tensor(conditions)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CompbenchError(f"conditions are whole numbers (B, {len(space)}) of {', '.join(space.names)}: {error}.") from error
    if condition.ndim != 2 or condition.shape[1] != len(space) or condition.is_floating_point():
        kind = "floating-point numbers " if condition.numel() and condition.is_floating_point() else ""
        found = f"{kind}{tuple(condition.shape)}"
        raise CompbenchError(f"conditions are whole numbers (B, {len(space)}) of {', '.join(space.names)}; got {found}.")
    sizes = torch.tensor(space.sizes)
    if ((condition < -1) | (condition >= sizes)).any():
        ranges = ", ".join(f"{name} 0-{size - 1}" for name, size in zip(space.names, space.sizes, strict=True))
        raise CompbenchError(f"conditions outside of the lattice: {ranges}; -1 leaves a factor open.")
    return condition.long()
