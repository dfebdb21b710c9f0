"""Factors rendered into pixel space: each value of each factor has a map, a sum of few outer products.

    M_t = sum_r lambda_tr u_tr v_tr^T,   |u| = |v| = 1,   q_tr = lambda_tr^2 / sum_r lambda_tr^2
    entropy = -sum_r q_tr log q_tr,   variance = Var(entries of u, of v)

Forced rendering, section 4.1, equations 9 to 11 and appendix C.  The repository sums both penalties over 64 tokens and
4096 vectors; we take means and keep its strength at that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from compbench.errors import Refused
from compbench.factors import NULL
from compbench.flow.codes import CodeSettings, Encoding
from compbench.interfaces import MethodSettings

REFERENCE_TOKENS, REFERENCE_VECTORS = 64, 4096
"""Over how many the repository sums (N = 32): penalties are means times these, so weights mean the same at any size."""
SMALLEST_SHARE = 1e-8


class RankSettings(MethodSettings):
    """Settings of low-rank rendering; both weights 0 is the paper's baseline, one of them 0 its ablations."""

    rank: int | Literal["full"] = Field("full", description="bound on each map's rank; full is the image's side")
    entropy_weight: float = Field(0.1, ge=0, description="weight of the coefficients' entropy, summed over 64 tokens")
    variance_weight: float = Field(0.01, ge=0, description="weight of the vectors' variance, summed over 4096 vectors")
    variance_of: Literal["raw", "unit"] = Field("raw", description="raw vectors, as in the repository, or unit vectors")


class Penalties(NamedTuple):
    """Mean entropy of a token's coefficients, and mean variance of a vector's entries; scalars."""

    entropy: Tensor
    variance: Tensor


class LowRankMaps(nn.Module):
    """One map a value: conditions (B, F) -> maps (B, F, H, W), zero where a factor is open.

    Args:
        sizes: number of values of each factor; values of all factors are tokens in one table.
        side: (H, W).
        settings: rank and penalties.
    """

    def __init__(self, sizes: Sequence[int], side: tuple[int, int], settings: RankSettings) -> None:
        super().__init__()
        self.sizes, self.settings = tuple(sizes), settings
        bound = min(side)
        rank = bound if settings.rank == "full" else settings.rank
        if not 1 <= rank <= bound:
            raise Refused(f"--set rank={rank}: a map of {side[0]} x {side[1]} pixels has a rank of 1 to {bound}.")
        tokens = sum(sizes)
        self.coefficient = nn.Parameter(torch.randn(tokens, rank) / rank**0.5)
        self.column = nn.Parameter(F.normalize(torch.randn(tokens, rank, side[0]), dim=-1))
        self.row = nn.Parameter(F.normalize(torch.randn(tokens, rank, side[1]), dim=-1))
        offsets = torch.tensor([sum(sizes[:k]) for k in range(len(sizes))])
        self.register_buffer("offsets", offsets, persistent=False)

    def all_maps(self) -> Tensor:
        """Every token's map, factor after factor, (sum of sizes, H, W)."""
        column = F.normalize(self.column, dim=-1) * self.coefficient[..., None]
        return column.transpose(1, 2) @ F.normalize(self.row, dim=-1)

    def tokens(self, condition: Tensor) -> Tensor:
        """Rows of the table that conditions (B, F) mean, (B, F); the row after the last where a factor is open."""
        rows = condition + self.offsets
        return torch.where(condition == NULL, sum(self.sizes), rows)

    def forward(self, condition: Tensor) -> Tensor:
        return with_open(self.all_maps())[self.tokens(condition)]

    def penalties(self) -> Penalties:
        """Entropy and variance, equations 10 and 11."""
        square = self.coefficient.square()
        share = (square / square.sum(-1, keepdim=True)).clamp(min=SMALLEST_SHARE)
        vectors = [self.column, self.row]
        if self.settings.variance_of == "unit":
            vectors = [F.normalize(vector, dim=-1) for vector in vectors]
        variance = torch.stack([_sample_variance(vector).mean() for vector in vectors]).mean()
        return Penalties(-(share * share.log()).sum(-1).mean(), variance)

    def penalty(self) -> Tensor:
        """Both penalties with their weights, a scalar; one whose weight is 0 is not computed into the gradient."""
        entropy, variance = self.penalties()
        total = self.coefficient.new_zeros(())
        if self.settings.entropy_weight:
            total = total + self.settings.entropy_weight * REFERENCE_TOKENS * entropy
        if self.settings.variance_weight:
            total = total + self.settings.variance_weight * REFERENCE_VECTORS * variance
        return total


