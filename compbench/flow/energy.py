"""Energies: unnormalised log densities of x_t, one trained in each silo, from which a mixture weights its experts.

    e(x, t) = -|x|^2 / 2 + t g(x, t),    E || sigma_t grad e(x_t, t) + x0 ||^2    (denoising score matching)

At t = 0 every silo's x_t is N(0, I), and e is its log density up to a common constant.  At later times each silo's constant is
arbitrary, so e is centred by its mean over the silo's own x_t at each time.  The mean is estimated, and an error of it multiplies
the silo's weight by exp(error).  At t = 0 e has a standard deviation of sqrt(D / 2), which is 34 for 3 x 28 x 28 pixels.  So all
silos use the same draws of x0: at t = 0 their constants are equal, and near the noise their errors nearly cancel.  Near the data
the error is that of the examples, of which 4,096 are drawn.  This follows the description of DFD (Hahn & Lee 2025) in
Decentralized Compositional Flow Matching (DCFM), section 4; the authors' code is not public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from compbench.api.context import generator_of
from compbench.flow.path import LinearPath, per_sample, point

if TYPE_CHECKING:
    from compbench.api.context import Batch, Silo
    from compbench.api.interfaces import Event
    from compbench.flow.superposed_silos import SiloPrior

LAST_TIME = 0.95
"""Energies are trained and used up to this time, because the score grows without bound as 1 / (1 - t)."""

NUM_BINS = 20
"""Number of times at which an energy is centred."""

CENTRING_BATCH = 256
"""Examples of each batch over which an energy is centred."""


class Energy(nn.Module):
    """e(x, t), (B, *D) and (B,) -> (B,).

    Args:
        event: kind and shape of a sample; images are convolved, anything else is flattened.
        width: hidden units, or channels of the last convolution.
    """

    def __init__(self, event: Event, *, width: int) -> None:
        super().__init__()
        self.is_image = event.kind == "image"
        if self.is_image:
            channels, *sides = event.shape
            levels = max(1, min(3, int(math.log2(min(sides))) - 1))
            widths = [max(8, width >> (levels - 1 - level)) for level in range(levels)]
            layers: list[nn.Module] = []
            for before, after in zip([channels + 1, *widths], widths, strict=False):
                layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.SiLU()]
            size = math.prod(-(-side // 2**levels) for side in sides) * widths[-1]
            self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, width), nn.SiLU(), nn.Linear(width, 1))
        else:
            size = math.prod(event.shape)
            self.net = nn.Sequential(
                *(nn.Linear(size + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()),
                *(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)),
            )
        self.means: Tensor
        self.register_buffer("means", torch.zeros(NUM_BINS))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """The energy, without centring."""
        time = per_sample(t, x)
        inner = torch.cat([x, time.expand(-1, 1, *x.shape[2:])], 1) if self.is_image else torch.cat([x.flatten(1), t[:, None]], 1)
        return t * self.net(inner)[:, 0] - x.flatten(1).square().sum(1) / 2

    def centred(self, x: Tensor, t: Tensor) -> Tensor:
        """The energy minus its mean on the silo's own x_t, (B,); times beyond `LAST_TIME` are replaced by it."""
        t = t.clamp(max=LAST_TIME)
        place = t / LAST_TIME * (NUM_BINS - 1)
        low = place.floor().long().clamp(max=NUM_BINS - 2)
        return self(x, t) - torch.lerp(self.means[low], self.means[low + 1], place - low)

    @torch.no_grad()
    def centre(self, silo: Silo, generator: Generator, *, num_batches: int = 16) -> None:
        """Measure the means on the silo's data and on noise that is the same in every silo and fit.

        Args:
            silo: source of x1.
            generator: of the silo; it draws the batches and not x0.
            num_batches: number of batches of `CENTRING_BATCH` examples.
        """
        common = generator_of("noise on which the energies of all silos are centred")
        sums = torch.zeros_like(self.means)
        for _ in range(num_batches):
            x1 = silo.batch(CENTRING_BATCH, generator).x1
            x0 = torch.randn(x1.shape, generator=common).to(x1)
            for index in range(NUM_BINS):
                t = x1.new_full((len(x1),), index / (NUM_BINS - 1) * LAST_TIME)
                sums[index] += self(point(LinearPath(), x0, x1, t), t).mean()
        self.means.copy_(sums / num_batches)


def score_matching_loss(energy: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
    """E || sigma_t grad_x e(x_t, t) + x0 ||^2, the mean over entries, for t ~ U[0, LAST_TIME]; in fp32."""
    x1 = batch.x1
    x0 = torch.randn(x1.shape, generator=generator, device=x1.device)
    t = torch.rand(len(x1), generator=generator, device=x1.device) * LAST_TIME
    x_t = point(LinearPath(), x0, x1, t).requires_grad_(True)
    with torch.autocast(x1.device.type, enabled=False), torch.enable_grad():
        (score,) = torch.autograd.grad(energy(x_t, t).sum(), x_t, create_graph=True)
    return (per_sample(1 - t, x_t) * score + x0).square().mean()


class DensityRouter(nn.Module):
    """r_a(x_t, c) = n_a exp(e_a(x_t, t) / temperature) / sum_b ..., over the silos that know every value in c.

    Args:
        energies: one energy for each silo.
        prior: log n_a up to a constant, minus infinity for silos that do not answer for c.
        temperature: divisor of the energies, because they differ by hundreds in high dimensions.
    """

    def __init__(self, energies: list[Energy], prior: SiloPrior, *, temperature: float) -> None:
        super().__init__()
        self.energies: Sequence[Energy] = nn.ModuleList(energies)  # type: ignore[assignment]
        self.prior, self.temperature = prior, temperature

    def forward(self, x_t: Tensor, t: Tensor, conditions: Tensor) -> Tensor:
        """Weights (n, K, B) at points (B, *D), times (B,) and conditions (K, B, F)."""
        with torch.autocast(x_t.device.type, enabled=False):
            energies = torch.stack([energy.centred(x_t.float(), t) for energy in self.energies])  # (n, B)
        return F.softmax(energies[:, None] / self.temperature + self.prior(conditions), dim=0)
