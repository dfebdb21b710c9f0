"""Shifts and turns against known answers, and equivariance to machine precision (float64)."""

import math

import pytest
import torch
from torch import Tensor

from compbench.api.factors import NULL, Factor, FactorSpace, symmetry_of
from compbench.data.bumps import as_samples, bumps
from compbench.data.digit import rotations
from compbench.flow.symmetry import ShiftedTemplate, TurnedTemplate, shift, turn

EXACT = {"rtol": 0.0, "atol": 1e-12}


def picture(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("down", "right"), [(0, 0), (1, 0), (0, 3), (4, 5), (-2, 6)])
def test_a_shift_by_whole_pixels_is_a_roll(down: int, right: int) -> None:
    image = picture(2, 5, 7)
    found = shift(image, torch.tensor([[down + 5, right + 7]]))  # + a period: -1 is NULL
    torch.testing.assert_close(found[0], image.roll((down, right), (1, 2)), **EXACT)


def test_a_wave_shifted_by_a_part_of_a_pixel_is_the_wave_at_the_shifted_places() -> None:
    u = torch.arange(7, dtype=torch.float64)
    wave = (2 * math.pi * 3 * u / 7).cos().repeat(1, 5, 1)
    found = shift(wave, torch.tensor([[0.0, 0.3]], dtype=torch.float64))
    torch.testing.assert_close(found[0, 0, 0], (2 * math.pi * 3 * (u - 0.3) / 7).cos(), **EXACT)


def test_two_real_shifts_are_one_of_their_sum() -> None:
    image, offsets = picture(1, 5, 7), torch.tensor([[0.4, 1.7], [2.25, 0.5], [2.65, 2.2]], dtype=torch.float64)
    once = shift(image, offsets[:1])[0]
    torch.testing.assert_close(shift(once, offsets[1:2]), shift(image, offsets[2:]), **EXACT)


def test_over_an_open_axis_a_shift_gives_the_mean_of_all() -> None:
    image = picture(1, 5, 7)
    found = shift(image, torch.tensor([[NULL, 2]]))
    torch.testing.assert_close(found[0], image.roll(2, 2).mean(1, keepdim=True).expand(1, 5, 7), **EXACT)


def shifted(size: int = 8) -> ShiftedTemplate:
    decoder = ShiftedTemplate((1, size, size)).double()
    with torch.no_grad():
        decoder.template.copy_(picture(*decoder.template.shape))
    return decoder


@torch.no_grad()
@pytest.mark.parametrize(("down", "right"), [(0, 1), (3, 0), (2, 5)])
def test_moving_the_place_moves_the_image_and_nothing_comes_round_the_border(down: int, right: int) -> None:
    places = torch.cartesian_prod(torch.arange(8 - right), torch.arange(8 - down))  # (x, y)
    here, there = shifted()(places), shifted()(places + torch.tensor([right, down]))
    torch.testing.assert_close(there[..., down:, right:], here[..., : 8 - down, : 8 - right], **EXACT)


@torch.no_grad()
def test_the_template_of_one_bump_draws_every_bump_of_the_task() -> None:
    decoder = ShiftedTemplate((1, 8, 8)).double()
    difference = torch.fft.fftfreq(15, 1 / 15, dtype=torch.float64)  # 0 ... 7, -7 ... -1
    decoder.template.copy_(torch.exp(-(difference[:, None] ** 2 + difference**2) / 2)[None])
    places = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    torch.testing.assert_close(decoder(places), as_samples(bumps(places.double(), size=8, sigma=1.0)), **EXACT)


@torch.no_grad()
def test_turns_are_those_of_the_rotation_task() -> None:
    image, degrees = picture(1, 9, 9), torch.tensor([0, 37, 90, 200])
    decoder = TurnedTemplate((1, 9, 9), 360).double()
    decoder.template.copy_(image)
    torch.testing.assert_close(decoder(degrees[:, None])[:, 0], 2 * rotations(image[0], degrees) - 1, **EXACT)


@torch.no_grad()
def test_turning_by_quarters_turns_the_image_exactly() -> None:
    image = picture(1, 9, 9)
    found = turn(image, torch.tensor([0.0, 0.25, 0.5, 0.75], dtype=torch.float64))
    for quarters, own in enumerate(found):
        torch.testing.assert_close(own, image.rot90(quarters, (1, 2)), **EXACT)
    some, later = torch.tensor([[0.1], [0.35]], dtype=torch.float64)  # a quarter after any angle is a quarter
    torch.testing.assert_close(turn(image, later), turn(image, some).rot90(1, (2, 3)), **EXACT)


@pytest.mark.parametrize(
    ("factors", "shape", "symmetry"),
    [
        ((Factor("x", 6), Factor("y", 5)), (1, 5, 6), "translation"),
        ((Factor("x", 5), Factor("y", 5)), (1, 5, 6), None),
        ((Factor("a", 6), Factor("b", 5)), (1, 5, 6), None),
        ((Factor("angle", 360, periodic=True),), (1, 5, 6), "rotation"),
        ((Factor("angle", 360),), (1, 5, 6), None),
        ((Factor("angle", 360, periodic=True),), (2,), None),
    ],
)
def test_a_symmetry_is_known_by_its_factors(factors: tuple[Factor, ...], shape: tuple[int, ...], symmetry: str | None) -> None:
    assert symmetry_of(FactorSpace(factors), shape) == symmetry
