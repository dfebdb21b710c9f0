"""The closed-form optimum of slices and of CoInD on a lattice of images."""

import torch
from exact_bumps import Optimum, log_posterior, optimum
from torch import Tensor

from compbench.flow.masking import Masking

MASKING = Masking(full=0.5, marginal=0.3, unconditional=0.2)


def lattice(size: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Images, seen cells (one is missing) and points."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(size, size, 4, generator=generator, dtype=torch.double)
    seen = torch.ones(size, size, dtype=torch.bool)
    seen[1, 2] = False
    return table, seen, torch.randn(5, 4, generator=generator, dtype=torch.double)


def loss(found: Optimum, both: Tensor, weights: Tensor, table: Tensor, independence: float) -> Tensor:
    """The loss of one training condition drawn at random, with v_ij (B, N, N, D) as a variable."""
    alone_x, alone_y, nothing = found.x[:, :, None], found.y[:, None], found.nothing[:, None, None]
    terms = (
        (MASKING.full, both - table),
        (MASKING.marginal / 2, alone_x - table),
        (MASKING.marginal / 2, alone_y - table),
        (MASKING.unconditional, nothing - table),
        (independence, alone_x + alone_y - nothing - both),
    )
    return sum((weights * weight * error.square().sum(-1)).sum() for weight, error in terms)


def test_log_posterior_is_the_noise_density_of_seen_cells() -> None:
    table, seen, x_t = lattice()
    weights = log_posterior(x_t, 0.25, table, seen).flatten(1).softmax(1)
    laws = torch.distributions.Normal(0.25 * table.flatten(0, 1), 0.75)
    densities = laws.log_prob(x_t[:, None]).sum(-1).exp() * seen.flatten()
    torch.testing.assert_close(weights, densities / densities.sum(1, keepdim=True))


def test_optimum_without_penalty_is_the_mean_of_each_slice() -> None:
    table, seen, x_t = lattice()
    weights = log_posterior(x_t, 0.5, table, seen)
    found = optimum(weights, table, MASKING, 0.0)
    share = weights[:, 1].softmax(1)  # of y where x is 1
    torch.testing.assert_close(found.x[:, 1], share[:, 0, None] * table[1, 0] + share[:, 1, None] * table[1, 1])


def test_optimum_has_no_gradient_of_the_loss_left() -> None:
    table, seen, x_t = lattice()
    log_weights = log_posterior(x_t, 0.5, table, seen)
    weights = log_weights.flatten(1).softmax(1).unflatten(1, seen.shape)
    found = Optimum(*(part.requires_grad_(True) for part in optimum(log_weights, table, MASKING, 2.0)))
    alone = found.x[:, :, None] + found.y[:, None] - found.nothing[:, None, None]
    both = ((MASKING.full * table + 2.0 * alone) / (MASKING.full + 2.0)).detach().requires_grad_(True)
    gradients = torch.autograd.grad(loss(found, both, weights, table, 2.0), [*found, both])
    for gradient in gradients:
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-10, rtol=0)


def test_penalty_brings_the_composition_towards_images_that_are_sums() -> None:
    table, seen, x_t = lattice()
    additive = table[:, :1] + table[:1] - table[0, 0]
    found = optimum(log_posterior(x_t, 0.5, additive, seen), additive, MASKING, 1e6)
    error = found.composed(torch.tensor([[2, 0]] * 5)) - additive[2, 0]
    slices = optimum(log_posterior(x_t, 0.5, additive, seen), additive, MASKING, 0.0)
    assert error.abs().max() < (slices.composed(torch.tensor([[2, 0]] * 5)) - additive[2, 0]).abs().max()
