"""Answer requests that give entries of a sample by one stochastic rule, which replaces the method's own solver.

    x <- x + [f x + g^2 s(x, t | c, known)] h + g sqrt(h) xi,    s = (t v - x) / (1 - t),    v = `solver.conditioned`

These are Euler-Maruyama's steps on the linear path, with as many evaluations of the velocity as Euler steps and without noise in
the last step.  Each step regresses on the given entries (`solver.conditioned`).  A flow accumulates the errors of these
regressions, but a diffusion forgets them step by step.  Methods that follow a score's flow (`smc` without noise) follow its
diffusion here; methods whose steps already have noise do not change.

A task requests this rule (`Task.inpaint`).  During such a request two functions of `flow` are replaced, so no other code changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Generator, Tensor, nn

from compbench.flow import smc, solver
from compbench.flow.compose import Guidance
from compbench.flow.experts import Experts
from compbench.flow.path import GaussianPath, LinearPath, velocity_to_score
from compbench.flow.score_models import VELOCITY_EDGE, on_device
from compbench.flow.solver import Known, Velocity, conditioned

Arguments = tuple[smc.ComposedScore, GaussianPath, Tensor, smc.Settings, Generator]
"""The arguments of `smc.feynman_kac` by position."""


@contextlib.contextmanager
def stochastic(model: object, generator: Generator, *, weight: float) -> Iterator[None]:
    """Use the stochastic rule for requests with given entries while the block runs.

    Args:
        model: a method's model; networks with the task's guidance weight use `weight` meanwhile.
        generator: draws the noise, on the CPU.
        weight: w of composed rows of such requests.
    """
    before = solver.euler, smc.feynman_kac
    guided = [(net, net.guidance) for net in guided_networks(model)]

    def euler(velocity: Velocity, x0: Tensor, *, num_steps: int, known: Known | None = None) -> Tensor:
        if known is None:
            return before[0](velocity, x0, num_steps=num_steps)
        return euler_maruyama(velocity, x0, num_steps=num_steps, known=known, generator=on_device(generator, x0.device))

    def feynman_kac(*arguments: *Arguments, known: Known | None = None) -> tuple[smc.Swarm, smc.Trace]:
        composed, path, x, settings, noise = arguments
        if known is not None and not settings.noise:
            settings = settings._replace(noise=True, last_noise=False)
        return before[1](composed, path, x, settings, noise, known=known)

    _exchange(euler, feynman_kac)
    for net, own in guided:
        net.guidance = own._replace(weight=weight)
    try:
        yield
    finally:
        _exchange(*before)
        for net, own in guided:
            net.guidance = own


def euler_maruyama(velocity: Velocity, x0: Tensor, *, num_steps: int, known: Known, generator: Generator) -> Tensor:
    """Samples at t = 1 around given entries, which move along (1 - t) x0 + t known.

    Args:
        velocity: velocity of the linear path, differentiable in x.
        x0: noise, (B, *D).
        num_steps: number of steps, with one evaluation each.
        known: given entries.
        generator: generator on x0's device.

    Returns:
        (B, *D).
    """
    path, x = LinearPath(), x0
    table = smc.schedule(path, num_steps, VELOCITY_EDGE)
    for step in range(num_steps):
        at, last = table[step], step + 1 == num_steps
        found = conditioned(velocity, x, at.time, known)
        score = velocity_to_score(path, found, x, x.new_full((len(x),), at.time))
        x = smc.move(x, score, at, 1 / num_steps, None if last else generator)
        after = 1.0 if last else table[step + 1].time
        x = known.on_path(x, x0, after, 1 - after)
    return x


def guided_networks(model: object) -> list[Any]:
    """The parts of a model that have the task's guidance weight, including the experts' template."""
    if isinstance(model, tuple | list):
        return [net for part in model for net in guided_networks(part)]
    if not isinstance(model, nn.Module):
        return []
    found = [net for net in model.modules() if isinstance(getattr(net, "guidance", None), Guidance)]
    return found + [net for module in model.modules() if isinstance(module, Experts) for net in guided_networks(module.template)]


def _exchange(euler: Callable[..., object], feynman_kac: Callable[..., object]) -> None:
    setattr(solver, "euler", euler)  # noqa: B010 - mypy takes a function for a constant
    setattr(smc, "feynman_kac", feynman_kac)  # noqa: B010
