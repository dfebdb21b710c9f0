"""Tiny problems of every kind of event, each fitted in a fraction of a second.

vector        the corners of a 2 x 3 lattice, (1, 2) held out
perturbation  two binary perturbations of a Gaussian, (1, 1) held out; has a base, and an oracle for methods that may see it
silos         the vectors in three silos, each with its own cells
image         colours of two halves of an image
bumps         one image per position, deterministic, with stripes as examples of single factors
trajectory    paths from a start to an end
objects       two objects in a picture, each of which lights its own half; methods that need objects get only this problem
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from compbench.api.context import Batch, Silo
from compbench.api.factors import NULL, Factor, FactorSpace, Holdout
from compbench.api.federation import Federation, LentSilo
from compbench.api.interfaces import Budget, Event, Extension, Problem
from compbench.data.bumps import TableSilo, all_stripes, as_samples, bumps
from compbench.data.gaussian_oracle import SourceOracle
from compbench.data.gaussians import Mixture, gaussian
from compbench.flow.transfer import send
from compbench.runner.counted import CountedSilo

ROWS = 9
"""Number of rows of a request: odd, and not the batch size."""

BUDGET = Budget(
    train_steps=4,
    batch_size=12,
    width=16,
    learning_rate=1e-2,
    warmup_steps=2,
    ema_decay=0.9,
    sample_steps=3,
    extend_steps=4,
)

SMALL_BUDGET = BUDGET.model_copy(update={"width": 8, "train_steps": 3})
"""Budget for pictures and trajectories, because their steps take longer."""

SPACE = FactorSpace([Factor("a", 2), Factor("b", 3)])
HOLDOUT = Holdout.by_rule(SPACE, ("a", "b"), lambda a, b: (a, b) == (1, 2))
PERTURBED = FactorSpace([Factor("first", 2), Factor("second", 2)])
SIDE, SMALL_SIDE = 8, 4
"""Side length in pixels of bumps and objects, and of other pictures; a network halves it twice."""
PLACES = FactorSpace([Factor("x", SIDE), Factor("y", SIDE)])
STEPS = 8
"""Number of frames of a trajectory."""


class Drawn:
    """A silo that makes examples of conditions; `cells` are its seen combinations.

    A batch's conditions have only the factors `labelled`, or all factors if that is None.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Tensor, Generator], Tensor],
        cells: Tensor,
        *,
        labelled: tuple[int, ...] | None = None,
        size: int = 60,
    ) -> None:
        self.name, self.size = name, size
        self._make, self._cells, self._labelled = make, cells, labelled

    def batch(self, size: int, generator: Generator) -> Batch:
        rows = torch.randint(len(self._cells), (size,), generator=generator)
        condition = self._cells[rows]
        x1 = self._make(condition, generator)
        return Batch(x1, condition if self._labelled is None else condition[:, list(self._labelled)])


class OnDevice:
    """A silo with batches on a device; it keeps the examples of all batches, and counts those drawn outside `Federation.run`."""

    def __init__(self, silo: Silo, device: torch.device) -> None:
        self._silo, self._device = silo, device
        self.name, self.size = silo.name, silo.size
        self.drawn: list[Tensor] = []
        self.num_outside = 0

    def batch(self, size: int, generator: Generator) -> Batch:
        asks = sys._getframe(1)
        if asks.f_code is CountedSilo.batch.__code__ and asks.f_back is not None:
            asks = asks.f_back
        self.num_outside += asks.f_code not in LENDERS
        batch = Batch(*(send(part, self._device) for part in self._silo.batch(size, generator)))
        self.drawn.append(batch.x1.detach().cpu().clone())
        return batch


class RecordingFederation(Federation):
    """A federation that records the states that its silos sent."""

    def __init__(self, silos: Sequence[Silo]) -> None:
        super().__init__(silos)
        self.sent: list[dict[str, Tensor]] = []

    def run(self, *args: Any, **options: Any) -> list[dict[str, Tensor]]:
        found = super().run(*args, **options)
        self.sent += found
        return found


