"""The test's own power: samples of the truth pass, and each flaw of them is found, without any training."""

from dataclasses import replace

import pytest
import torch
from torch import Generator

from compbench.registry.registry import Registry
from compbench.testing.known_answers import KNOWN, KnownAnswer
from compbench.testing.learning import Learner, _evaluations, asked
from compbench.testing.watched import Broken

SEPARATED = [known for known in KNOWN if known.separated]
(LAWS,) = [known for known in KNOWN if not known.separated]


def truth(known: KnownAnswer, condition: torch.Tensor) -> torch.Tensor:
    """A real example of each condition."""
    drawn = known.tiny.make(torch.device("cpu")).federation.pooled().batch(4000, Generator().manual_seed(3))
    rows, used = [], {}
    for cell in condition.tolist():
        place = used.setdefault(tuple(cell), iter((drawn.condition == torch.tensor(cell)).all(1).nonzero()[:, 0].tolist()))
        rows.append(next(place))
    return drawn.x1[rows]


def noise(samples: torch.Tensor) -> torch.Tensor:
    return torch.randn(samples.shape, generator=Generator().manual_seed(4))


def swapped(condition: torch.Tensor) -> torch.Tensor:
    return condition.flip(1).clamp(max=1)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.tiny.name)
def test_samples_of_the_truth_pass(known) -> None:
    condition = known.conditions()
    samples = truth(known, condition)
    assert known.fault(condition, samples) is None
    assert not known.separated or known.half_learnt(condition, samples)
    assert known.own_share(condition, samples) > 0.98


@pytest.mark.parametrize("known", SEPARATED, ids=lambda known: known.tiny.name)
@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        (lambda known, c: truth(known, c.roll(1, 0)), "lie nearest to"),
        (lambda known, c: truth(known, swapped(c)), "lie nearest to"),
        (lambda known, c: truth(known, c * (torch.arange(c.shape[1]) == 0)), "lie nearest to"),
        (lambda known, c: truth(known, c[:1].expand_as(c)), "lie nearest to"),
        (lambda known, c: 5 / 6 * truth(known, c) + noise(truth(known, c)) / 6, "times the data"),
        (lambda known, c: truth(known, c) / 2, "times the data"),
        (lambda known, c: truth(known, c).clamp(0, 0.3), "times the data|lie nearest to"),
        (lambda known, c: truth(known, c) / torch.zeros(()), "not finite"),
        (lambda known, c: noise(truth(known, c)), "times the data"),
    ],
    ids=["roll", "swap", "unused", "first", "early", "scale", "clamp", "infinite", "noise"],
)
def test_a_flaw_of_the_truth_is_found_and_is_not_on_its_way(known, flaw, said) -> None:
    condition = known.conditions()
    samples = flaw(known, condition)
    fault = known.fault(condition, samples)
    assert fault is not None
    assert any(part in fault.found for part in said.split("|")), fault.found
    assert fault.fix
    assert not known.half_learnt(condition, samples)


def test_samples_that_exploded_where_factors_move_them_are_not_half_learnt() -> None:
    known = SEPARATED[1]
    condition = known.conditions()
    samples = truth(known, condition)
    middle = known.centre(known.cells).mean(0)
    moved = (known.centre(known.cells) != known.centre(known.cells[:1])).any(0)
    assert known.half_learnt(condition, torch.where(moved, middle + 1.5 * (samples - middle), samples))
    assert not known.half_learnt(condition, torch.where(moved, middle + 100 * (samples - middle), samples))


def test_collapsed_samples_of_vectors_are_found_where_a_method_draws() -> None:
    known = SEPARATED[0]
    condition = known.conditions()
    collapsed = known.centre(condition) + 0.01 * noise(known.centre(condition))
    assert "as wide as the data" in known.fault(condition, collapsed).found
    assert known.fault(condition, collapsed, spread=False) is None


def test_an_oracle_of_the_other_perturbation_is_found() -> None:
    condition = LAWS.conditions()
    assert "as wide as the data" in LAWS.fault(condition, truth(LAWS, condition.flip(1))).found


def test_an_exact_gaussian_lies_exactly_where_the_data_do_and_passes(tmp_path) -> None:
    """The requests' noise comes in opposite pairs, or the mean of a few rows would be taken for a path that ends early."""
    known = SEPARATED[0]
    learner = Learner(Registry().load("methods", "mono"), known, torch.device("cpu"), tmp_path)
    drawn = known.tiny.make(learner.device).federation.pooled().batch(4000, Generator().manual_seed(3))
    deviations = (drawn.x1 - known.centre(drawn.condition)).std(0)
    samples = known.centre(learner.asked) + deviations * learner.noise(len(learner.asked))
    assert known.fault(learner.asked, samples, spread=False) is None
    still = (known.centre(known.cells) == known.centre(known.cells[:1])).all(0)
    middle = samples[:, still].quantile(torch.tensor([0.25, 0.75]), dim=0).mean(0)
    torch.testing.assert_close(middle, known.centre(known.cells)[0, still])


def test_what_a_fit_does_once_hides_no_evaluations(tmp_path) -> None:
    """dfd centres its energies once; counted with the two steps of a short fit, that left 0.1 evaluations of 24."""
    known = next(known for known in KNOWN if known.tiny.name == "vector known")
    learner = Learner(Registry().load("methods", "dfd"), known, torch.device("cpu"), tmp_path)
    declared = learner.method.evaluations(learner.settings, learner.fitted_on)
    assert _evaluations(learner, declared) == pytest.approx(declared, rel=0.05)


@pytest.mark.parametrize("masks", [0.0, 0.3])
def test_what_is_asked_for_and_never_trained_is_found_whether_or_not_it_is_learnt(masks, tmp_path) -> None:
    known = next(known for known in KNOWN if known.tiny.name == "vector known")
    learner = Learner(Registry().load("methods", "slice-cfg"), known, torch.device("cpu"), tmp_path)
    learner.settings = learner.settings.model_copy(update={"factor_dropout": masks})
    problem, steps = learner.fitted_on, 40
    learner.fitted_on = replace(problem, budget=problem.budget.model_copy(update={"train_steps": steps}))
    if masks:
        assert asked(learner) is None
    else:
        with pytest.raises(Broken, match=r"asked at NULL and single factors, trained on 0 of [\d,]+ examples"):
            asked(learner)
