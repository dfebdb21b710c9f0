"""Points on the paths of frozen experts for training a student: x_t = ODEInt(x0, v_r(. | c), 0, t) with a random teacher r.

Decentralized Compositional Flow Matching (DCFM), equation 14.  A trajectory is integrated once and all of its points are used, so
one integration gives as many batches as it has steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from compbench.flow.independence import TeacherBatch
from compbench.flow.transfer import send

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.flow.experts import Experts

NUM_GROUPS = 8
"""Number of teachers drawn, with repetition, for each pool of trajectories."""


class TeachersPaths:
    """A source of `TeacherBatch` batches for `compbench.flow.train.train`; it never runs out and needs no data.

    Teachers are drawn in proportion to their silos' sizes, with conditions that their silos have.  Times lie on a grid of
    `num_points` with a random offset, so that t is uniform.

    Args:
        experts: the teachers.
        shares: weight of each teacher, (n,).
        labels: conditions of each silo's examples, (n, N, F).
        shape: (*D) of a sample.
        num_points: number of points taken from each trajectory.
        ctx: device, precision and generator; one draw fixes all pools.
    """

    name = "teachers' paths"

    def __init__(
        self, experts: Experts, shares: Tensor, labels: Tensor, *, shape: tuple[int, ...], num_points: int, ctx: Context
    ) -> None:
        self.experts, self.shares, self.labels = experts, shares.cpu(), labels.cpu()
        self.shape, self.num_points, self.ctx = tuple(shape), num_points, ctx
        self.size = labels.shape[0] * labels.shape[1]
        self._seed = int(torch.randint(2**62, (), generator=ctx.generator))
        self._next, self._pool_number = 0, -1
        self._pool: TeacherBatch | None = None

    def seek(self, step: int) -> None:
        """Continue from batch `step`."""
        self._next = step

    def batch(self, size: int, generator: Generator) -> TeacherBatch:
        """The next `size` points; the generator is not used, because pools have their own seeds."""
        number, place = divmod(self._next, self.num_points)
        if number != self._pool_number:
            self._pool, self._pool_number = self._integrate(size, number), number
        self._next += 1
        assert self._pool is not None
        return TeacherBatch(*(part[place * size : (place + 1) * size] for part in self._pool))

    @torch.no_grad()
    def _integrate(self, size: int, number: int) -> TeacherBatch:
        """`size` trajectories, `num_points` points of each, shuffled."""
        generator = torch.Generator().manual_seed(self._seed ^ (number * 0x9E3779B97F4A7C15 & (2**62 - 1)))
        device = self.ctx.device
        groups = min(NUM_GROUPS, size)
        each = -(-size // groups)
        teachers = torch.multinomial(self.shares, groups, replacement=True, generator=generator)
        rows = torch.randint(self.labels.shape[1], (groups, each), generator=generator)
        condition = send(self.labels[teachers[:, None], rows], device)  # (groups, each, F)
        x = send(torch.randn(groups, each, *self.shape, generator=generator), device)
        offset = float(torch.rand((), generator=generator))
        chosen = self.experts.chosen(send(teachers, device))
        times = [0.0, *((place + offset) / self.num_points for place in range(self.num_points))]
        points, velocities = [], []
        for place, t in enumerate(times):
            with self.ctx.autocast():
                velocity = chosen(x, x.new_full((each,), t), condition[:, None], own_points=True)[:, 0].float()
            if place:
                points.append(x)
                velocities.append(velocity)
            if place < self.num_points:
                x = x + (times[place + 1] - t) * velocity
        order = send(torch.randperm(self.num_points * size, generator=generator), device)
        flat = [torch.stack(part).flatten(1, 2)[:, :size].flatten(0, 1)[order] for part in (points, velocities)]
        at = send(torch.tensor(times[1:]), device)[:, None].expand(-1, size).flatten()[order]
        conditions = condition.flatten(0, 1)[:size].repeat(self.num_points, 1)[order]
        return TeacherBatch(flat[0], at, conditions, flat[1])