LENDERS = {LentSilo.batch.__code__, LentSilo.labels.__code__}
"""The functions through which a decentralised method may draw a silo's data."""


class Tiny(NamedTuple):
    """A problem, and other facts that checks need.

    Attributes:
        make: device -> a fresh Problem, with its own federation and silos.
        smaller: device -> the same problem without its first factor, for extensions; None if there is none.
    """

    name: str
    make: Callable[[torch.device], Problem]
    smaller: Callable[[torch.device], Problem] | None = None


def vectors(condition: Tensor, generator: Generator) -> Tensor:
    """x = (a, b) - 0.5 + 0.1 e, (B, 2)."""
    return condition.float() - 0.5 + 0.1 * torch.randn(len(condition), 2, generator=generator)


def pictures(condition: Tensor, generator: Generator) -> Tensor:
    """a lights the left half of the first channel, b the top half of the second; (B, 2, SMALL_SIDE, SMALL_SIDE)."""
    a, b = condition[:, :1, None].float(), condition[:, 1:, None].float()
    x1 = 0.1 * torch.randn(len(condition), 2, SMALL_SIDE, SMALL_SIDE, generator=generator) - 0.5
    x1[:, 0, :, : SMALL_SIDE // 2] += a
    x1[:, 1, : SMALL_SIDE // 2] += b / 2
    return x1


def trajectories(condition: Tensor, generator: Generator) -> Tensor:
    """Straight lines from (0, a) to (1, b), (B, 2, STEPS)."""
    along = torch.linspace(0, 1, STEPS)
    start, end = torch.zeros(len(condition), 2, 1), torch.ones(len(condition), 2, 1)
    start[:, 1, 0], end[:, 1, 0] = condition[:, 0].float(), condition[:, 1].float()
    return (1 - along) * start + along * end + 0.05 * torch.randn(len(condition), 2, STEPS, generator=generator)


def _lattice(event: Event, make: Callable[[Tensor, Generator], Tensor]) -> Callable[[torch.device], Problem]:
    def problem(device: torch.device) -> Problem:
        federation = Federation([OnDevice(Drawn("all", make, _seen(HOLDOUT)), device)])
        return Problem(SPACE, event, federation, BUDGET, HOLDOUT, composed=(0, 1))

    return problem


def _without_first(event: Event, make: Callable[[Tensor, Generator], Tensor]) -> Callable[[torch.device], Problem]:
    """The lattice's problem with only b labelled, while a varies freely."""

    def problem(device: torch.device) -> Problem:
        space = SPACE.without("a")
        federation = Federation([OnDevice(Drawn("all", make, _seen(HOLDOUT), labelled=(1,)), device)])
        larger = _lattice(event, make)(device)
        return Problem(space, event, federation, BUDGET, Holdout.empty(space), extension=Extension("a", larger))

    return problem


def _silos(device: torch.device) -> Problem:
    shares = {"one": [(0, 0), (0, 1)], "two": [(0, 2), (1, 0)], "three": [(1, 1), (0, 0), (0, 2)]}
    silos = [OnDevice(Drawn(name, vectors, torch.tensor(cells)), device) for name, cells in shares.items()]
    return Problem(SPACE, Event("vector", (2,)), RecordingFederation(silos), BUDGET, HOLDOUT, composed=(0, 1))


def perturbation_laws() -> dict[tuple[int, ...], Mixture]:
    """The law of each seen combination of `perturbation`."""
    return {
        (0, 0): gaussian((3.0, 3.0)),
        (1, 0): gaussian((3.0, 1.0)),
        (0, 1): gaussian((1.0, 3.0)),
    }


def perturbation(device: torch.device) -> Problem:
    """Two binary perturbations of a Gaussian, with an oracle."""
    laws = perturbation_laws()
    holdout = Holdout(PERTURBED, (0, 1), ((1, 1),))

    def draw(condition: Tensor, generator: Generator) -> Tensor:
        x1 = torch.empty(len(condition), 2)
        for cell, law in laws.items():
            rows = (condition == torch.tensor(cell)).all(1)
            if rows.any():
                x1[rows] = law.sample(int(rows.sum()), generator).float()
        return x1

    silo = OnDevice(Drawn("all", draw, _seen(holdout)), device)
    event, oracle = Event("vector", (2,)), SourceOracle(laws, device)
    return Problem(PERTURBED, event, Federation([silo]), BUDGET, holdout, base=(0, 0), composed=(0, 1), oracle=oracle)


def _bumps(device: torch.device) -> Problem:
    holdout = Holdout.by_rule(PLACES, ("x", "y"), lambda x, y: 3 <= x <= 4 and 3 <= y <= 4)
    places, stripes = _seen(holdout), all_stripes(SIDE)
    table = TableSilo("bumps", as_samples(bumps(places, size=SIDE, sigma=1.0)), places)
    singles = TableSilo("stripes", as_samples(bumps(stripes, size=SIDE, sigma=1.0)), stripes)
    return Problem(
        PLACES,
        Event("image", (1, SIDE, SIDE)),
        Federation([OnDevice(table, device)]),
        SMALL_BUDGET,
        holdout,
        composed=(0, 1),
        singles=OnDevice(singles, device),
        deterministic=True,
    )


def _image(device: torch.device) -> Problem:
    found = _lattice(PICTURE, pictures)(device)
    return replace(found, budget=SMALL_BUDGET)


def _image_without_first(device: torch.device) -> Problem:
    found = _without_first(PICTURE, pictures)(device)
    return replace(found, budget=SMALL_BUDGET, extension=Extension("a", _image(device)))


def _trajectory(device: torch.device) -> Problem:
    found = _lattice(TRAJECTORY, trajectories)(device)
    return replace(found, budget=SMALL_BUDGET)


def _seen(holdout: Holdout) -> Tensor:
    """The seen combinations, (N, F)."""
    return torch.tensor(holdout.seen_cells)


VECTOR, TRAJECTORY = Event("vector", (2,)), Event("trajectory", (2, STEPS))
PICTURE = Event("image", (2, SMALL_SIDE, SMALL_SIDE))

PROBLEMS = (
    Tiny("vector", _lattice(VECTOR, vectors), _without_first(VECTOR, vectors)),
    Tiny("perturbation", perturbation),
    Tiny("silos", _silos),
    Tiny("image", _image, _image_without_first),
    Tiny("bumps", _bumps),
    Tiny("trajectory", _trajectory),
)


def _objects(device: torch.device) -> Problem:
    """Two objects, the front one in the left half; an object's colour is a channel, its height half or all of the picture."""
    names = ("front colour", "front height", "back colour", "back height")
    space = FactorSpace([Factor(name, 2) for name in names])
    holdout = Holdout.by_rule(space, names, lambda *cell: cell == (1, 1, 1, 1))
    cells = _seen(holdout)
    x1 = torch.full((len(cells), 2, SIDE, SIDE), -1.0)
    for row, (front, tall, back, high) in enumerate(cells.tolist()):
        x1[row, front, : SIDE // (2 - tall), : SIDE // 2] = 1.0
        x1[row, back, : SIDE // (2 - high), SIDE // 2 :] = 1.0
    silo = OnDevice(TableSilo("objects", x1, cells), device)
    budget, event = SMALL_BUDGET, Event("image", (2, SIDE, SIDE))
    return Problem(space, event, Federation([silo]), budget, holdout, composed=(0, 1, 2, 3), deterministic=True)


OBJECTS = Tiny("objects", _objects)


def opened(condition: Tensor, column: int) -> Tensor:
    """Conditions with one factor, that of `column`, left open."""
    changed = condition.clone()
    changed[:, column] = NULL
    return changed
