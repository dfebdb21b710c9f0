"""Attention against closed forms: one key, equal keys, a key that outweighs all, and the order of tokens."""

import pytest
import torch
from torch import Tensor

from compbench.api.factors import NULL
from compbench.flow.attention import CrossAttention, FactorTokens, SelfAttention, attend
from compbench.system.errors import CompbenchError


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_equal_keys_give_the_mean_of_the_values() -> None:
    value = drawn(2, 5, 8)
    found = attend(drawn(2, 3, 8, seed=1), torch.ones(2, 5, 8), value, 4)
    torch.testing.assert_close(found, value.mean(1, keepdim=True).expand(2, 3, 8))


def test_a_head_reads_the_one_key_that_its_own_channels_agree_with() -> None:
    key = torch.zeros(1, 2, 4)
    key[0, 0, :2], key[0, 1, 2:] = 100.0, 100.0  # head 1 finds the first token, head 2 the second
    value = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]])
    torch.testing.assert_close(attend(torch.ones(1, 1, 4), key, value, 2), torch.tensor([[[1.0, 2.0, 7.0, 8.0]]]))


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(CompbenchError, match="3 heads do not divide 8 channels"):
        SelfAttention(8, 3)


def test_permuting_tokens_changes_nothing() -> None:
    torch.manual_seed(0)
    layer, h, tokens = CrossAttention(8, 2, 8), drawn(3, 5, 8), drawn(3, 4, 8, seed=1)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(layer(h, tokens), layer(h, tokens[:, order]))


def test_each_value_of_each_factor_and_each_null_has_a_token_of_its_own() -> None:
    tokens = FactorTokens((2, 3), 4)
    rows = torch.tensor([[0, 0], [1, 1], [NULL, 2], [0, NULL]])
    table = tokens.table.weight
    expected = torch.stack([table[[0, 3]], table[[1, 4]], table[[2, 5]], table[[0, 6]]])
    assert torch.equal(tokens(rows), expected)
    assert len(table) == 2 + 1 + 3 + 1
