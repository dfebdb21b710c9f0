"""Tiny problems with known answers, which any correct conditional model masters in seconds, and the test of its samples.

    x1 = centre(a, b, c) + spread * e,    e ~ N(0, 1)

In entries that factors move, centres lie many spreads apart, so these entries show a wrong condition, swapped factors and clamped
samples.  The other entries have one law for all conditions, far from 0, which compositions do not change: reversed time or a path
that stops early shifts them.  For vectors this law has two modes, whose velocity depends on the time.  Statistics are medians and
quartiles, so that a method that mixes up a few samples (as a composition of few steps does) does not fail.  Only seen
combinations are requested; tasks measure how well methods sample held-out ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.api.factors import NULL, Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.testing.tiny_problems import (
    HOLDOUT,
    SMALL_SIDE,
    STEPS,
    Drawn,
    OnDevice,
    Tiny,
    perturbation,
    perturbation_laws,
)

OWN_SHARE = 0.5
"""Smallest share of a combination's samples that lie nearer to its own centre than to any other centre."""

MOST_SCALE = 0.12
"""Largest |s - 1| of the samples' scale s in entries that no factor moves; a path that stops at t has s = t."""

MOST_OVERSHOOT = 0.2
"""Largest s - 1 of a half-trained model, whose errors guidance enlarges; a path that stops early has s below 1."""

MOST_SCALE_OPEN = 0.5
"""Largest |s - 1| of samples with open factors; it is larger because there are fewer such samples."""

EFFECTS = (0.3, 3.0)
"""Smallest and largest effect of a factor on the mean of half-trained samples, over the true effect; guidance enlarges it."""

MOST_SCALE_CHANNEL = 0.25
"""Largest |s - 1| in one channel of an image; training on flipped images puts values there that a factor moves."""

LOOSE = 3
"""Factor by which `MOST_SCALE` is relaxed for methods that give one sample per condition and follow no path."""

SPREADS = (0.2, 2.6)
"""Smallest and largest spread around the median, relative to the true spread, for stochastic methods; guidance may quarter it."""

ORACLE_SPREADS = (0.65, 1.55)
"""Smallest and largest relative spread for methods that are given the true scores."""

PLACE = "give the network each row's own condition, factors in the order of problem.space, in fit and in sample"
PATH = "go from t = 0 (noise) to t = 1 (data) in all steps, forwards; do not clamp or rescale samples that are not images"
WIDTH = "draw from the whole law: neither only its mean, nor noise left over from a path that ended early"
OPENED = "train with factors left open as often as sampling asks for them: compbench.flow.masking has laws"
FLIPPED = "do not train on pictures that were flipped, turned, shifted or recoloured in a way that changes a factor"
FINITE = "look for a division by 0 near t = 0 or 1, or a product that overflows"

QUARTILES = torch.tensor([0.25, 0.75], dtype=torch.float64)

MAD = 0.6745
"""Median absolute deviation of a standard normal number."""


class Fault(NamedTuple):
    """What is wrong with samples, and where to look."""

    found: str
    fix: str


