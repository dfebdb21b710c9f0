"""Conditional independence of factors as a training objective: losses and penalties of DCFM and CoInD.

    v_hat(x_t, c) = v(x_t) + sum_k (v(x_t, c_k) - v(x_t)),    L_CI = E || v(x_t, c) - v_hat(x_t, c) ||^2

where v(x_t, c_k) sees only factor k.  Decentralized Compositional Flow Matching (DCFM), equations 5 to 16; the penalty
is CoInD's (Gaudi et al. 2025).  One forward of k + 2 conditions at one x_t gives every term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor

from compbench.api.factors import NULL
from compbench.flow.compose import stacked
from compbench.flow.experts import Experts
from compbench.flow.masking import Law, Masking, draw_masks, masked, sub_conditions
from compbench.flow.path import LinearPath, logit_normal, point, target_velocity
from compbench.flow.transfer import numbers
from compbench.system.condition_counts import regressed

if TYPE_CHECKING:
    from compbench.api.context import Batch, Silo
    from compbench.flow.train import Loss


def draw_one(weights: Tensor, generator: Generator) -> Tensor:
    """The same draw as `torch.multinomial(weights, 1)`, without its check of the weights, which makes the host wait: (1,)."""
    return (weights / torch.empty_like(weights).exponential_(1, generator=generator)).argmax(-1, keepdim=True)


def composed(velocities: Tensor, weight: float = 1.0) -> Tensor:
    """v_hat = v(NULL) + w sum_k (v(c_k) - v(NULL)) from the velocities of `sub_conditions`; equation 5.

    Args:
        velocities: (F + 2, B, *D).
        weight: w.

    Returns:
        (B, *D).
    """
    nothing, alone = velocities[1], velocities[2:]
    return nothing + weight * (alone - nothing).sum(0)


class Ramp:
    """A source of batches that counts them, for a penalty whose weight grows linearly over the first steps of a fit.

        share(s) = min(1, s / num_steps) at batch s = 1, 2, ...;  always 1 if num_steps is 0

    Args:
        silo: source of the batches.
        num_steps: batch at which the share reaches 1.
    """

    def __init__(self, silo: Silo, num_steps: int) -> None:
        self.name, self.size = silo.name, silo.size
        self._silo, self._num_steps, self._drawn = silo, num_steps, 0

    def seek(self, step: int) -> None:
        """Continue from batch `step` in a resumed fit."""
        self._drawn = step
        if hasattr(self._silo, "seek"):
            self._silo.seek(step)

    def batch(self, size: int, generator: Generator) -> Batch:
        """The silo's next batch."""
        self._drawn += 1
        return self._silo.batch(size, generator)

    def share(self) -> float:
        """The penalty's share at the last batch."""
        return min(1.0, self._drawn / self._num_steps) if self._num_steps else 1.0


