"""The sampler that checks what a contestant answers, where entries are given."""

import pytest
import torch

from compbench.errors import CompbenchError
from compbench.interfaces import Event, Request
from compbench.run.referee import CheckedSampler
from compbench.schemas import RunRequest

SHAPE = (2, 4)


def sampler(answer) -> CheckedSampler:
    request = RunRequest(task="t", method="m", home="/nowhere")
    return CheckedSampler(answer, Event("trajectory", SHAPE), request, batch=2, progress=lambda *_: None)


def asked() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mask = torch.zeros(5, *SHAPE, dtype=torch.bool)
    mask[:, :, 0] = True
    return torch.zeros(5, 1, dtype=torch.long), torch.randn(5, *SHAPE), mask


def test_known_entries_go_to_the_contestant_batch_by_batch_and_must_come_back() -> None:
    condition, known, mask = asked()

    def keeps(request: Request, stream: str) -> torch.Tensor:
        return torch.where(request.known_mask, request.known, request.x0)

    samples = sampler(keeps)(condition, stream="s", known=known, known_mask=mask)
    assert torch.equal(samples[mask], known[mask])
    assert torch.equal(samples[~mask], sampler(lambda request, _: request.x0)(condition, stream="s")[~mask])


def test_samples_that_change_known_entries_are_refused_with_their_share() -> None:
    condition, known, mask = asked()

    def forgets_one_channel(request: Request, stream: str) -> torch.Tensor:
        samples = torch.where(request.known_mask, request.known, request.x0)
        samples[:, 1, 0] += 1
        return samples

    with pytest.raises(CompbenchError, match=r"must keep the request's known entries, 50\.0% of them were changed"):
        sampler(forgets_one_channel)(condition, stream="s", known=known, known_mask=mask)


def test_requests_that_give_entries_do_not_count_where_speeds_are_compared() -> None:
    condition, known, mask = asked()
    drawing = sampler(lambda request, _: request.x0 if request.known is None else request.known)
    drawing(condition, stream="free")
    before = drawing.free
    drawing(condition, stream="given", known=known, known_mask=mask)
    assert drawing.free == before
    assert (before.num_samples, before.num_bytes) == (5, 2 * 5 * 8 * 4)
    assert 0 < before.seconds < drawing.seconds
