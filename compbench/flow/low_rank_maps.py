"""Factors rendered into pixel space: each value of each factor has a map, which is a sum of a few outer products.

    M_t = sum_r lambda_tr u_tr v_tr^T,   |u| = |v| = 1,   q_tr = lambda_tr^2 / sum_r lambda_tr^2
    entropy = -sum_r q_tr log q_tr,   variance = Var(entries of u, of v)

Forced rendering, section 4.1, equations 9 to 11 and appendix C.  The authors' repository sums both penalties over 64 tokens and
4096 vectors; we use means, scaled so that both penalties are as strong as the repository's at that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from compbench.api.context import Batch
from compbench.api.factors import NULL
from compbench.api.interfaces import MethodSettings
from compbench.flow.codes import CodeSettings, Encoding
from compbench.system.errors import Refused

REFERENCE_TOKENS, REFERENCE_VECTORS = 64, 4096
"""Numbers of tokens and vectors that the repository sums over (N = 32).  Penalties are means times these numbers, so a weight
means the same at any size."""
SMALLEST_SHARE, SHORTEST = 1e-8, 1e-24


class RankSettings(MethodSettings):
    """Settings of low-rank rendering.  Both weights are 0 in the paper's baseline, and one of them in its ablations."""

    rank: Annotated[int, Field(ge=1, le=4096)] | Literal["full"] = Field(
        "full", description="bound on each map's rank; full is the image's side"
    )
    entropy_weight: float = Field(0.1, ge=0, description="weight of the coefficients' entropy, summed over 64 tokens")
    variance_weight: float = Field(0.01, ge=0, description="weight of the vectors' variance, summed over 4096 vectors")
    variance_of: Literal["raw", "unit"] = Field("raw", description="raw vectors, as in the repository, or unit vectors")


class Penalties(NamedTuple):
    """Mean entropy of a token's coefficients, and mean variance of a vector's entries; scalars."""

    entropy: Tensor
    variance: Tensor


class LowRankMaps(nn.Module):
    """One map per value: conditions (B, F) -> maps (B, F, H, W), zero where a factor is open.

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
        self.offsets: Tensor
        self.register_buffer("offsets", offsets, persistent=False)

    def all_maps(self) -> Tensor:
        """The maps of all tokens, factor by factor, (sum of sizes, H, W)."""
        lengths = self.column.square().sum(-1) * self.row.square().sum(-1)  # (T, R), squared
        scale = self.coefficient * lengths.clamp(min=SHORTEST).rsqrt()
        return (self.column * scale[..., None]).transpose(1, 2) @ self.row

    def tokens(self, condition: Tensor) -> Tensor:
        """Rows of the table for conditions, (B, F) -> (B, F); an open factor has the row after the last."""
        rows = condition + self.offsets
        return torch.where(condition == NULL, sum(self.sizes), rows)

    def forward(self, condition: Tensor) -> Tensor:
        return with_open(self.all_maps())[self.tokens(condition)]

    def weights(self, condition: Tensor) -> Tensor:
        """Whether each token is in each condition, (B, F) -> (B, T): 1 or 0."""
        tokens = torch.arange(sum(self.sizes), device=condition.device)
        return (self.tokens(condition)[..., None] == tokens).any(1).to(self.coefficient.dtype)

    def penalties(self) -> Penalties:
        """Entropy and variance, equations 10 and 11."""
        return Penalties(self.entropy(), self.variance())

    def entropy(self) -> Tensor:
        """Mean over tokens of the entropy of their coefficients, equation 10."""
        square = self.coefficient.square()
        share = (square / square.sum(-1, keepdim=True)).clamp(min=SMALLEST_SHARE)
        return -(share * share.log()).sum(-1).mean()

    def variance(self) -> Tensor:
        """Mean over columns and rows of the sample variance of a vector's entries, equation 11."""
        variance = _mean_variance if self.settings.variance_of == "raw" else _mean_variance_of_directions
        return (variance(self.column) + variance(self.row)) / 2

    def penalty(self) -> Tensor:
        """The weighted sum of both penalties, a scalar; a penalty with weight 0 is not computed."""
        total = self.coefficient.new_zeros(())
        if self.settings.entropy_weight:
            total = total + self.settings.entropy_weight * REFERENCE_TOKENS * self.entropy()
        if self.settings.variance_weight:
            total = total + self.settings.variance_weight * REFERENCE_VECTORS * self.variance()
        return total