def decentralised_loss(masking: Masking, independence: float, ramp: Callable[[], float] = lambda: 1.0) -> Loss:
    """L_FM + lambda L_CI: equations 8, 6 and 10, with t uniform.

    Args:
        masking: p(m).
        independence: lambda; 0 leaves the penalty and its evaluations out.
        ramp: share of lambda at the current step.
    """

    def loss(net: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        x_t, t, target = _on_the_path(batch, generator)
        kind = draw_masks(len(t), batch.condition.shape[1], masking, generator)
        regressed(batch.condition, kind)
        conditions = sub_conditions(batch.condition)
        if not independence:
            return _regression(net(x_t, t, _chosen(conditions, kind)), target)
        velocities = stacked(net, x_t, t, conditions).float()  # (F + 2, B, *D)
        penalty = (velocities[0] - composed(velocities)).square().mean()
        return _regression(_chosen(velocities, kind), target) + ramp() * independence * penalty

    return loss


def one_against_rest_loss(masking: Law, independence: float) -> Loss:
    """L_FM + lambda E || v(c_i) + v(c without i) - v(c) - v(NULL) ||^2, one factor i per row; five conditions for any F.

    This is CoInD's penalty (Gaudi et al. 2025, equation 9, for velocities) in the form of the authors' code: it contains the
    whole condition, which is the only one that `Masking` trains on combinations of factors.  With two factors it is equation 6.
    Times are logit-normal around the budget's location, as in `train.flow_matching_loss`; DCFM's losses have uniform times.

    Args:
        masking: law of the masks in the flow-matching term.
        independence: lambda; 0 leaves the penalty and its evaluations out.
    """

    def loss(net: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        path, x1, whole = LinearPath(), batch.x1, batch.condition
        x0 = torch.randn(x1.shape, generator=generator, device=x1.device)
        t = logit_normal(len(x1), generator)
        x_t, target = point(path, x0, x1, t), target_velocity(path, x0, x1, t)
        asked = masked(whole, masking, generator)
        regressed(asked)
        if not independence:
            return _regression(net(x_t, t, asked), target)
        one = torch.rand(whole.shape, generator=generator, device=whole.device).argsort(1) == 0  # (B, F)
        nothing = torch.full_like(whole, NULL)
        conditions = torch.stack([asked, whole.where(one, nothing), whole.where(~one, nothing), whole, nothing])  # (5, B, F)
        velocities = stacked(net, x_t, t, conditions).float()
        penalty = (velocities[1] + velocities[2] - velocities[3] - velocities[4]).square().mean()
        return _regression(velocities[0], target) + independence * penalty

    return loss


class Routing(NamedTuple):
    """Which expert answers in the peer penalty: r_0 for NULL, r_k for factor k alone, long (F + 1,)."""

    experts: Tensor

    @classmethod
    def draw(cls, own: int, num_experts: int, num_factors: int, generator: Generator) -> Routing:
        """r uniform among the routings in which `own` answers at least once; DCFM, section 5.2.

        First draw j, the first position at which `own` answers, in proportion to its number of routings, (n - 1)^j n^(F - j).
        Before j other experts answer, after j any expert may.  No draw is rejected, so the host never waits for the device.
        """
        count, device = num_factors + 1, generator.device
        ways = tuple(float(num_experts - 1) ** j * num_experts ** (num_factors - j) for j in range(count))
        place = draw_one(numbers(ways, device, torch.float32), generator)
        others = (own + 1 + torch.randint(max(1, num_experts - 1), (count,), generator=generator, device=device)) % num_experts
        anyone = torch.randint(num_experts, (count,), generator=generator, device=device)
        at = torch.arange(count, device=device)
        return cls(torch.where(at < place, others, torch.where(at == place, own, anyone)))


def peer_loss(
    masking: Masking,
    independence: float,
    *,
    own: int,
    peers: Experts,
    knows: Tensor | None = None,
    weight: float = 1.0,
    ramp: Callable[[], float] = lambda: 1.0,
) -> Loss:
    """L_FM + lambda L_peerCI: equations 11 to 13.  Only the expert's own answers have gradients, not the peers'.

    Args:
        masking: p(m).
        independence: lambda.
        own: index of the silo's own expert among the peers.
        peers: all experts after stage I, frozen; the one at `own` is never evaluated.
        knows: which expert has seen which value of which factor, bool (n, F, largest size).  If the routed expert has not seen a
            value, the silo's own expert answers instead.  None takes every routed answer, as the paper's formula does.
        weight: w of equation 11.
        ramp: share of lambda at the current step.
    """

    def loss(net: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        x_t, t, target = _on_the_path(batch, generator)
        num_factors = batch.condition.shape[1]
        kind = draw_masks(len(t), num_factors, masking, generator)
        regressed(batch.condition, kind)
        routing = Routing.draw(own, len(peers), num_factors, generator).experts
        conditions = sub_conditions(batch.condition)
        velocities = stacked(net, x_t, t, conditions).float()  # (F + 2, B, *D)
        with torch.no_grad():
            answers = peers.chosen(routing)(x_t, t, conditions[1:, None])[:, 0].float()  # (F + 1, B, *D)
        is_own = (routing == own)[:, None].expand(-1, len(t)).clone()  # (F + 1, B)
        if knows is not None:
            factors = torch.arange(num_factors, device=t.device)
            is_own[1:] |= ~knows[routing[1:, None], factors[:, None], batch.condition.T]
        is_own = is_own.reshape(*is_own.shape, *[1] * (x_t.ndim - 1))
        mixed = torch.cat([velocities[:1], torch.where(is_own, velocities[1:], answers)])
        penalty = (velocities[0] - composed(mixed, weight)).square().mean()
        return _regression(_chosen(velocities, kind), target) + ramp() * independence * penalty

    return loss


class TeacherBatch(NamedTuple):
    """Points on teachers' paths: x_t (B, *D), t (B,), whole conditions (B, F), the teachers' velocities (B, *D)."""

    x_t: Tensor
    t: Tensor
    condition: Tensor
    velocity: Tensor


def student_loss(net: Callable[..., Tensor], taught: TeacherBatch, independence: float, kind: Tensor) -> Tensor:
    """L_student + lambda L_studentCI: equations 14 to 16.

    Args:
        net: the student.
        taught: a batch of points on the teachers' paths.
        independence: lambda.
        kind: which of the `sub_conditions` each row is trained on, from `draw_masks`, (B,).
    """
    regressed(taught.condition, kind)
    velocities = stacked(net, taught.x_t, taught.t, sub_conditions(taught.condition)).float()
    penalty = (velocities[0] - composed(velocities)).square().mean()
    return _regression(_chosen(velocities, kind), taught.velocity) + independence * penalty


def _on_the_path(batch: Batch, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """x_t, t and u_t of the linear path, t ~ U[0, 1]."""
    path, x1 = LinearPath(), batch.x1
    x0 = torch.randn(x1.shape, generator=generator, device=x1.device)
    t = torch.rand(len(x1), generator=generator, device=x1.device)
    return point(path, x0, x1, t), t, target_velocity(path, x0, x1, t)


def _chosen(options: Tensor, kind: Tensor) -> Tensor:
    """Row b of options[kind[b]]: (K, B, ...) and (B,) -> (B, ...)."""
    return options[kind, torch.arange(len(kind), device=kind.device)]


def _regression(velocity: Tensor, target: Tensor) -> Tensor:
    return (velocity.float() - target).square().mean()
