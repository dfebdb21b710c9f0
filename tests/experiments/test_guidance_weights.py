"""The search for a guidance weight: the smallest that is as good as the best, and no held-out combination is asked for."""

import torch
from guidance_weights import SeenOnly, choose
from torch import Tensor

from compbench.api.context import Context
from compbench.api.interfaces import Method, MethodSettings, Request, Score


def score(value: float, direction: str = "higher") -> Score:
    return Score(name="seen_x", metric="x", split="seen", value=value, n=300, direction=direction)


def test_the_smallest_weight_within_a_standard_error_of_the_best_is_chosen() -> None:
    """0.96 of 300 has a standard error of 0.0113: 0.95 is as good, 0.927 is not."""
    assert choose({1.0: score(0.777), 1.5: score(0.927), 2.0: score(0.95), 3.0: score(0.96)}) == 2.0
    assert choose({1.0: score(0.12, "lower"), 2.0: score(0.21, "lower")}) == 1.0


def test_a_held_out_combination_is_never_asked_for() -> None:
    asked: list[Tensor] = []

    def sample(settings: MethodSettings, model: object, request: Request, ctx: Context) -> Tensor:
        asked.append(request.condition)
        return request.x0 + 1

    class CellOptions(MethodSettings):
        weight: float = 1.0

    method = Method(name="m", settings=CellOptions, fit=lambda *_: None, sample=sample)
    problem = type("Shape", (), {"event": type("Event", (), {"shape": (2,)})})
    sampler = SeenOnly(method, None, problem, {"weight": 2.0}, 0)
    assert sampler(torch.tensor([[1, 1]] * 3), stream="heldout fid").eq(0).all()
    assert asked == []
    assert sampler(torch.tensor([[0, 1]] * 3), stream="seen").shape == (3, 2)
    assert torch.equal(torch.cat(asked), torch.tensor([[0, 1]] * 3))
