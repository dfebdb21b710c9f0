import torch
from compbench_example.additive_gaussian import Settings, compbench_methods, fit, sample

from compbench.checkpoints import NoCheckpoints
from compbench.factors import Factor, FactorSpace, Holdout
from compbench.federation import Federation
from compbench.interfaces import Batch, Budget, Context, Event, Problem, Request

SPACE = FactorSpace([Factor("a", 2), Factor("b", 3)])


class AdditiveSilo:
    """x = (a, 10 b) + 0.1 e: exactly what the method assumes."""

    name, size = "all", 6

    def batch(self, size: int, generator: torch.Generator) -> Batch:
        condition = HOLDOUT.draw(size, generator, heldout=False)
        x1 = condition * torch.tensor([1.0, 10.0]) + 0.1 * torch.randn(size, 2, generator=generator)
        return Batch(x1, condition)


HOLDOUT = Holdout.by_rule(SPACE, ["a", "b"], lambda a, b: (a, b) == (1, 2))


def test_an_additive_truth_is_found_at_the_held_out_combination() -> None:
    budget = Budget(train_steps=100, batch_size=64, width=1, learning_rate=1e-3, sample_steps=1)
    problem = Problem(SPACE, Event("vector", (2,)), Federation([AdditiveSilo()]), budget, HOLDOUT)
    ctx = Context(torch.device("cpu"), "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
    model = fit(Settings(), problem, ctx)
    request = Request(torch.tensor([[1, 2]] * 2000), torch.randn(2000, 2, generator=ctx.generator))
    samples = sample(Settings(), model, request, ctx)
    assert torch.allclose(samples.mean(0), torch.tensor([1.0, 20.0]), atol=0.05)
    assert torch.allclose(samples.std(0), torch.tensor([0.1, 0.1]), atol=0.05)


def test_the_hook_offers_the_method_under_its_entry_points_name() -> None:
    assert [method.name for method in compbench_methods()] == ["additive-gaussian"]
