import pytest
import torch

from compbench.api.factors import Weighted
from compbench.flow.noise import NoiseNet
from compbench.flow.path import VariancePreservingPath
from compbench.flow.scores import of_noise_net
from compbench.flow.smc import Composed
from compbench.system.errors import CompbenchError

SOURCES = ((0, 0), (1, 0), (0, 1))


def net(*, experts: bool, width: int = 24) -> NoiseNet:
    torch.manual_seed(0)
    return NoiseNet(2, SOURCES, width=width, experts=experts, sample_steps=5)


def test_the_papers_conditional_model_has_792_578_parameters() -> None:
    assert sum(p.numel() for p in net(experts=False, width=512).parameters()) == 792_578


def test_sources_at_one_point_are_the_rows_of_a_batch() -> None:
    model, x, t = net(experts=False), torch.randn(7, 2), 0.3
    together = model.at_sources(x, t, [1, 2, 0])
    for row, source in zip(together, (1, 2, 0), strict=True):
        assert torch.allclose(row, model(x, torch.full((7,), t), torch.full((7,), source)), atol=1e-6)


def test_experts_are_networks_of_their_own() -> None:
    """Each expert's output equals a plain network with its weights, and training one leaves the others alone."""
    model, x, t = net(experts=True), torch.randn(9, 2), torch.full((9,), 0.3)
    out = model(x, t, torch.arange(3).repeat_interleave(3))
    for k in range(3):
        rows = slice(3 * k, 3 * k + 3)
        h = torch.cat([t[rows, None], x[rows]], dim=1)
        for weight, bias in zip(model.weights, model.biases, strict=True):
            last = weight is model.weights[-1]
            h = h @ weight[k].T + bias[k]
            h = h if last else torch.nn.functional.silu(h)
        assert torch.allclose(out[rows], h, atol=1e-6)
    out[:3].sum().backward()
    gradient = model.weights[1].grad
    assert gradient[0].abs().sum() > 0
    assert gradient[1:].abs().sum() == 0


def test_experts_at_one_point_are_the_experts_of_a_batch() -> None:
    model, x = net(experts=True), torch.randn(5, 2)
    together = model.at_sources(x, 0.3, [1, 2, 0])
    batch = model(x.repeat(3, 1), torch.full((15,), 0.3), torch.arange(3).repeat_interleave(5)).view(3, 5, 2)
    assert torch.allclose(together, batch[[1, 2, 0]], atol=1e-6)


def test_long_batches_go_through_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = net(experts=False), torch.randn(50, 2)
    whole = model.at_sources(x, 0.5, [0, 1])
    monkeypatch.setattr("compbench.flow.noise.CHUNK_ROWS", 7)
    assert torch.allclose(model.at_sources(x, 0.5, [0, 1]), whole, atol=1e-6)


def test_a_held_out_combination_is_no_source() -> None:
    with pytest.raises(CompbenchError, match=r"knows the sources .* not \(1, 1\)"):
        net(experts=False).position((1, 1))


def test_experts_refuse_a_batch_that_is_not_stratified() -> None:
    with pytest.raises(CompbenchError, match="equally many examples"):
        net(experts=True).check(torch.tensor([[0, 0], [1, 0], [1, 0]]))


def test_a_composition_of_one_source_has_no_gap() -> None:
    model = net(experts=False)
    members = [
        Weighted(1.0, torch.tensor([[1, 0]])),
        Weighted(1.0, torch.tensor([[0, 0]])),
        Weighted(-1.0, torch.tensor([[0, 0]])),
    ]
    found: Composed = of_noise_net(model, VariancePreservingPath(), members).composed(torch.randn(4, 3, 2), 0.5)
    assert found.gap.abs().max() < 1e-4
    assert found.score.shape == (4, 3, 2)
