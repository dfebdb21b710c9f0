"""Points on teachers' paths: where they lie, and that a resumed student sees the same."""

import torch
from torch import Generator, Tensor, nn

from compbench.api.context import Context, NoCheckpoints
from compbench.flow.experts import Experts
from compbench.flow.teachers import TeachersPaths


class Constant(nn.Module):
    """v = value, the same everywhere: paths are straight, x_t = x0 + t value."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def stacked(self, x: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        return (self.value + 10 * conditions[..., :1]).expand(*conditions.shape[:2], 2) + 0 * x


def paths(num_points: int = 10, seed: int = 0) -> TeachersPaths:
    nets = [Constant(1.0), Constant(-2.0)]
    labels = torch.stack([torch.zeros(50, 2, dtype=torch.long), torch.ones(50, 2, dtype=torch.long)])
    ctx = Context(torch.device("cpu"), "fp32", Generator().manual_seed(seed), NoCheckpoints())
    experts = Experts(nets[0], [net.state_dict() for net in nets])
    return TeachersPaths(experts, torch.tensor([3.0, 1.0]), labels, shape=(2,), num_points=num_points, ctx=ctx)


def test_points_lie_on_the_paths_of_the_teacher_that_knows_the_condition() -> None:
    source = paths()
    batches = [source.batch(64, Generator()) for _ in range(200)]
    x_t, t = torch.cat([b.x_t for b in batches]), torch.cat([b.t for b in batches])
    condition, velocity = torch.cat([b.condition for b in batches]), torch.cat([b.velocity for b in batches])
    first = condition[:, 0] == 0
    assert torch.equal(velocity[first], torch.full_like(velocity[first], 1.0))
    assert torch.equal(velocity[~first], torch.full_like(velocity[~first], 8.0))
    x0 = x_t - t[:, None] * velocity
    assert abs(float(x0.mean())) < 0.05
    assert abs(float(x0.std()) - 1) < 0.05
    assert 0.55 < first.float().mean() < 0.92  # three quarters, of only 160 teachers drawn
    assert t.min() < 0.03
    assert t.max() > 0.97
    assert abs(float(t.mean()) - 0.5) < 0.03


def test_a_batch_mixes_times_and_the_pool_gives_each_point_once() -> None:
    source = paths(num_points=5)
    batches = [source.batch(16, Generator()) for _ in range(5)]
    assert len(batches[0].t.unique()) == 5
    assert len(torch.cat([batch.x_t for batch in batches]).unique(dim=0)) == 80


def test_batches_depend_on_their_number_only() -> None:
    one, other = paths(), paths()
    before = [one.batch(16, Generator()) for _ in range(25)]
    other.seek(23)
    for number in (23, 24):
        for first, second in zip(before[number], other.batch(16, Generator()), strict=True):
            assert torch.equal(first, second)
    assert not torch.equal(before[0].x_t, paths(seed=1).batch(16, Generator()).x_t)
