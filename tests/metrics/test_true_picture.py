import pytest
import torch

from compbench.metrics.true_picture import truth_scores

PICTURES = torch.tensor([0, 40, 80, 200], dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, 2, 2)
"""Four grey pictures: their distances are those of four numbers."""
TRAINED = torch.tensor([True, True, False, True])


def made(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)


def test_the_truth_itself_has_the_best_of_every_score() -> None:
    found = truth_scores(PICTURES, torch.arange(4), PICTURES, TRAINED)
    assert found[1:] == (1.0, 1.0, 1.0, 0.0)
    assert found.psnr == pytest.approx(54.15, abs=0.01)  # 10 log10(255^2 / 0.25)


def test_an_error_of_known_size_has_its_psnr_r2_and_rank() -> None:
    found = truth_scores(made(70, 30), torch.tensor([2, 0]), PICTURES, TRAINED)
    assert found.psnr == pytest.approx((28.1308 + 18.5884) / 2, abs=1e-3)  # MSE 100 and 900
    assert found.r2 == pytest.approx(1 - (100 + 900) / (40**2 + 40**2))
    assert found.rank == pytest.approx(1.5)  # 30 is nearer to 40 than to 0
    assert found.first == 0.5


def test_a_copy_is_nearest_to_another_trained_picture_also_with_an_error_on_it() -> None:
    true = torch.tensor([2, 2, 2, 1, 2, 0])
    copies = truth_scores(made(40, 55, 66, 40, 80, 75), true, PICTURES, TRAINED)
    # 40 and 55 are nearest to 40; 66 to the truth; a 40 that was asked for and the truth are none; 75 is nearest to 80, held out
    assert copies.copied == pytest.approx(2 / 6)


def test_copied_has_no_largest_distance_so_it_is_an_upper_bound_of_memorisation() -> None:
    far = truth_scores(made(141), torch.tensor([2]), PICTURES, TRAINED)  # 59 from the trained 200, 61 from the requested 80
    assert far.copied == 1.0


def test_the_mean_of_what_was_asked_has_r2_zero() -> None:
    assert truth_scores(made(20, 20), torch.tensor([0, 1]), PICTURES, TRAINED).r2 == pytest.approx(0.0, abs=1e-6)
