import torch

from compbench.api.factors import NULL
from compbench.flow.encode import centred_one_hot, one_hot, one_hots


def test_one_hot_of_null_is_zero() -> None:
    assert one_hot(torch.tensor([1, NULL, 0]), 2).tolist() == [[0, 1], [0, 0], [1, 0]]


def test_one_hots_stand_side_by_side_in_the_order_of_factors() -> None:
    assert one_hots(torch.tensor([[1, 2], [NULL, 0]]), (2, 3)).tolist() == [[0, 1, 0, 0, 1], [0, 0, 1, 0, 0]]


def test_centred_one_hot_subtracts_the_frequencies() -> None:
    code = centred_one_hot(torch.tensor([0, NULL]), torch.tensor([0.75, 0.25]))
    assert code.tolist() == [[0.25, -0.25], [0, 0]]


def test_centred_one_hot_has_zero_mean_over_the_training_data() -> None:
    values = torch.tensor([0, 0, 0, 1])
    torch.testing.assert_close(centred_one_hot(values, torch.tensor([0.75, 0.25])).mean(0), torch.zeros(2))


def test_one_hots_have_the_paper_s_57_entries_on_shapes3d() -> None:
    assert one_hots(torch.zeros(1, 6, dtype=torch.long), (10, 10, 10, 8, 4, 15)).shape == (1, 57)
