"""Low-rank rendering, each example through every convolution: what `compbench.flow.low_rank_maps` is tested against."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from compbench.flow.low_rank_maps import LowRankDecoder


def decode_plainly(decoder: LowRankDecoder, condition: Tensor) -> Tensor:
    """Conditions (B, F) -> samples (B, C, H, W), as `LowRankDecoder.forward` gives them."""
    h = decoder.maps(condition)
    for activation, convolution in zip(decoder.activations, decoder.convolutions, strict=True):
        h = convolution(F.prelu(h, activation.weight))
    return 2 * h.float() - 1
