import pytest
import torch

from compbench.api.factors import NULL
from compbench.flow import scores
from compbench.flow.noise import NoiseNet
from compbench.flow.path import LinearPath, VariancePreservingPath, velocity_to_score
from compbench.flow.scores import around_base, composition, like_conditions, of_velocity_net


def as_lists(members):
    return [(member.weight, member.condition.tolist()) for member in members]


def test_two_perturbations_around_the_base() -> None:
    """Catastrophic Compositional Generation, equation 7: p(1,0) p(0,1) / p(0,0)."""
    found = as_lists(around_base(torch.tensor([[1, 1]]), (0, 0), (1.0, 1.0)))
    assert found == [(-1.0, [[0, 0]]), (1.0, [[1, 0]]), (1.0, [[0, 1]])]


def test_an_unperturbed_or_open_factor_adds_nothing() -> None:
    found = around_base(torch.tensor([[1, 0], [NULL, 1]]), (0, 0), (1.0, 1.0))
    assert sum(member.weight for member in found) == 1
    assert as_lists(found) == [(-1.0, [[0, 0], [0, 0]]), (1.0, [[1, 0], [0, 0]]), (1.0, [[0, 0], [0, 1]])]


def test_weights_of_any_perturbation_sum_to_one() -> None:
    for weight in (0.5, 1.0, 3.0):
        for base in ((0, 0), ()):
            assert sum(member.weight for member in composition(torch.tensor([[1, 1]]), base, (weight, 1.0))) == 1


def test_without_a_base_composition_is_around_null() -> None:
    found = as_lists(composition(torch.tensor([[2, 1]]), (), (1.0, 1.0)))
    assert found == [(-1.0, [[NULL, NULL]]), (1.0, [[2, NULL]]), (1.0, [[NULL, 1]])]


def test_sigma_comes_from_a_table_of_each_path(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.25, 0.5, 1 / 3]
    for path in (LinearPath(), VariancePreservingPath(), VariancePreservingPath(0.2, 10.0)):
        expected = [float(path.at(torch.tensor(t, dtype=torch.float64)).sigma) for t in times]
        assert [scores.sigma_at(path, t) for t in times] == expected
    with monkeypatch.context() as patch:
        patch.setattr(VariancePreservingPath, "at", lambda self, t: pytest.fail("worked out twice"))
        assert scores.sigma_at(VariancePreservingPath(0.2, 10.0), 0.5) != scores.sigma_at(VariancePreservingPath(), 0.5)


def test_scores_of_a_noise_network_are_the_same_by_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    net = NoiseNet(2, ((0, 0), (1, 0), (0, 1)), width=8, experts=False, sample_steps=4)
    members = scores.of_noise_net(net, VariancePreservingPath(), composition(torch.tensor([[1, 1]]), (0, 0), (1.0, 1.0)))
    x = torch.randn(1, 5, 2)
    with torch.no_grad():
        plain = members.composed(x, 0.3)
        monkeypatch.setattr(scores, "on_gpu", lambda device: True)
        by_table = members.composed(x, 0.3)
    assert torch.equal(plain.score, by_table.score)
    assert torch.equal(plain.gap, by_table.gap)


def test_like_conditions_are_found_wherever_they_stand() -> None:
    groups = like_conditions(torch.tensor([[1, 1], [0, 1], [1, 1], [0, 0]]))
    assert sorted(group.tolist() for group in groups) == [[0, 2], [1], [3]]


def test_a_velocity_networks_scores_are_composed_row_by_row() -> None:
    """Each request keeps its own condition, whatever its particles are."""

    def net(x, t, condition):
        return x * (1 + condition.sum(1)[:, None].float()) + t[:, None]

    condition = torch.tensor([[1, 1], [0, 1]])
    members = composition(condition, (), (1.0, 1.0))
    x, t = torch.randn(2, 3, 2), 0.4
    found = of_velocity_net(net, members).composed(x, t)
    times = torch.full((1,), t)
    for b in range(2):
        for k in range(3):
            each = [
                (m.weight, velocity_to_score(LinearPath(), net(x[b, k][None], times, m.condition[b][None]), x[b, k][None], times))
                for m in members
            ]
            total = sum(w * s for w, s in each)
            assert torch.allclose(found.score[b, k], total[0], atol=1e-5)
            gap = total.square().sum() - sum(w * s.square().sum() for w, s in each)
            assert torch.allclose(found.gap[b, k], gap, atol=1e-4)
