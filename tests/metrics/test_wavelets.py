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


def test_it_is_that_of_the_authors_package() -> None:
    math = pytest.importorskip("pytorchfwd.freq_math", reason="pytorchfwd is not installed")
    default = torch.get_default_dtype()
    try:
        sides = []
        for images in (IMAGES, IMAGES.float().sqrt().mul(15).to(torch.uint8)):
            packets = math.forward_wavelet_packet_transform(images.double() / 255, "haar", 2, False)  # (N, P, C, H, W)
            flat = packets.flatten(2).numpy()
            sides.append([(flat[:, p].mean(0), numpy.cov(flat[:, p].T)) for p in range(flat.shape[1])])
        theirs = [math.calculate_frechet_distance(m, s, n, t) for (m, s), (n, t) in zip(*sides, strict=True)]
    finally:
        torch.set_default_dtype(default)
    ours = frechet_wavelet_distance(IMAGES, IMAGES.float().sqrt().mul(15).to(torch.uint8))
    assert ours == pytest.approx(float(numpy.mean(theirs)), rel=1e-6)
