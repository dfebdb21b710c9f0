import torch

from compbench.data.bumps import bumps
from compbench.metrics.localisation import localise, shaped

PLACES = torch.tensor([[3, 9], [9, 3], [0, 11], [5, 5]])


def images(places: torch.Tensor = PLACES) -> torch.Tensor:
    return bumps(places, size=12, sigma=1.0)


def test_true_bumps_are_where_they_were_asked_for() -> None:
    found = localise(images(), PLACES)
    assert all(bool(part.all()) for part in found)


def test_x_is_the_column_and_y_the_row() -> None:
    found = localise(images(), PLACES.flip(1))  # axes swapped: only the bump on the diagonal is right
    assert found.both.tolist() == [False, False, False, True]


def test_one_pixel_off_is_right_but_not_exact_and_two_are_wrong() -> None:
    for off, right in ((1, True), (2, False)):
        asked = PLACES.clone()
        asked[:, 0] += off
        found = localise(images(), asked)
        assert found.both.tolist() == [right] * 4
        assert found.y.all()
        assert not found.exact.any()


def test_a_second_peak_above_half_or_a_low_one_is_not_strictly_right() -> None:
    other = images(torch.tensor([[9, 9]]))
    place = torch.tensor([[2, 2]])
    first = images(place)
    strict = [localise(image, place).strict.item() for image in (first + 0.4 * other, first + 0.6 * other, 0.45 * first)]
    assert strict == [True, False, False]
    assert localise(first + 0.6 * other, place).both.item()


def test_a_crossing_of_stripes_is_in_place_and_strictly_right_but_not_of_the_shape() -> None:
    stripes = bumps(
        torch.cat([PLACES.where(torch.tensor([True, False]), -1), PLACES.where(torch.tensor([False, True]), -1)]),
        size=12,
        sigma=1.0,
    )
    crossing = stripes[:4] + stripes[4:]
    assert localise(crossing, PLACES).strict.all()
    assert not shaped(crossing, images(), PLACES).any()


def test_the_shape_is_right_at_any_height_and_up_to_a_pixel_off() -> None:
    place = torch.tensor([[5, 5]])
    found = [shaped(height * images(place + off), images(place), place).item() for height, off in ((1, 0), (0.4, 0), (1, 2))]
    assert found == [True, True, False]
    assert shaped(images(torch.tensor([[6, 5]])), images(place), place).item()
