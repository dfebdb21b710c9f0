"""How much a network's answer depends on one factor where all others are left open: `coind` against `slice-cfg`.

    compbench sweep --method coind,slice-cfg --task emoji-medium,emoji-heavy --preset standard --seed 0-2
    python experiments/slice_strength.py --task emoji-heavy --method coind --preset standard

A composition around NULL adds v(c_k) - v(NULL) for each factor k.  For pictures and conditions of training, at several times,

    strength of k = E Var_a v(x_t, t | c_k = a) / E || v(x_t, t | c) - v(x_t, t | NULL) ||^2,

with the variance over the values a of the factor, summed over pixels: 0 if the slice of k says nothing about k.  Beside it stands
the share of held-out samples in which the judge finds the value of k that was asked.  The weights must be in COMPBENCH_HOME.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from guidance_weights import context_of
from torch import Generator, Tensor

from compbench.api.factors import NULL
from compbench.api.schemas import Record
from compbench.flow.nets import VelocityNet
from compbench.registry.registry import Registry
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors
from compbench.system.home import Home

PICTURES = 48
TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
MOST_VALUES = 8


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
        raise SystemExit(f"no run of {asked.method} on {asked.task} at {asked.preset} is in {home.records}.")
    for record in sorted(own, key=lambda one: one.spec.seed):
        given = "".join(f" {name}={record.spec.overrides()[name]}" for name in record.given or ())
        for name, strength in strengths_of(record, home).items():
            score = record.score(f"heldout_accuracy_{name}")
            said = f", {score.value:.2f} of held-out samples right" if score and score.value is not None else ""
            print(
                f"{record.spec.task} {record.spec.method}{given} seed {record.spec.seed} {name}: {strength:.3f}{said}", flush=True
            )


def strengths_of(record: Record, home: Home) -> dict[str, float]:
    """The strength of each factor's slice in a run's network.

    Raises:
        CompbenchError: the weights are not here.
    """
    registry, spec = Registry(), record.spec
    task, method = registry.load("tasks", spec.task), registry.load("methods", spec.method)
    weights = home.runs / record.identity / "model.safetensors"
    if not weights.is_file() or method.build is None:
        raise CompbenchError(f"the weights of '{record.name}' are not in {weights.parent}; run it again with --force.")
    with tempfile.TemporaryDirectory() as cache:
        problem = task.open(context_of(task, registry, spec.preset, spec.seed, Path(cache))).problem(spec.budget)
        net = method.build(method.settings(**spec.settings), problem)
        assert isinstance(net, VelocityNet)
        net.load_state_dict(load_tensors(weights)[0])
        batch = problem.federation.pooled().batch(PICTURES, Generator().manual_seed(0))
        return strengths(net.eval(), batch.x1, batch.condition, {one.name: one.size for one in problem.space.factors})


@torch.no_grad()
def strengths(net: VelocityNet, x1: Tensor, condition: Tensor, sizes: dict[str, int]) -> dict[str, float]:
    """The strength of each factor's slice.

    Args:
        net: velocity network.
        x1: pictures, (B, *D).
        condition: their values, (B, F).
        sizes: number of values of each factor, in order.
    """
    x0 = torch.randn(x1.shape, generator=Generator().manual_seed(1))
    null = torch.full_like(condition, NULL)
    varied, whole = dict.fromkeys(sizes, 0.0), 0.0
    for time in TIMES:
        t = torch.full((len(x1),), time)
        x_t = (1 - time) * x0 + time * x1
        whole += (net(x_t, t, condition) - net(x_t, t, null)).square().flatten(1).sum(1).mean().item()
        for k, (name, size) in enumerate(sizes.items()):
            answers = []
            for value in torch.linspace(0, size - 1, min(size, MOST_VALUES)).long().tolist():
                alone = null.clone()
                alone[:, k] = value
                answers.append(net(x_t, t, alone))
            varied[name] += torch.stack(answers).var(0, correction=0).flatten(1).sum(1).mean().item()
    return {name: value / whole for name, value in varied.items()}


if __name__ == "__main__":
    main()
