"""Distances between pictures that need no network.

fwd  Frechet distance of wavelet packets, in [0, 1] units
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Metric, SamplePair, Value

if TYPE_CHECKING:
    import numpy
    from torch import Tensor

PACKET_SIDE = 4
"""Side of a packet in pixels: four levels on 64 x 64 pixels, the paper's default, and three on 32 x 32."""


def haar_packets(images: Tensor, levels: int) -> Tensor:
    """The full packet tree of the Haar wavelet: each level splits every packet into sums and differences of 2 x 2 blocks.

    A block of a, b above c, d becomes (a + b + c + d) / 2, (a - b + c - d) / 2, (a + b - c - d) / 2, (a - b - c + d) / 2; this
    map is orthogonal.

    Args:
        images: (N, C, H, W); H and W are multiples of 2^levels.
        levels: how often packets are split.

    Returns:
        (N, 4^levels, C, H / 2^levels, W / 2^levels); packet 0 holds the means of blocks times 2^levels.
    """
    import torch

    packets = images[:, None]
    for _ in range(levels):
        a, b = packets[..., 0::2, 0::2], packets[..., 0::2, 1::2]
        c, d = packets[..., 1::2, 0::2], packets[..., 1::2, 1::2]
        parts = [a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d]
        packets = torch.stack(parts, dim=2).flatten(1, 2) / 2
    return packets


def frechet_wavelet_distance(real: Tensor, generated: Tensor) -> float:
    """Mean over packets of the Frechet distance between Gaussians that are fitted to each packet of both sets.

    FWD = 1/P sum_p |m_p - n_p|^2 + tr(S_p + T_p - 2 (S_p T_p)^1/2), means and covariances of packet p over images.

    Veeramacheneni, Wolter, Kuehne & Gall, Frechet Wavelet Distance, ICLR 2025; Haar, no logarithm.

    Args:
        real, generated: uint8 images (N, C, H, W), scaled to [0, 1]; sides that are not a multiple of 2^levels repeat their edge.
    """
    import torch

    from compbench.metrics.frechet import GaussianStatistics, frechet_distance

    sides = []
    for images in (real, generated):
        packets = _packets(images)  # (N, P, D)
        mean = packets.mean(0)
        centred = packets - mean
        covariance = torch.einsum("npd,npe->pde", centred, centred) / (len(packets) - 1)
        sides.append((mean.cpu().numpy(), covariance.cpu().numpy()))
    (means, covariances), (others, theirs) = sides
    found = [
        frechet_distance(GaussianStatistics(*one), GaussianStatistics(*other))
        for one, other in zip(zip(means, covariances, strict=True), zip(others, theirs, strict=True), strict=True)
    ]
    return sum(found) / len(found)


def _packets(images: Tensor) -> Tensor:
    """Packets of uint8 images (N, C, H, W) as float64 (N, P, D)."""
    from torch.nn import functional

    height, width = images.shape[-2:]
    levels = max(1, (min(height, width) // PACKET_SIDE).bit_length() - 1)
    fill = [-side % 2**levels for side in (width, height)]
    x = functional.pad(images.double() / 255, (0, fill[0], 0, fill[1]), mode="replicate")
    return haar_packets(x, levels).flatten(2)


def fwd(pair: SamplePair, generator: numpy.random.Generator) -> Value:
    """Frechet wavelet distance: the same number on every machine.  Veeramacheneni et al. 2025."""
    return Value(*(frechet_wavelet_distance(pair.real, images) for images in (pair.generated, pair.floor)))


@hookimpl
def compbench_metrics() -> tuple[Metric, ...]:
    return (Metric("fwd", "Frechet distance of wavelet packets", "", "lower", margin=0.01, by_name=True, compute=fwd),)
