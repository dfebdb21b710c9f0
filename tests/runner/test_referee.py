"""The sampler that checks what a contestant answers, where entries are given."""

import io
import time
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from compbench.api.interfaces import Event, Request
from compbench.api.schemas import RunRequest
from compbench.runner.heldout_pictures import MOST_SHIFT, small_png
from compbench.runner.referee import CheckedSampler, Referee
from compbench.system import profiling
from compbench.system.errors import CompbenchError

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


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 3e38, -2e9, 1e300])
def test_samples_that_no_score_could_be_made_of_are_refused_with_their_share(value: float) -> None:
    def diverged(request: Request, stream: str) -> torch.Tensor:
        samples = request.x0.double()
        samples[0] = value
        return samples

    with pytest.raises(CompbenchError, match=r"must be finite, 50\.0% of the values are NaN, infinite or beyond 1e\+09"):
        sampler(diverged)(asked()[0], stream="s")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_around_known_entries_a_diverged_sample_is_lost_alone(value: float) -> None:
    condition, known, mask = asked()

    def diverges(request: Request, stream: str) -> torch.Tensor:
        samples = torch.where(request.known_mask, request.known, request.x0).double()
        samples[-1, 1, 2] = value  # the last of each batch, and the fifth sample is a batch of its own
        return samples

    samples = sampler(diverges)(condition, stream="s", known=known, known_mask=mask)
    lost = torch.tensor([False, True, False, True, True])
    assert bool(samples[lost].isnan().all())
    assert torch.equal(samples[~lost][mask[~lost]], known[~lost][mask[~lost]])
    with pytest.raises(CompbenchError, match=r"must be finite, 100\.0%"):
        sampler(diverges)(condition[-1:], stream="s", known=known[-1:], known_mask=mask[-1:])


def test_samples_that_change_known_entries_are_refused_with_their_share() -> None:
    condition, known, mask = asked()

    def forgets_one_channel(request: Request, stream: str) -> torch.Tensor:
        samples = torch.where(request.known_mask, request.known, request.x0)
        samples[:, 1, 0] += 1
        return samples

    with pytest.raises(CompbenchError, match=r"must keep the request's known entries, 50\.0% of them were changed"):
        sampler(forgets_one_channel)(condition, stream="s", known=known, known_mask=mask)


def test_speeds_are_of_the_largest_requests_without_entries_by_the_referees_clock() -> None:
    condition, known, mask = asked()

    def slow(request: Request, stream: str) -> torch.Tensor:
        time.sleep(0.02 if request.known is None else 0.0)
        return request.x0 if request.known is None else request.known

    drawing = sampler(slow)
    drawing(condition[:1], stream="small")
    drawing(condition, stream="free")  # two requests of two rows, one of one
    drawing(condition, stream="given", known=known, known_mask=mask)
    batch, seconds = drawing.usual()
    assert (batch, len(seconds), drawing.num_bytes) == (2, 2, 2 * (1 + 5 + 5) * 8 * 4)
    assert all(each >= 0.02 for each in seconds)


def test_a_task_that_always_gives_entries_has_speeds_of_such_requests() -> None:
    condition, known, mask = asked()
    drawing = sampler(lambda request, _: request.known)
    drawing(condition, stream="given", known=known, known_mask=mask)
    assert drawing.usual().batch > 0
    assert drawing.usual().request_seconds


def test_a_gpu_s_first_request_is_asked_twice_and_timed_once() -> None:
    condition, streams = asked()[0], []

    def loads_kernels_first(request: Request, stream: str, follow: int = 0) -> torch.Tensor:
        streams.append(stream)
        time.sleep(0.5 if len(streams) == 1 else 0.0)
        return request.x0

    request = RunRequest(task="t", method="m", home="/nowhere")
    options = {"batch": 8, "progress": lambda *_: None}
    cold = CheckedSampler(loads_kernels_first, Event("vector", SHAPE), request, **options, warm_up=True)
    samples = cold(condition, stream="s")
    assert streams == ["warm-up", "s"]
    assert len(cold.usual().request_seconds) == 1
    assert max(cold.seconds, *cold.usual().request_seconds) < 0.4
    assert torch.equal(
        samples, CheckedSampler(lambda r, _: r.x0, Event("vector", SHAPE), request, **options)(condition, stream="s")
    )


def decoded(png: bytes) -> numpy.ndarray:
    return numpy.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int)


def test_a_drawing_keeps_its_colours() -> None:
    drawing = numpy.full((40, 60, 3), 255, numpy.uint8)
    drawing[10:20, 5:50], drawing[25, :] = (17, 101, 203), (1, 2, 3)
    assert numpy.array_equal(decoded(small_png(drawing)), drawing)


def test_a_photograph_has_a_palette_that_moves_its_values_little() -> None:
    shades = numpy.linspace(0, 250, 64)[:, None] + numpy.linspace(0, 5, 64)[:, None, None]
    photograph = (shades + numpy.random.default_rng(0).uniform(-5, 5, (64, 64, 3))).clip(0, 255).astype(numpy.uint8)
    found = small_png(photograph)
    assert numpy.abs(decoded(found) - photograph).mean() <= MOST_SHIFT
    plain = io.BytesIO()
    Image.fromarray(photograph).save(plain, "PNG", optimize=True)
    assert len(found) < 0.5 * plain.tell()


def test_no_value_moves_far_of_what_is_too_colourful_for_a_palette() -> None:
    colourful = numpy.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(numpy.uint8)
    colourful[0] = 255
    found = decoded(small_png(colourful))
    assert numpy.abs(found - colourful).max() <= 4
    assert found[0].min() == 255


@pytest.mark.parametrize(("slots", "processes", "known"), [(1, 2, True), (2, 2, False), (1, 3, False)])
def test_energy_is_the_run_s_only_where_it_has_the_card_alone(
    slots: int, processes: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "energy", lambda device: 5.0)
    monkeypatch.setattr(profiling, "num_processes", lambda device: processes)
    referee = Referee(RunRequest(task="blobs-iid", method="mono", home="/nowhere", slots=slots), folder=Path("/nowhere"))
    referee.device = torch.device("cuda")
    assert (referee._energy() == 5.0) is known
