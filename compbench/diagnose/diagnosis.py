"""All diagnostics of one model, as numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from compbench.diagnose.activations import distances, most_varying, overlaps, probe_r2
from compbench.diagnose.geometry import Factorisation, Metric, factorisation, that_move, volume
from compbench.diagnose.trained_model import Derivative, Subject
from compbench.flow.low_rank_maps import LowRankMaps, effective_rank
from compbench.metrics.superposition_error import (
    KernelAlignments,
    as_superposition,
    binary_factorised_kernel,
    cosine_kernel,
    kernel_alignments,
    superposition,
    superposition_score,
)

SMALLEST_VOLUME = 1e-12
NUM_UNITS = 3
"""Number of units of each layer whose activations are drawn."""


class Layer(NamedTuple):
    """One layer: factorisation, mean log10 volume of seen and held-out cells, its spread over held-out cells, and probes.

    `probe` has a pair for each factor: R^2 on the seen cells, on which the probe is fitted, and R^2 on held-out cells.
    """

    name: str
    factorisation: Factorisation
    log_volume_seen: float
    log_volume_heldout: float
    log_volume_spread: float
    probe: tuple[tuple[float, float], tuple[float, float]]


class OutputScores(NamedTuple):
    """Superposition score and kernel alignments of some outputs."""

    superposition: float
    alignments: KernelAlignments


class Diagnosis(NamedTuple):
    """The results of a diagnosis.

    Attributes:
        outputs: upright outputs, (X, Y, *D); `truth` has the true samples in the same form, if each condition has one.
        error: MSE by cell (X, Y), or None.
        explained: cosine with superposed seen outputs by cell, (X, Y).
        scores: scores of the model, and of the ideal points if there is a truth.
        kernel, factorised: kernel of the outputs, and the binary factorised kernel, seen cells first, (X Y, X Y).
        distance, overlap: distances and overlaps of the same outputs, in the same order.
        units: by layer, activations over the grid of the units that vary most, (K, X, Y).
        ranks: effective rank of each value's rendered map, by factor; empty if the model renders none.
        why_no_layers: why units and layers are empty; "" if they are not.
    """

    outputs: Tensor
    truth: Tensor | None
    error: Tensor | None
    explained: Tensor
    scores: dict[str, OutputScores]
    kernel: Tensor
    factorised: Tensor
    distance: Tensor
    overlap: Tensor
    units: dict[str, Tensor]
    layers: tuple[Layer, ...]
    derivative: str
    ranks: dict[str, Tensor]
    why_no_layers: str


def diagnose(subject: Subject, *, derivative: Derivative = "auto") -> Diagnosis:
    """All numbers about a subject.

    Images of a deterministic task are upright on black.  For other tasks, the mean over seen cells is first subtracted from the
    outputs, so that superposition means the sum of main effects.
    """
    sizes, heldout = subject.sizes, subject.heldout
    outputs = ((subject.outputs() + 1) / 2).unflatten(0, sizes)  # upright, (X, Y, *D)
    truth = None
    if subject.task.truth is not None:
        truth = ((subject.task.truth(subject.grid) + 1) / 2).unflatten(0, sizes)
    flat = outputs.flatten(2).double()
    if truth is None:  # the common part of all outputs would make every cosine 1
        flat = flat - flat[~heldout].mean(0)
    points = {"model": flat}
    if truth is not None:
        ideal = truth.flatten(2).double()
        points |= {"true samples": ideal, "exact superposition": as_superposition(ideal, heldout)}
    cells = torch.cat([(~heldout).nonzero(), heldout.nonzero()])
    ordered = torch.cat([flat[~heldout], flat[heldout]])
    inside = subject.inside(derivative)
    metrics = that_move(inside.metrics)
    unmoved = "" if metrics else "no layer of the model depends on the condition."
    return Diagnosis(
        outputs=outputs,
        truth=truth,
        error=None if truth is None else (outputs - truth).flatten(2).square().mean(-1),
        explained=torch.nn.functional.cosine_similarity(flat, superposition(flat, heldout), dim=-1),
        scores={
            name: OutputScores(superposition_score(point, heldout), _alignments(point, heldout)) for name, point in points.items()
        },
        kernel=cosine_kernel(ordered, ordered),
        factorised=binary_factorised_kernel(cells, cells),
        distance=distances(ordered),
        overlap=overlaps(ordered),
        units={name: most_varying(inside.activations[name], sizes, NUM_UNITS) for name in metrics},
        layers=tuple(_layer(name, metric, inside.activations[name], heldout) for name, metric in metrics.items()),
        derivative=inside.derivative,
        ranks=_ranks(subject),
        why_no_layers=inside.why_none or unmoved,
    )


def _alignments(point: Tensor, heldout: Tensor) -> KernelAlignments:
    """Kernel alignments; NaN if only one cell is held out, because a centred kernel of one row is zero."""
    return kernel_alignments(point, heldout) if int(heldout.sum()) > 1 else KernelAlignments(math.nan, math.nan, math.nan)


def _layer(name: str, metric: Metric, activations: Tensor, heldout: Tensor) -> Layer:
    held = heldout.flatten()
    log = volume(metric).clamp(min=SMALLEST_VOLUME).log10()
    values = heldout.new_ones(heldout.shape).nonzero()  # (X * Y, 2)
    probes = [probe_r2(activations.detach(), values[:, k], ~held) for k in range(2)]
    spread = log[held].std().item() if int(held.sum()) > 1 else math.nan
    return Layer(name, factorisation(metric), log[~held].mean().item(), log[held].mean().item(), spread, (probes[0], probes[1]))


@torch.no_grad()
def _ranks(subject: Subject) -> dict[str, Tensor]:
    for module in subject.model.modules():
        if isinstance(module, LowRankMaps):
            ranks = effective_rank(module.all_maps())
            return dict(zip(subject.problem.space.names, ranks.split(list(module.sizes)), strict=True))
    return {}
