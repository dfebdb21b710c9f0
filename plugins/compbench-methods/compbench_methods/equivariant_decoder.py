"""A reference that is given the symmetry: one learnt picture, shifted to its position or rotated to its angle, by regression.

    bumps     x = 2 T(u - c) - 1,       by the Fourier shift theorem
    rotation  x = 2 T(R(-angle) u) - 1

The method knows what the task's factors do to an image, which no competing method knows.  So it shows how well the data can be
fitted at best; it does not show whether a network finds the symmetry.

Own: this reference is compbench's own and comes from no paper: it applies the Fourier shift theorem, or bilinear rotation.  So
there is no authors' code from which it could deviate.
"""

from __future__ import annotations

from torch import nn

from compbench import NEEDS, Method, Problem, Refused, hookimpl, symmetry_of
from compbench.flow.decoders import RateSettings, decoder_method
from compbench.flow.symmetry import ShiftedTemplate, TurnedTemplate


class Settings(RateSettings):
    pass


def build(settings: Settings, problem: Problem) -> nn.Module:
    """The untrained picture, and how the factors move it.

    Raises:
        Refused: the task's factors neither shift nor turn an image.
    """
    symmetry = symmetry_of(problem.space, problem.event.shape)
    if symmetry is None:
        raise Refused(f"{NEEDS['symmetry']}; equivariant-decoder works on bumps and rotation.")
    if symmetry == "translation":
        return ShiftedTemplate(problem.event.shape)
    return TurnedTemplate(problem.event.shape, problem.space.sizes[0])


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (decoder_method("equivariant-decoder", Settings, build, needs=("symmetry",)),)
