"""The same sampler on a GPU; run on demand with `pytest -m gpu`."""

import pytest
import torch

from compbench.api.factors import Weighted
from compbench.data.gaussian_oracle import SourceOracle
from compbench.flow import scores
from compbench.flow.noise import NoiseNet
from compbench.flow.path import VariancePreservingPath
from compbench.flow.smc import Settings, draw
from compbench.tasks.gaussian import distributions, make_task

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

PATH = VariancePreservingPath()
MEMBERS = [Weighted(w, torch.tensor([cell])) for w, cell in ((1.0, (1, 0)), (1.0, (0, 1)), (-1.0, (0, 0)))]


def test_oracle_swarms_reach_the_target_on_a_gpu() -> None:
    """gauss2d-nonfact-ood: 110 / 21 by theorem 1."""
    device = torch.device("cuda", 0)
    sources = distributions("gauss2d-nonfact-ood", make_task("gauss2d-nonfact-ood").settings)
    composed = scores.of_oracle(SourceOracle(sources, device), PATH, MEMBERS).composed
    generator = torch.Generator(device).manual_seed(0)
    x0 = torch.randn(4000, 2, device=device, generator=generator)
    drawn = draw(lambda part: composed, PATH, x0, 64, Settings(200), generator)
    assert drawn.x.device == x0.device
    assert drawn.x.var().item() == pytest.approx(110 / 21, rel=0.1)


def test_a_networks_scores_are_the_same_on_both_devices() -> None:
    torch.manual_seed(0)
    net = NoiseNet(2, ((0, 0), (1, 0), (0, 1)), width=64, experts=False, sample_steps=5)
    x = torch.randn(10, 3, 2)
    here = scores.of_noise_net(net, PATH, MEMBERS).composed(x, 0.4)
    there = scores.of_noise_net(net.to("cuda"), PATH, MEMBERS).composed(x.to("cuda"), 0.4)
    assert torch.allclose(here.score, there.score.cpu(), atol=1e-3)
    assert torch.allclose(here.gap, there.gap.cpu(), atol=1e-2)