class LowRankDecoder(nn.Module):
    """Images from rendered factors by a few small convolutions: PReLU, then a 3 x 3 convolution, three times.

    PReLU and the first convolution act on each factor's map alone, so they are done once a token and step, not once an
    example: conv(sum_k maps_k) = sum_k conv_k(map_k).

    Args:
        sizes: number of values of each factor.
        shape: (C, H, W).
        settings: rank and penalties.
        num_hidden: convolutions between the maps and the last.
    """

    def __init__(self, sizes: Sequence[int], shape: tuple[int, ...], settings: RankSettings, *, num_hidden: int = 2) -> None:
        super().__init__()
        count = len(sizes)
        self.maps = LowRankMaps(sizes, (shape[1], shape[2]), settings)
        channels = [count] * (num_hidden + 1) + [shape[0]]
        self.activations = nn.ModuleList(nn.PReLU() for _ in channels[:-1])
        self.convolutions = nn.ModuleList(nn.ConvTranspose2d(low, high, 3, padding=1) for low, high in pairwise(channels))
        self.encoding = Encoding(sizes, CodeSettings(encoding="one-hot"))

    def forward(self, condition: Tensor) -> Tensor:
        """Conditions (B, F), NULL where open -> samples (B, C, H, W)."""
        return self._finish(with_open(self._sides())[self.maps.tokens(condition)].sum(1))

    def render(self, code: Tensor) -> Tensor:
        """`forward` of weights of tokens (B, T), which one-hots are: it can be differentiated in them."""
        return self._finish(torch.einsum("bt,tchw->bchw", code, self._sides()))

    def plainly(self, condition: Tensor) -> Tensor:
        """`forward`, each example's maps through every convolution: the reference that it is tested against."""
        h = self.maps(condition)
        for activation, convolution in zip(self.activations, self.convolutions, strict=True):
            h = convolution(activation(h))
        return 2 * h.float() - 1

    def penalty(self) -> Tensor:
        """The maps' penalty."""
        return self.maps.penalty()

    def _sides(self) -> Tensor:
        """The first convolution of every token's map, through the channel of its factor, (T, C, H, W)."""
        first = self.convolutions[0]
        tokens = self.activations[0](self.maps.all_maps())  # (T, H, W)
        own = zip(tokens.split(list(self.maps.sizes)), first.weight.split(1), strict=True)
        return torch.cat([banded_convolution(maps[:, None], _forward(kernel)) for maps, kernel in own])

    def _finish(self, sides: Tensor) -> Tensor:
        """The layers after the first convolution, whose bias is still to come, on the factors' sum (B, C, H, W)."""
        h = sides + self.convolutions[0].bias[:, None, None]
        for activation, convolution in zip(self.activations[1:], self.convolutions[1:], strict=True):
            h = banded_convolution(activation(h), _forward(convolution.weight)) + convolution.bias[:, None, None]
        return 2 * h.float() - 1


def banded_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """3 x 3 convolution with padding 1 as one matrix product: three rows of all channels times a banded matrix.

    With two channels a convolution routine has next to nothing to do and takes three times as long on a CPU.

    Args:
        x: (B, C, H, W).
        weight: as of `conv2d`, (C', C, 3, 3).

    Returns:
        (B, C', H, W).
    """
    width = x.shape[3]
    shifts = torch.stack([torch.ones(width - abs(k), device=x.device, dtype=x.dtype).diag(-k) for k in (-1, 0, 1)])
    band = torch.einsum("ocij,jwv->ciwov", weight, shifts).flatten(3).flatten(0, 2)  # (C 3 W, C' W)
    padded, height = F.pad(x, (0, 0, 1, 1)), x.shape[2]
    rows = torch.stack([padded[:, :, first : first + height] for first in range(3)], dim=2)  # (B, C, 3, H, W)
    product = rows.permute(0, 3, 1, 2, 4).flatten(2) @ band  # (B, H, C' W)
    return product.unflatten(2, (-1, width)).transpose(1, 2)


def _sample_variance(x: Tensor) -> Tensor:
    """Over the last axis; by moments, which is twice as fast as torch.var there, and exact enough for a penalty."""
    size = x.shape[-1]
    return (x.square().mean(-1) - x.mean(-1).square()) * (size / (size - 1))


def _forward(weight: Tensor) -> Tensor:
    """A transposed convolution's weight (C, C', 3, 3) as that of the equal convolution, (C', C, 3, 3)."""
    return weight.transpose(0, 1).flip(2, 3)


def with_open(table: Tensor) -> Tensor:
    """A table of tokens (T, ...) with a row of zeros after the last, which open factors point to."""
    return torch.cat([table, torch.zeros_like(table[:1])])


def effective_rank(maps: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values of maps (T, H, W), (T,): 1 for an outer product.

    Roy & Vetterli 2007.
    """
    values = torch.linalg.svdvals(maps.double())
    share = values / values.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.special.entr(share).sum(-1).exp()