class Slope(nn.PReLU):
    """PReLU with one slope; torch's own kernel for it takes three times as long on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x.relu(), x, self.weight.to(x.dtype))


class LowRankDecoder(nn.Module):
    """Images from rendered factors by a few small convolutions: PReLU, then a 3 x 3 convolution, three times.

    PReLU and the first convolution act on each factor's map separately, so they are computed once per token and step instead of
    once per example: conv(sum_k maps_k) = sum_k conv_k(map_k).

    Args:
        sizes: number of values of each factor.
        shape: (C, H, W).
        settings: rank and penalties.
        num_hidden: number of convolutions between the maps and the last one.
    """

    fuses = True  # see `regress`

    def __init__(self, sizes: Sequence[int], shape: tuple[int, ...], settings: RankSettings, *, num_hidden: int = 2) -> None:
        super().__init__()
        count = len(sizes)
        self.shape = tuple(shape)
        self.maps = LowRankMaps(sizes, (shape[1], shape[2]), settings)
        channels = [count] * (num_hidden + 1) + [shape[0]]
        self.activations: Sequence[Slope] = nn.ModuleList(Slope() for _ in channels[:-1])  # type: ignore[assignment]
        convolutions = nn.ModuleList(nn.ConvTranspose2d(low, high, 3, padding=1) for low, high in pairwise(channels))
        self.convolutions: Sequence[nn.ConvTranspose2d] = convolutions  # type: ignore[assignment]
        self.encoding = Encoding(sizes, CodeSettings(encoding="one-hot"))
        self.shifts: Tensor
        self.register_buffer("shifts", neighbours(shape[2]), persistent=False)

    def forward(self, condition: Tensor) -> Tensor:
        """Conditions (B, F), NULL where open -> samples (B, C, H, W)."""
        with torch.autocast("cpu", enabled=False):  # the small products of one network take longer in bf16 on a CPU
            return self.render(self.maps.weights(condition))

    def render(self, code: Tensor) -> Tensor:
        """`forward` for any weights of tokens (B, T), not only the 0 and 1 of a condition; differentiable in the weights."""
        sides = self._sides().transpose(1, 2)  # (T, H, C, W), as `convolution` leaves them
        h = (code @ sides.flatten(1)).unflatten(1, sides.shape[1:]).transpose(1, 2)  # (B, C, H, W)
        for layer in range(1, len(self.convolutions)):
            h = self._convolved(self.activations[layer](self._biased(h, layer - 1)), layer)
        return 2 * self._biased(h, -1).float() - 1

    def penalty(self) -> Tensor:
        """The maps' penalty."""
        return self.maps.penalty()

    def _sides(self) -> Tensor:
        """The first convolution of every token's map, without bias, with the weights of its factor's channel, (T, C, H, W)."""
        tokens = self.activations[0](self.maps.all_maps())  # (T, H, W)
        weights = _forward(self.convolutions[0].weight).split(1, dim=1)
        own = zip(tokens[:, None].split(list(self.maps.sizes)), weights, strict=True)
        return torch.cat([convolution(maps, weight, self.shifts) for maps, weight in own])

    def _convolved(self, h: Tensor, layer: int) -> Tensor:
        return convolution(h, _forward(self.convolutions[layer].weight), self.shifts)

    def _biased(self, h: Tensor, layer: int) -> Tensor:
        bias = self.convolutions[layer].bias
        assert bias is not None
        return h + bias[:, None, None]


def penalised_loss(net: LowRankDecoder, batch: Batch, weights: Tensor) -> Tensor:
    """The regression loss plus both penalties; `weights` (2,) has that of the entropy and that of the variance."""
    entropy, variance = net.maps.penalties()
    penalties = torch.stack([REFERENCE_TOKENS * entropy, REFERENCE_VECTORS * variance])
    made = net.render(net.maps.weights(batch.condition))  # many networks' products together are large enough for bf16
    return (made - batch.x1).square().mean() / 4 + (weights * penalties).sum()


def neighbours(width: int) -> Tensor:
    """Matrices that give each pixel of a row its left neighbour, itself and its right neighbour, (3, W, W); zero outside."""
    return torch.stack([torch.ones(width - abs(k)).diag(-k) for k in (-1, 0, 1)])


def band_of(weight: Tensor, shifts: Tensor) -> Tensor:
    """A 3 x 3 kernel (C', C, 3, 3) as a matrix from three rows of all channels to one, (3 C W, C' W).

    Args:
        weight: as in `conv2d`.
        shifts: `neighbours(W)`.
    """
    out, low, width = *weight.shape[:2], shifts.shape[1]
    entries = weight.permute(2, 1, 0, 3).reshape(-1, 3) @ shifts.to(weight.dtype).flatten(1)  # (3 C C', W W)
    return entries.view(3, low, out, width, width).transpose(2, 3).reshape(3 * low * width, out * width)


