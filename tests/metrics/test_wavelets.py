import numpy
import pytest
import torch

from compbench.metrics.wavelets import frechet_wavelet_distance, haar_packets

GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randint(0, 256, (60, 1, 16, 16), generator=GENERATOR, dtype=torch.uint8)


def test_packets_keep_the_energy_and_the_first_one_is_block_means() -> None:
    x = torch.rand(5, 3, 16, 16, dtype=torch.float64, generator=GENERATOR)
    packets = haar_packets(x, 2)
    assert packets.shape == (5, 16, 3, 4, 4)
    assert torch.allclose(packets.square().sum((1, 2, 3, 4)), x.square().sum((1, 2, 3)))
    assert torch.allclose(packets[:, 0], 4 * torch.nn.functional.avg_pool2d(x, 4))


def test_a_set_is_at_distance_zero_of_itself_and_a_shift_of_all_pixels_is_in_closed_form() -> None:
    assert frechet_wavelet_distance(IMAGES, IMAGES) == pytest.approx(0.0, abs=1e-9)
    darker = IMAGES // 2
    moved = frechet_wavelet_distance(
        darker, darker + 51
    )  # 0.2 on every pixel moves packet 0 alone, of 16, by 4 x 0.2 on 16 pixels
    assert moved == pytest.approx(16 * (4 * 0.2) ** 2 / 16)


def test_stripes_of_one_pixel_are_seen_where_means_of_blocks_are_alike() -> None:
    striped = IMAGES // 2 + (torch.arange(16) % 2 * 100).to(torch.uint8)
    flat = IMAGES // 2 + 50
    assert frechet_wavelet_distance(flat, striped) > 100 * abs(frechet_wavelet_distance(flat, flat.roll(0)))
    means = [float(side.float().mean()) for side in (flat, striped)]
    assert means[0] == means[1]


AUTHORS = 2.44162484910832
"""Distance of the two sets below by the authors' package: pytorchfwd 1.0.1 with ptwt 0.1.8 and PyWavelets 1.9.0.

    statistics = [compute_packet_statistics(DataLoader(x.double() / 255, 32), "haar", 2, False) for x in (real, generated)]
    (mean, covariance), (other_mean, other_covariance) = statistics
    _compute_avg_frechet_distance(mean, other_mean, covariance, other_covariance)

The number is stored because pytorchfwd needs SciPy 1.11.1, so it cannot be installed next to compbench[run]."""


def test_it_is_the_number_of_the_authors_package() -> None:
    random = numpy.random.RandomState(0)  # numpy keeps the stream of this class in all versions
    real = torch.from_numpy(random.randint(0, 256, (80, 3, 16, 16)).astype(numpy.uint8))
    generated = torch.from_numpy((16 * numpy.sqrt(random.randint(0, 256, (90, 3, 16, 16)))).astype(numpy.uint8))
    assert frechet_wavelet_distance(real, generated) == pytest.approx(AUTHORS, rel=1e-9)