class KnownAnswer(NamedTuple):
    """A problem, and where its samples must lie.

    Attributes:
        tiny: the problem.
        cells: the requested combinations, (N, F).
        rows: number of samples of each.
        centre: conditions (B, F) -> centres, float32 (B, *D).
        spread: conditions (B, F) -> standard deviations of the entries, (B, *D).
        bounds: smallest and largest ratio of the samples' spread to the true one.
    """

    tiny: Tiny
    cells: Tensor
    rows: int
    centre: Callable[[Tensor], Tensor]
    spread: Callable[[Tensor], Tensor]
    bounds: tuple[float, float] = SPREADS

    @property
    def open_conditions(self) -> Tensor:
        """`conditions` with factors left open in turn: all, the first, the second, ...; the same in both halves of the rows."""
        condition = self.conditions()
        turn = torch.arange(len(condition) // 2).repeat(2) % (1 + condition.shape[1])
        return condition.masked_fill((turn[:, None] == 0) | (turn[:, None] == 1 + torch.arange(condition.shape[1])), NULL)

    @property
    def separated(self) -> bool:
        """Whether combinations have different centres; otherwise they differ only in width."""
        return bool(self.centre(self.cells).any())

    def conditions(self) -> Tensor:
        """Every combination equally often, in random order, (B, F)."""
        condition = self.cells.repeat(self.rows, 1)
        return condition[torch.randperm(len(condition), generator=Generator().manual_seed(1))]

    def fault(self, condition: Tensor, samples: Tensor, *, spread: bool = True) -> Fault | None:
        """What is wrong with samples (B, *D) of conditions (B, F); None if they lie where they must.

        Args:
            condition: requested conditions.
            samples: the samples returned.
            spread: whether samples of one combination must vary as the data do.
        """
        x = samples.detach().cpu().double().flatten(1)
        if not bool(x.isfinite().all()):
            return Fault(f"{int((~x.isfinite()).sum())} of {x.numel()} entries are not finite", FINITE)
        own = self._own(condition)
        if not self.separated:
            return self._spread_fault(x, own)
        fault = self._path_fault(x, MOST_SCALE if spread else LOOSE * MOST_SCALE) or self._channel_fault(x)
        fault = fault or self._elsewhere(x, own)
        return fault or (self._spread_fault(x, own) if spread else None)

    def half_learnt(self, condition: Tensor, samples: Tensor) -> bool:
        """Whether samples follow every factor to a good part, and the path from end to end."""
        x = samples.detach().cpu().double().flatten(1)
        if not bool(x.isfinite().all()) or self._path_fault(x, MOST_SCALE, MOST_OVERSHOOT) or self._channel_fault(x):
            return False
        own = self._own(condition)
        means = torch.stack([x[own == k].mean(0) for k in range(len(self.cells))])
        found, true = self._effects(means), self._effects(self._centres())
        least, most = EFFECTS
        shares = [float((f * t).sum() / t.square().sum()) for f, t in zip(found, true, strict=True)]
        return all(least <= share <= most for share in shares)

    def open_fault(self, condition: Tensor, samples: Tensor) -> Fault | None:
        """What is wrong with samples of conditions with open factors, which must lie at centres that fit the given factors."""
        x, moving = samples.detach().cpu().double().flatten(1), self._moving()
        fits = ((condition.cpu()[:, None] == NULL) | (condition.cpu()[:, None] == self.cells)).all(-1)  # (B, N)
        nearest = torch.cdist(x[:, moving], self._centres()[:, moving]).argmin(1)
        is_given = (condition.cpu() != NULL).any(1)
        share = float(fits[torch.arange(len(x)), nearest][is_given].double().mean())
        if share < OWN_SHARE:
            return Fault(f"with one factor open, {share:.0%} of the samples lie nearest to a centre that fits the others", PLACE)
        for what, rows in (("all factors open", ~is_given), ("one factor open", is_given)):
            fault = self._path_fault(x[rows], MOST_SCALE_OPEN)
            if fault is not None:
                return Fault(f"with {what}, {fault.found}", OPENED)
        return None

    def _centres(self) -> Tensor:
        return self.centre(self.cells).double().flatten(1)

    def _medians(self, x: Tensor, own: Tensor) -> Tensor:
        return torch.stack([x[own == k].median(0).values for k in range(len(self.cells))])

    def _moving(self) -> Tensor:
        """Which entries the condition moves, (D,); the others are as wide as the noise, and only the path moves them."""
        centres = self._centres()
        return (centres != centres[0]).any(0)

    def _effects(self, places: Tensor) -> list[Tensor]:
        """For each factor, the shifts of the moving entries from its first to its other values, (V - 1, D), by least squares."""
        values = [column[:, None] == column.unique()[1:] for column in self.cells.T]
        design = torch.cat([torch.ones(len(self.cells), 1), *values], dim=1).double()
        found = torch.linalg.pinv(design) @ places[:, self._moving()]
        return list(found[1:].split([own.shape[1] for own in values]))

    def own_share(self, condition: Tensor, samples: Tensor) -> float:
        """Share of the samples that lie nearest to the centre of their condition; 1 if all centres are equal."""
        if not self.separated:
            return 1.0
        moving = self._moving()
        x = samples.detach().cpu().double().flatten(1)[:, moving]
        nearest = torch.cdist(x, self._centres()[:, moving]).argmin(1)
        return float((nearest == self._own(condition)).double().mean())

    def _own(self, condition: Tensor) -> Tensor:
        """Index into `cells` of each row's condition, (B,)."""
        return (condition.cpu()[:, None] == self.cells).all(-1).int().argmax(1)

    def _path_fault(self, x: Tensor, most: float, overshoot: float | None = None) -> Fault | None:
        """Check the scale s of the entries that no factor moves: their middles (half-way between quartiles) are s * centres."""
        scale = self._scale(x, ~self._moving())
        if -most <= scale - 1 <= (most if overshoot is None else overshoot):
            return None
        return Fault(f"entries that no factor moves lie at {scale:.2f} times the data", PATH)

    def _channel_fault(self, x: Tensor) -> Fault | None:
        """Check the scale of middles in each channel of an image."""
        shape = self.centre(self.cells[:1]).shape[1:]
        if len(shape) < 3:
            return None
        still = ~self._moving()
        channel = torch.arange(shape[0]).repeat_interleave(shape[1:].numel())
        for one in range(shape[0]):
            own = still & (channel == one)
            scale = self._scale(x, own) if bool(own.any()) else 1.0
            if abs(scale - 1) > MOST_SCALE_CHANNEL:
                return Fault(f"entries of channel {one} that no factor moves lie at {scale:.2f} times the data", FLIPPED)
        return None

    def _scale(self, x: Tensor, entries: Tensor) -> float:
        """s of middles (half-way between quartiles) = s * centres, by least squares over the entries."""
        centre, middle = self._centres()[0, entries], x[:, entries].quantile(QUARTILES, dim=0).mean(0)
        return float((middle * centre).sum() / centre.square().sum())

    def _elsewhere(self, x: Tensor, own: Tensor) -> Fault | None:
        moving = self._moving()
        nearest = torch.cdist(x[:, moving], self._centres()[:, moving]).argmin(1)
        for k in range(len(self.cells)):
            found = nearest[own == k]
            if float((found == k).double().mean()) < OWN_SHARE:
                most = int(found.bincount(minlength=len(self.cells)).argmax())
                share = float((found == most).double().mean())
                return Fault(f"asked for {self._name(k)}, {share:.0%} of the samples lie nearest to {self._name(most)}", PLACE)
        return None

    def _spread_fault(self, x: Tensor, own: Tensor) -> Fault | None:
        deviations = (x - self._medians(x, own)[own]).abs()
        true = self.spread(self.cells).double().flatten(1)
        if self.separated:
            deviations, true = deviations[:, self._moving()], true[:, self._moving()]
        least, largest = self.bounds
        for k in range(len(self.cells)):
            found = deviations[own == k].median(0).values / MAD / true[k]  # (D,)
            ratios = found.square().mean().sqrt()[None] if self.separated else found
            for ratio in (float(ratios.min()), float(ratios.max())):
                if not least <= ratio <= largest:
                    return Fault(f"samples of {self._name(k)} spread {ratio:.2f} times as wide as the data", WIDTH)
        return None

    def _name(self, k: int) -> str:
        return f"({', '.join(str(value) for value in self.cells[k].tolist())})"


def _vectors(condition: Tensor) -> Tensor:
    """(2 + 2 a, -2 - 2 b, 4, 3 c - 4)."""
    a, b, c = condition.float().unbind(1)
    return torch.stack([2 + 2 * a, -2 - 2 * b, torch.full_like(a, 4), 3 * c - 4], dim=1)


def _pictures(condition: Tensor) -> Tensor:
    """a lights the first channel's left half, b dims its right upper quarter and the second channel's top half, c lights
    the second's right lower quarter; (B, 2, H, W).

    Most examples are bright where b dims, so a flip brightens the quarters that stay dark.
    """
    a, b, c = condition.float()[:, :, None, None].unbind(1)
    half = SMALL_SIDE // 2
    x1 = torch.full((len(condition), 2, SMALL_SIDE, SMALL_SIDE), -0.8)
    x1[:, 0, :, :half] += 1.6 * a
    x1[:, 1, :half] += 0.8 * (2 - b)
    x1[:, 0, :half, half:] += 0.8 * (2 - b)
    x1[:, 1, half:, half:] += 1.6 * c
    return x1


def _trajectories(condition: Tensor) -> Tensor:
    """Three channels, (B, 3, STEPS): a straight line from 1 to 2, then 2 a - 2 and b + 1 at all times."""
    x1 = torch.linspace(1, 2, STEPS).repeat(len(condition), 3, 1)
    x1[:, 1:] = torch.stack([2 * condition[:, 0] - 2.0, condition[:, 1] + 1.0], dim=1)[:, :, None]
    return x1


LATTICE = FactorSpace([Factor("a", 2), Factor("b", 3), Factor("c", 2)])
"""The sizes of two factors rise, fall or are equal: code that mixes up factors may work in one of these cases, but not in all."""

THREE = Holdout.by_rule(LATTICE, ("a", "b"), lambda a, b: (a, b) == (1, 2))


def _known(
    name: str,
    event: Event,
    centre: Callable[[Tensor], Tensor],
    spread: float,
    rows: int,
    budget: Budget,
    *,
    bounds: tuple[float, float] = SPREADS,
    modes: float = 0.0,
    holdout: Holdout = THREE,
) -> KnownAnswer:
    """A problem on the lattice.

    Args:
        name, event, rows, budget, bounds: as in `KnownAnswer`.
        centre: centre of every combination.
        spread: spread of the entries that factors move.
        modes: distance of two modes from the centre, divided by the centre, in the entries that no factor moves; 0 for one mode.
        holdout: the unseen part of the lattice.
    """
    space, seen = holdout.space, _seen(holdout)
    places = centre(seen)
    still = (places == places[:1]).all(0)
    wide = (0.08 if modes else STILL) * places[0].abs()
    true = torch.where(still, (modes**2 * places[0].square() + wide.square()).sqrt(), spread)

    def draw(condition: Tensor, generator: Generator) -> Tensor:
        noise = torch.randn(len(condition), *event.shape, generator=generator)
        side = 2 * torch.randint(2, (len(condition), *[1] * len(event.shape)), generator=generator) - 1
        return centre(condition) + torch.where(still, modes * places[0].abs() * side + wide * noise, spread * noise)

    def alone(condition: Tensor, generator: Generator) -> Tensor:
        """Examples with one factor given: the others have any values for which the combination is seen."""
        fits = ((condition[:, None] == NULL) | (condition[:, None] == seen)).all(-1).float()
        return draw(seen[torch.multinomial(fits, 1, generator=generator)[:, 0]], generator)

    def make(device: torch.device) -> Problem:
        parts = _singles(space)
        whole = OnDevice(Drawn("all", draw, seen), device)
        singles = OnDevice(Drawn("singles", alone, parts, size=len(parts)), device)
        return Problem(space, event, Federation([whole]), budget, holdout, composed=(0, 1), singles=singles)

    return KnownAnswer(Tiny(name, make), seen, rows, centre, lambda condition: true.expand(len(condition), *event.shape), bounds)


def _seen(holdout: Holdout) -> Tensor:
    """The combinations of all factors that are seen, (N, F)."""
    cells = torch.cartesian_prod(*[torch.arange(size) for size in holdout.space.sizes])
    held = torch.tensor(holdout.cells)
    return cells[~(cells[:, None, list(holdout.factors)] == held).all(-1).any(1)]


def _singles(space: FactorSpace) -> Tensor:
    """Conditions with one factor, for every value of every factor, (N, F)."""
    found = [(column, value) for column, size in enumerate(space.sizes) for value in range(size)]
    parts = torch.full((len(found), len(space)), NULL)
    for row, (column, value) in enumerate(found):
        parts[row, column] = value
    return parts


def _of_laws() -> KnownAnswer:
    """The sources of `perturbation`, for oracles: each is a Gaussian around 0 with its own width on each axis."""
    laws = perturbation_laws()
    deviations = {cell: law.variances[0].float().sqrt() for cell, law in laws.items()}

    def spread(condition: Tensor) -> Tensor:
        return torch.stack([deviations[tuple(cell)] for cell in condition.tolist()])

    cells = torch.tensor(list(laws))
    return KnownAnswer(
        Tiny("perturbation known", perturbation), cells, 256, lambda c: torch.zeros(len(c), 2), spread, ORACLE_SPREADS
    )


STILL = 0.3
"""Spread of the entries that no factor moves, relative to their centre, if they have one mode."""

TRAINING = Budget(
    train_steps=140,
    batch_size=64,
    width=32,
    learning_rate=2e-2,
    warmup_steps=5,
    ema_decay=0.9,
    sample_steps=6,
)
SMALL = TRAINING.model_copy(
    update={
        "train_steps": 44,
        "width": 8,
        "learning_rate": 1e-2,
        "final_learning_rate": 1e-2,
        "warmup_steps": 1,
        "ema_decay": 0.7,
        "sample_steps": 4,
    }
)
"""Budget with a constant learning rate: few steps learn more than twice as many at a rate that starts higher and ends at 0."""
SHORT = SMALL.model_copy(update={"batch_size": 32, "train_steps": 30, "learning_rate": 1.5e-2})

KNOWN: Sequence[KnownAnswer] = (
    _known("vector known", Event("vector", (4,)), _vectors, 0.4, 14, TRAINING, modes=0.5),
    _known("image known", Event("image", (2, SMALL_SIDE, SMALL_SIDE)), _pictures, 0.2, 6, SMALL, bounds=(0.0, 3.5)),
    _known("trajectory known", Event("trajectory", (3, STEPS)), _trajectories, 0.2, 9, SHORT, bounds=(0.0, 3.5), holdout=HOLDOUT),
    _of_laws(),
)
