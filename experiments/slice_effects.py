"""What a network's answer to one factor alone says about that factor, and about another: `coind` against `slice-cfg` on emoji.

    compbench sweep --method coind,slice-cfg --task emoji-medium,emoji-heavy --preset standard --seed 0-2
    python experiments/slice_effects.py --task emoji-heavy --method coind --preset standard

A composition around NULL adds v(c_k) - v(NULL) for each factor k.  Each cell of emoji has one picture x1(c), so the velocity that
draws it is known, (x1(c) - x_t) / (1 - t), and so is what another value a of factor k changes in it,
u(a) = (x1(c, k = a) - mean over a) / (1 - t).  For pictures and conditions of training, averaged over times,

    effect of k = sum_a <e(a), u(a)> / sum_a <u(a), u(a)>,    e(a) = v(x_t, t | c_k = a) - mean over a.

It is 1 if the slice of k alone makes the change that k makes, and 0 if it says nothing about k.  The *tone in the role* is how
much the slice of the role says about the tones in which it was seen,

    <v(x_t, t | role) - v(x_t, t | NULL), s> / <s, s>,    s = (mean of x1 over seen tones - mean over all tones) / (1 - t).

A printed line also has the share of held-out samples in which the judge finds the value that was asked.  The weights must be in
COMPBENCH_HOME.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from embedding_matrices import weights_of
from guidance_weights import context_of
from torch import Generator, Tensor

from compbench.api.factors import NULL
from compbench.api.schemas import Record
from compbench.flow.nets import VelocityNet
from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.home import Home
from compbench.tasks.lattice_images import OpenLattice

PICTURES = 48
"""Number of training pictures, drawn at random."""
TIMES = (0.05, 0.1, 0.2)
"""Noise has weight 1 - t.  At later times the picture's own pixels say its tone, whatever is asked."""
MOST_VALUES = 8
"""Number of values of a factor that are compared, evenly spaced (of 71 roles)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", required=True, help="coind, slice-cfg or another method whose model is one velocity network")
    parser.add_argument("--preset", default="standard")
    asked = parser.parse_args()
    home = Home.of_user()
    found, _ = Store(home.records).read()
    own = [
        one
        for one in found
        if (one.spec.task, one.spec.method, one.spec.preset, one.status) == (asked.task, asked.method, asked.preset, "ok")
    ]
    if not own:
        parser.error(f"no run of {asked.method} on {asked.task} at {asked.preset} is in {home.records}: run it first.")
    for record in sorted(own, key=lambda one: one.spec.seed):
        try:
            effects = effects_of(record, home)
        except CompbenchError as error:
            parser.error(str(error))
        given = "".join(f" {name}={record.spec.overrides()[name]}" for name in record.given or ())
        for name, value in effects.items():
            score = record.score(f"heldout_accuracy_{name}")
            said = f", {score.value:.2f} of held-out samples right" if score and score.value is not None else ""
            print(f"{record.spec.task} {record.spec.method}{given} seed {record.spec.seed} {name}: {value:.2f}{said}", flush=True)


def effects_of(record: Record, home: Home) -> dict[str, float]:
    """The effect of each factor's slice in a run's network, and the tone in the role.

    Raises:
        CompbenchError: the weights are not here, the task has other pictures than emoji, or the method has no single network.
    """
    registry, spec = Registry(), record.spec
    task, method = registry.load("tasks", spec.task), registry.load("methods", spec.method)
    if method.build is None:
        raise CompbenchError(f"'{spec.method}' does not say how its network is built; use coind or slice-cfg.")
    with tempfile.TemporaryDirectory() as cache:
        opened = task.open(context_of(task, registry, spec.preset, spec.seed, Path(cache)))
        if not isinstance(opened, OpenLattice) or not spec.task.startswith("emoji-"):
            raise CompbenchError(f"'{spec.task}' has no picture that is known for each combination; use a task of emoji.")
        problem = opened.problem(spec.budget)
        net = method.build(method.settings(**spec.settings), problem)
        assert isinstance(net, VelocityNet)
        net.load_state_dict(weights_of(record, home))
        condition = problem.federation.pooled().batch(PICTURES, Generator().manual_seed(0)).condition
        names = [one.name for one in problem.space.factors]

        def pictures(cells: Tensor) -> Tensor:
            return opened.images(cells).float() / 127.5 - 1

        sizes = problem.space.sizes
        found = {name: effect(net.eval(), condition, k, sizes[k], pictures) for k, name in enumerate(names)}
        seen = torch.zeros(sizes[0], sizes[2], dtype=torch.bool)
        seen[tuple(torch.tensor(opened.lattices.holdout.seen_cells).T)] = True
        return {**found, "tone in the role": tone_in_role(net, condition, seen, pictures)}


Pictures = Callable[[Tensor], Tensor]
"""A map from combinations (B, F) to pictures (B, *D) in [-1, 1]."""


@torch.no_grad()
def effect(net: VelocityNet, condition: Tensor, factor: int, size: int, pictures: Pictures) -> float:
    """The effect of a factor's slice.

    Args:
        net: velocity network.
        condition: combinations of training, (B, F).
        factor: k.
        size: number of its values.
        pictures: the picture of each combination.
    """
    values = torch.linspace(0, size - 1, min(size, MOST_VALUES)).long().tolist()
    true = torch.stack([pictures(with_value(condition, factor, value)) for value in values])
    true = true - true.mean(0)
    found = 0.0
    for t, x_t in noised(pictures(condition)):
        alone = torch.full_like(condition, NULL)
        answers = torch.stack([net(x_t, t, with_value(alone, factor, value)) for value in values])
        found += ((answers - answers.mean(0)) * true).sum().item() * (1 - t[0].item()) / true.square().sum().item()
    return found / len(TIMES)


@torch.no_grad()
def tone_in_role(net: VelocityNet, condition: Tensor, seen: Tensor, pictures: Pictures) -> float:
    """What the slice of the role says about the tones in which it was seen; `seen` is (roles, tones)."""
    null = torch.full_like(condition, NULL)
    role = with_value(null, 0, condition[:, 0])
    tones = torch.stack([pictures(with_value(condition, 2, tone)) for tone in range(seen.shape[1])])  # (tones, B, *D)
    weight = seen[condition[:, 0]].float()  # (B, tones)
    own = torch.einsum("bt,tb...->b...", weight / weight.sum(1, keepdim=True), tones) - tones.mean(0)
    found = 0.0
    for t, x_t in noised(pictures(condition)):
        found += ((net(x_t, t, role) - net(x_t, t, null)) * own).sum().item() * (1 - t[0].item()) / own.square().sum().item()
    return found / len(TIMES)


def noised(x1: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(t (B,), x_t (B, *D)) at each of the times, with the same noise."""
    x0 = torch.randn(x1.shape, generator=Generator().manual_seed(1))
    return [(torch.full((len(x1),), time), (1 - time) * x0 + time * x1) for time in TIMES]


def with_value(condition: Tensor, factor: int, value: Tensor | int) -> Tensor:
    """The conditions (B, F) with another value of one factor."""
    changed = condition.clone()
    changed[:, factor] = value
    return changed


if __name__ == "__main__":
    main()
