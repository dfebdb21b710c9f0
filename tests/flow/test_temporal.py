"""The temporal UNet: shapes, folding, and where the condition enters."""

import pytest
import torch

from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.interfaces import Budget, Event
from compbench.flow.nets import Modulation, VelocityNet, backbone, monolithic_net
from compbench.flow.temporal import TemporalUNet
from compbench.system.errors import CompbenchError

EVENT = Event("trajectory", (17, 24))


def budget(**changes: object) -> Budget:
    facts = {"train_steps": 1, "batch_size": 2, "width": 8, "learning_rate": 1e-3, "sample_steps": 2}
    return Budget(**{**facts, **changes})


def stirred(**changes: object) -> VelocityNet:
    """A network none of whose weights is zero."""
    torch.manual_seed(0)
    space = FactorSpace([Factor("source", 4), Factor("destination", 4)])

    class Problem:
        event, federation = EVENT, None
        composed, guidance_weight = (), 1.0

    problem = Problem()
    problem.space, problem.budget, problem.holdout = space, budget(**changes), Holdout.empty(space)
    net = monolithic_net(problem)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net.eval()


@pytest.mark.parametrize("patch", [1, 2, 4])
@pytest.mark.parametrize("frames", [24, 12, 96])
def test_temporal_unet_gives_a_velocity_of_the_trajectorys_shape(patch: int, frames: int) -> None:
    net = backbone(Event("trajectory", (17, frames)), budget(patch=patch))
    assert isinstance(net, TemporalUNet)
    trunk = net.encode(torch.randn(3, 17, frames), torch.rand(3))
    nothing = torch.zeros(3, net.mid_channels)
    assert net.decode(trunk, Modulation(nothing, nothing)).shape == (3, 17, frames)


def test_temporal_unet_folds_and_unfolds_frames_in_order() -> None:
    net = TemporalUNet((2, 4), width=8, patch=2)
    x = torch.arange(8.0).view(1, 2, 4)
    folded = net._folded(x)
    assert folded.shape == (1, 4, 2)
    assert folded[0, :, 0].tolist() == [0, 1, 4, 5]  # channels of frames 0 and 1
    assert torch.equal(net._unfolded(folded), x)


def test_temporal_unet_refuses_a_patch_that_does_not_divide() -> None:
    with pytest.raises(CompbenchError, match="patch 5 does not divide trajectories of 24 frames"):
        TemporalUNet((17, 24), width=8, patch=5)


def test_the_condition_changes_all_frames_and_stacked_agrees_with_forward() -> None:
    net = stirred(patch=2)
    x, t = torch.randn(2, 17, 24), torch.rand(2)
    conditions = torch.tensor([[[0, 1], [2, 3]], [[0, -1], [-1, 3]], [[-1, -1], [-1, -1]]])
    together = net.stacked(x, t, conditions)
    for k, condition in enumerate(conditions):
        torch.testing.assert_close(together[k], net(x, t, condition))
    assert ((together[0] - together[2]).abs() > 1e-6).all()
