"""Masks of training conditions for all methods: which factors of an example the network sees.

    P(k factors are kept) = s_k,  k = 0 ... F;    given k, every set of k factors is equally likely

So NULL is trained on a share s_0 of the examples, each factor alone on s_1 / F, and the whole condition on s_F.  Two laws:

    Masking   s_F = pi_full, s_1 = pi_marginal, s_0 = pi_unconditional (DCFM, equation 7)
    Dropout   s_k = e / (F + 1) + (1 - e) C(F, k) (1 - p)^k p^(F - k)

Under `Dropout`, each factor is masked independently with probability p in a share 1 - e of the examples (factored velocity
fields, table 4; the code of CoInD).  In the share e, the probability itself is uniform on [0, 1], so every number of kept
factors is equally frequent.  With e = 0, p = 0.1 and six factors, NULL has a share of 1e-6: a fit of 211,200 examples sees it 0.2
times, so a method that composes around NULL extrapolates.

With e > 0 shares still fall as F grows, but not exponentially: NULL and the whole condition have at least e / (F + 1), and each
factor alone has at least e / (F (F + 1)).  With the defaults, NULL has 0.21, 0.072 and 0.038 of the examples at F = 2, 6 and 12,
and each factor alone has 0.19, 0.013 and 0.003.  Shares that do not depend on F (`Masking`) leave no examples between one factor
and all of them; `DropoutSettings` has the comparison by which we did not take them.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench.api.factors import NULL
from compbench.api.interfaces import MethodSettings
from compbench.flow.transfer import numbers


class Masking(NamedTuple):
    """p(m) of equation 7: how often a training condition is whole, a single factor, or NULL."""

    full: float
    marginal: float
    unconditional: float


class Dropout(NamedTuple):
    """Each factor of an example is masked independently.

    Attributes:
        chance: p, the probability that a factor is masked.
        even: e, share of the examples whose probability is drawn from [0, 1] instead.
    """

    chance: float
    even: float = 0.0


Law = Masking | Dropout


class DropoutSettings(MethodSettings):
    """The masks of all methods that compose around NULL with one network, except those whose paper states its own masks.

    The defaults were chosen by seen scores on six blocks (`experiments/blocks.py masks`; 1,000 steps, w = 1, two seeds, one where
    marked *).  Shares of samples with the holdout's pair right and, in brackets, with all six factors right:

        half even, half dropout of 0.3    0.94 (0.89)
        even                              0.94 (0.60)
        dropout of 0.7                    0.93 (0.65)
        dropout of 0.3                    0.91 (0.89)
        dropout of 0.5                    0.85 (0.80) *
        dropout of 0.1                    0.82 (0.53) *
        a third each of NULL, one, whole  0.15 (0.01) *

    The first law and dropout of 0.3 are tied (seeds differ by 0.1).  We take the first, because its shares of NULL and of single
    factors fall with the square of the number of factors at most, not exponentially.  The last law has shares that do not depend
    on the number of factors, and is by far the worst: whole conditions, single factors and NULL are not enough, and training also
    needs the conditions in between.
    """

    even_masks: float = Field(
        0.5,
        ge=0,
        le=1,
        description="share of training conditions of which 0 to F factors are kept, equally often; unused with a base",
    )
    factor_dropout: float = Field(
        0.3, ge=0, lt=1, description="chance that a factor is masked in the other training conditions; unused with a base"
    )

    @property
    def law(self) -> Dropout:
        """The law of the masks of training conditions."""
        return Dropout(self.factor_dropout, self.even_masks)


def size_shares(law: Law, num_factors: int) -> tuple[float, ...]:
    """s_0 ... s_F: the probabilities that a law keeps 0 ... F factors."""
    if isinstance(law, Masking):
        shares = [law.unconditional] + [0.0] * num_factors
        shares[1] += law.marginal
        shares[-1] += law.full
        return tuple(shares)
    p, e, count = law.chance, law.even, num_factors
    return tuple(e / (count + 1) + (1 - e) * comb(count, k) * (1 - p) ** k * p ** (count - k) for k in range(count + 1))


def draw_kept(law: Law, count: int, num_factors: int, generator: Generator) -> Tensor:
    """Masks of `count` examples: bool (count, F), True where a factor is kept, on the generator's device."""
    device = generator.device
    if isinstance(law, Masking):
        kind = draw_masks(count, num_factors, law, generator)[:, None]
        return (kind == 0) | (kind - 2 == torch.arange(num_factors, device=device))
    draws = torch.rand(count, num_factors, generator=generator, device=device)
    if not law.even:
        return draws >= law.chance
    is_even, drawn = torch.rand(2, count, 1, generator=generator, device=device)
    return draws >= torch.where(is_even < law.even, drawn, law.chance)


def masked(condition: Tensor, law: Law, generator: Generator) -> Tensor:
    """Conditions (B, F) in which the factors that a law masks are open."""
    return condition.masked_fill(~draw_kept(law, len(condition), condition.shape[1], generator), NULL)


def sub_conditions(condition: Tensor) -> Tensor:
    """The whole condition, NULL, and each factor alone: (B, F) -> (F + 2, B, F)."""
    count = condition.shape[1]
    open_ = torch.full_like(condition, NULL)
    alone = [torch.where(torch.arange(count, device=condition.device) == k, condition, open_) for k in range(count)]
    return torch.stack([condition, open_, *alone])


def draw_masks(count: int, num_factors: int, masking: Masking, generator: Generator) -> Tensor:
    """Which of the F + 2 `sub_conditions` each row is trained on: m ~ p(m) of equation 7, long (count,)."""
    alone = [masking.marginal / num_factors] * num_factors
    weights = numbers((masking.full, masking.unconditional, *alone), generator.device, torch.float32)
    return torch.multinomial(weights, count, replacement=True, generator=generator)
