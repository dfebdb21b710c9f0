"""Attention among positions, and from positions to the factors of a condition.

    a = softmax(q k^T / sqrt(d)) v, in several heads

`FactorTokens` makes a token for each factor's value, or for its absence.  Attention does not know the order of tokens: only a
token's embedding says which factor it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compbench.api.factors import NULL
from compbench.system.errors import CompbenchError


class SelfAttention(nn.Module):
    """Every position attends to every position: (B, N, C) -> (B, N, C).

    Raises:
        CompbenchError: the heads do not divide the channels.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = _heads(channels, num_heads)
        self.queries_keys_values, self.leave = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, h: Tensor) -> Tensor:
        query, key, value = self.queries_keys_values(h).chunk(3, dim=2)
        return self.leave(attend(query, key, value, self.num_heads))


class CrossAttention(nn.Module):
    """Every position attends to the tokens of its condition: (B, N, C) and (B, F, E) -> (B, N, C).

    Args:
        channels: C.
        num_heads: divides C.
        token_channels: E.
    """

    def __init__(self, channels: int, num_heads: int, token_channels: int) -> None:
        super().__init__()
        self.num_heads = _heads(channels, num_heads)
        self.queries, self.keys_values = nn.Linear(channels, channels), nn.Linear(token_channels, 2 * channels)
        self.leave = nn.Linear(channels, channels)

    def forward(self, h: Tensor, tokens: Tensor) -> Tensor:
        key, value = self.keys_values(tokens).chunk(2, dim=2)
        return self.leave(attend(self.queries(h), key, value, self.num_heads))


class FactorTokens(nn.Module):
    """One token per factor: the embedding of its value, or of NULL, (B, F) -> (B, F, C).

    Args:
        sizes: number of values of each factor.
        channels: C.
    """

    def __init__(self, sizes: Sequence[int], channels: int) -> None:
        super().__init__()
        self.table = nn.Embedding(sum(sizes) + len(sizes), channels)
        self.size: Tensor
        self.first: Tensor
        self.register_buffer("size", torch.tensor(sizes), persistent=False)
        firsts = accumulate((size + 1 for size in sizes[:-1]), initial=0)
        self.register_buffer("first", torch.tensor(list(firsts)), persistent=False)

    def forward(self, condition: Tensor) -> Tensor:
        return self.table(self.first + torch.where(condition == NULL, self.size, condition))


def attend(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, the channels split over heads.

    Args:
        query: (B, N, C).
        key, value: (B, M, C).
        num_heads: divides C.

    Returns:
        (B, N, C).
    """
    q, k, v = (part.unflatten(2, (num_heads, -1)).transpose(1, 2) for part in (query, key, value))  # (B, heads, N or M, d)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _heads(channels: int, num_heads: int) -> int:
    if channels % num_heads:
        raise CompbenchError(f"{num_heads} heads do not divide {channels} channels; change num_heads or budget.width.")
    return num_heads
