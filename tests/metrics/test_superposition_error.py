import pytest
import torch

from compbench.data.bumps import bumps
from compbench.metrics.superposition_error import (
    as_superposition,
    binary_factorised_kernel,
    centred_alignment,
    kernel_alignments,
    superposition_score,
)

N = 28


@pytest.fixture(scope="module")
def centre() -> tuple[torch.Tensor, torch.Tensor]:
    """True bumps on the grid, float64 (N, N, N^2), and the held-out centre."""
    place = torch.arange(N, dtype=torch.float64)
    truth = bumps(torch.cartesian_prod(place, place), size=N, sigma=1.0).reshape(N, N, -1)
    inside = (place >= 6) & (place <= 22)
    return truth, inside[:, None] & inside


def test_true_bumps_have_the_protocols_scores(centre) -> None:
    truth, heldout = centre
    assert superposition_score(truth, heldout) == pytest.approx(0.057, abs=5e-4)
    assert kernel_alignments(truth, heldout) == pytest.approx((0.113, 0.410, 0.418), abs=6e-4)


def test_an_exact_superposition_has_the_protocols_scores(centre) -> None:
    truth, heldout = centre
    superposed = as_superposition(truth, heldout)
    assert superposition_score(superposed, heldout) == pytest.approx(1, abs=1e-12)
    assert kernel_alignments(superposed, heldout) == pytest.approx((0.604, 0.630, 0.210), abs=5e-4)
    mse = (superposed - truth).square().mean(-1)[heldout].mean()
    blank = truth.square().mean(-1)[heldout].mean()
    assert float(mse) == pytest.approx(5.7e-3, abs=5e-5)
    assert float(mse / blank) == pytest.approx(1.43, abs=5e-3)


def test_seen_outputs_do_not_depend_on_held_out_ones(centre) -> None:
    truth, heldout = centre
    spoiled = torch.where(heldout[..., None], torch.rand_like(truth), truth)
    assert torch.equal(as_superposition(spoiled, heldout), as_superposition(truth, heldout))


def test_alignment_ignores_scale_and_offset_and_is_one_for_the_kernel_itself() -> None:
    cells = torch.cartesian_prod(torch.arange(4), torch.arange(3))
    kernel = binary_factorised_kernel(cells, cells)
    assert kernel[0].tolist()[:4] == [1, 0.5, 0.5, 0.5]
    assert centred_alignment(3 * kernel + 2, kernel) == pytest.approx(1)
