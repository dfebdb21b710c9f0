"""A diagnosis as plain numbers, returned by the process that examined the model; page and JSON are made from them."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field

from compbench.api.schemas import Frozen
from compbench.runner.messages import LineOfText

Number = Annotated[float | None, BeforeValidator(lambda value: value if value is None or math.isfinite(value) else None)]
"""A finite number; None replaces a value that is not finite."""


def shown(value: float | None) -> str:
    """A number with three decimals; "-" if it is undefined."""
    return "-" if value is None else f"{value:.3f}"


class Explained(Frozen):
    """Superposition score and kernel alignments of some outputs (`metrics.superposition`)."""

    superposition: Number
    seen: Number
    heldout: Number
    compositional: Number


class Factorised(Frozen):
    """A layer's factorisation (`geometry.Factorisation`)."""

    ratio: Number
    pointwise: Number
    normalised: Number


class Layer(Frozen):
    """One layer (`diagnosis.Layer`)."""

    name: LineOfText
    factorisation: Factorised
    log_volume_seen: Number
    log_volume_heldout: Number
    log_volume_spread: Number
    probe: tuple[tuple[Number, Number], tuple[Number, Number]]


class Summary(Frozen):
    """All numbers of a diagnosis.

    Attributes:
        scores: scores of the model, and of the ideal points if there is a truth.
        effective_rank: effective rank of each value's rendered map, by factor; empty if the model renders none.
        factors: names of the grid's two factors.
        why_no_layers: why there are no layers; "" if there are.
        has_truth: whether a condition has one true sample; if not, the mean of all seen outputs was subtracted.
        figures: names of the pictures in the process's folder.
    """

    derivative: LineOfText
    scores: dict[LineOfText, Explained]
    layers: tuple[Layer, ...]
    why_no_layers: LineOfText
    effective_rank: dict[LineOfText, tuple[Number, ...]]
    factors: tuple[LineOfText, LineOfText]
    has_truth: bool
    figures: tuple[Annotated[str, Field(pattern=r"^[a-z]{1,20}$")], ...]