def convolution(images: Tensor, weight: Tensor, shifts: Tensor) -> Tensor:
    """3 x 3 convolution with padding 1 of few channels: one loop if it is compiled on a CPU, otherwise a matrix product.

    Args:
        images: (B, C, H, W).
        weight: as in `conv2d`, (C', C, 3, 3).
        shifts: `neighbours(W)`.

    Returns:
        (B, C', H, W).
    """
    if torch.compiler.is_compiling() and images.device.type == "cpu":
        return PatchConvolution.apply(images, weight)
    return banded_convolution(images, band_of(weight, shifts))


def banded_convolution(images: Tensor, band: Tensor) -> Tensor:
    """`convolution` as one matrix product: three rows of all channels times a banded matrix.

    With two channels a convolution routine is inefficient and takes many times as long on a CPU.  Images stored row by row, each
    row with all channels, are not copied; the result has this layout.

    Args:
        images: (B, C, H, W).
        band: (3 C W, C' W).

    Returns:
        (B, C', H, W).
    """
    rows = images.transpose(1, 2).flatten(2)  # (B, H, C W)
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))  # before the rows are copied three times
    around = torch.cat([F.pad(rows, (0, 0, 1, -1)), rows, F.pad(rows, (0, 0, -1, 1))], dim=2)
    made = (around.flatten(0, 1) @ band).view(*rows.shape[:2], -1, images.shape[3])  # (B, H, C', W)
    return made.transpose(1, 2)


class Saved(Protocol):
    """What a function of autograd keeps from its forward pass for its backward pass: two tensors."""

    saved_tensors: tuple[Tensor, Tensor]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


class PatchConvolution(torch.autograd.Function):
    """The convolution of images (B, C, H, W) as a sum over patches (B, C, 3, 3, H, W) that are never stored.

    Use it only with a compiler that turns such sums into loops; otherwise the patches would fill memory.
    """

    @staticmethod
    def forward(ctx: Saved, images: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(images, weight)
        return _over_patches(images, weight)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, Tensor]:
        images, weight = ctx.saved_tensors
        of_weight = (gradient[:, :, None, None, None] * _patches(images)[:, None]).sum((0, 5, 6))
        return _over_patches(gradient, weight.transpose(0, 1).flip(2, 3)), of_weight


def _over_patches(images: Tensor, weight: Tensor) -> Tensor:
    return (_patches(images)[:, None] * weight[None, ..., None, None]).sum((2, 3, 4))


def _patches(images: Tensor) -> Tensor:
    """Each pixel's neighbourhood, zero outside, as a view, (B, C, 3, 3, H, W)."""
    padded, (high, wide) = F.pad(images, (1, 1, 1, 1)).contiguous(), images.shape[2:]
    of_image, of_channel, of_row, _ = padded.stride()
    return padded.as_strided((*images.shape[:2], 3, 3, high, wide), (of_image, of_channel, of_row, 1, of_row, 1))


def _mean_variance(x: Tensor) -> Tensor:
    """Mean sample variance of vectors (T, R, n), from moments: faster than torch.var, exact enough for a penalty."""
    size, sums = x.shape[-1], x.sum(-1)
    squares = torch.dot(x.flatten(), x.flatten())
    return (squares - torch.dot(sums.flatten(), sums.flatten()) / size) / (sums.numel() * (size - 1))


def _mean_variance_of_directions(x: Tensor) -> Tensor:
    """Mean sample variance of x / |x|."""
    size = x.shape[-1]
    return (1 - x.sum(-1).square() / (size * x.square().sum(-1).clamp(min=SHORTEST))).mean() / (size - 1)


def _forward(weight: Tensor) -> Tensor:
    """A transposed convolution's weight (C, C', 3, 3) as the weight of the equivalent convolution, (C', C, 3, 3)."""
    return weight.transpose(0, 1).flip(2, 3)


def with_open(table: Tensor) -> Tensor:
    """A table of tokens (T, ...) with an additional last row of zeros, for open factors."""
    return torch.cat([table, torch.zeros_like(table[:1])])


def effective_rank(maps: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values of maps (T, H, W), (T,): 1 for an outer product.

    Roy & Vetterli 2007.
    """
    values = torch.linalg.svdvals(maps.double())
    share = values / values.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.special.entr(share).sum(-1).exp()
