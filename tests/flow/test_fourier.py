import pytest
import torch

from compbench.flow.fourier import FourierDecoder, fourier_features, pixel_places


def test_products_of_features_depend_on_the_difference_of_two_places_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    waves, place = torch.randn(2, 32, generator=generator).double(), torch.rand(10, 2, generator=generator).double()
    kernel = fourier_features(place, waves) @ fourier_features(place, waves).T
    moved = fourier_features(place + torch.tensor([0.3, -1.2]).double(), waves)
    torch.testing.assert_close(moved @ moved.T, kernel)
    torch.testing.assert_close(kernel.diagonal(), torch.full((10,), 32.0).double())


def test_the_features_kernel_is_a_gaussian_of_the_scale() -> None:
    waves = 2.0 * torch.randn(2, 200_000, generator=torch.Generator().manual_seed(0)).double()
    one, other = torch.tensor([[0.1, 0.2]]).double(), torch.tensor([[0.15, 0.17]]).double()
    kernel = (fourier_features(one, waves) @ fourier_features(other, waves).T).item() / 200_000
    distance = (one - other).square().sum()
    expected = torch.exp(-2 * torch.pi**2 * 2.0**2 * distance).item()  # E cos(2 pi b d), b ~ N(0, scale^2)
    assert kernel == pytest.approx(expected, abs=0.005)


def test_places_run_along_rows_and_stay_below_one() -> None:
    places = pixel_places(2, 4, torch.zeros(1))
    assert places[:5].tolist() == [[0, 0], [0, 0.25], [0, 0.5], [0, 0.75], [0.5, 0]]


def test_all_pixels_share_one_function_of_their_waves() -> None:
    torch.manual_seed(0)
    decoder = FourierDecoder(3, (2, 4, 5), width=8, depth=1, num_waves=6, scale=1.0)
    decoder.waves[:, :] = torch.tensor([[1.0] * 6, [0.0] * 6])  # along rows alone
    made = decoder(torch.randn(2, 3))
    assert made.shape == (2, 2, 4, 5)
    torch.testing.assert_close(made, made[..., :1].expand_as(made))
    assert not torch.allclose(made[:, :, 0], made[:, :, 1])
