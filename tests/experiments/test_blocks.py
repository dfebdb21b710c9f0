"""The toy of six blocks: its truth is right, its composition of exact velocities too, and the pair's penalty misses the whole."""

import blocks
import torch
from torch import Generator, Tensor

from compbench.api.context import Batch
from compbench.api.factors import NULL
from compbench.flow.masking import Masking


def test_examples_are_seen_and_right() -> None:
    batch = blocks.Blocks().batch(2000, Generator().manual_seed(0))
    assert blocks.right(batch.x1, batch.condition).float().mean() > 0.999
    assert (batch.condition[:, :2].sum(1) % 2 == 0).all()


def test_a_sample_elsewhere_is_wrong() -> None:
    condition = torch.zeros(4, 6, dtype=torch.long)
    centre = blocks.places(condition).flatten(1)
    assert not blocks.right(blocks.places(condition + 1).flatten(1), condition).any()
    assert not blocks.right(centre + 0.7, condition).any()  # nearest to its place, but off by 6.6 standard deviations


class Sums:
    """The exact velocity of independent blocks: of a condition what its factors ask for, of NULL the mixture of all values."""

    def __call__(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        blocks_of, values = x.unflatten(1, (-1, 1, 2)), blocks.places(torch.arange(blocks.NUM_VALUES))
        time = t[:, None, None]
        var = (time * blocks.STD) ** 2 + (1 - time) ** 2
        logits = -(blocks_of - time[..., None] * values).square().sum(-1) / (2 * var)
        told = (condition[..., None] == torch.arange(blocks.NUM_VALUES)) | (condition == NULL)[..., None]
        weights = logits.masked_fill(~told, -torch.inf).softmax(-1)[..., None]  # (B, F, values, 1)
        gain = ((time * blocks.STD**2 - (1 - time)) / var)[..., None]
        return (weights * (values + gain * (blocks_of - time[..., None] * values))).sum(2).flatten(1)


def test_slices_of_the_exact_velocity_are_right_on_both_splits() -> None:
    found = blocks.scores(Sums(), blocks.slices, 0)
    assert min(found) > 0.99


class Recorder(torch.nn.Module):
    """Answers 0 times a weight, and keeps the conditions that it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Tensor] = []
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        self.asked.append(condition)
        return x * self.weight


def test_the_pair_s_penalty_never_asks_for_the_whole_condition_and_the_other_does() -> None:
    batch: Batch = blocks.Blocks().batch(50, Generator().manual_seed(0))
    whole = {}
    for form in ("pair", "rest"):
        net = Recorder()
        blocks.coind_loss(form, Masking(0.0, 0.0, 1.0))(net, batch, Generator().manual_seed(1))
        whole[form] = int((net.asked[0] != NULL).all(1).sum())
    assert whole == {"pair": 0, "rest": 50}
