"""Codes of factors: bump, ramp, one-hot, positional and circle.  The method chooses the code, not the task.

    bump        exp(-(i - v)^2 / (2 w^2)), i = 0 ... n - 1     a population code
    ramp        v / (n - 1)                                    the number itself
    one-hot     e_v, between two values a blend of both
    positional  sin and cos of pi 2^j v / n, j = 0 ... J - 1
    circle      cos and sin of 2 pi v / n                      for periodic factors

`auto` is the circle for a factor that the task declares periodic, and the bump for every other factor, as in the paper, whose
factors are places.  With `encoding_of` it is one-hot for a factor whose values have names (shapes, letters): names have no order,
so neighbours in their list must not share a code.  Forced rendering, section 2 and appendix.  An open factor has the zero vector
as its code, except with the ramp, where 0 is a value and an open factor has code -1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench.api.factors import NULL, Factor
from compbench.api.interfaces import MethodSettings

Kind = Literal["bump", "ramp", "one-hot", "positional", "circle"]
Choice = Literal["auto", "bump", "ramp", "one-hot", "positional", "circle"]


class CodeSettings(MethodSettings):
    """Settings of a method that encodes ordered factors."""

    encoding: Choice = Field(
        "auto",
        description="code of each factor: bump, ramp, one-hot, positional or circle; "
        "auto is the circle for a periodic factor and the bump for others",
    )
    code_width: float = Field(1.0, gt=0, le=64, description="standard deviation of the bump code, in values")
    num_frequencies: int = Field(4, ge=1, le=16, description="pairs of sine and cosine of the positional code")


class FactorCodeSettings(CodeSettings):
    """Settings of a method that encodes both numbers and names."""

    encoding: Choice = Field(
        "auto",
        description="code of each factor: bump, ramp, one-hot, positional or circle; "
        "auto is one-hot for values with names, the circle for a periodic factor and the bump for others",
    )


class Encoding(nn.Module):
    """Conditions (B, F) as vectors (B, E): the factors' codes side by side.

    Real values between the integers are encoded too, so that a model can be differentiated in its condition.

    Args:
        sizes: number of values of each factor.
        settings: which code.
        periodic: which factors are periodic; () if none is.
    """

    def __init__(self, sizes: Sequence[int], settings: CodeSettings, periodic: Sequence[bool] = ()) -> None:
        super().__init__()
        self.sizes, self.settings = tuple(sizes), settings
        self.kinds = tuple(_kind(settings, closed) for closed in periodic or [False] * len(self.sizes))

    @property
    def num_outputs(self) -> int:
        """E."""
        own = {"ramp": 1, "circle": 2, "positional": 2 * self.settings.num_frequencies}
        return sum(own.get(kind, size) for kind, size in zip(self.kinds, self.sizes, strict=True))

    def forward(self, condition: Tensor) -> Tensor:
        """Integer or real conditions (B, F), NULL where open -> (B, E), real."""
        real = condition if condition.is_floating_point() else condition.float()
        return torch.cat([self._code(real[:, k, None], k) for k in range(len(self.sizes))], dim=1)

    def tangent(self, condition: Tensor, factor: int) -> Tensor:
        """d code / d value of one factor at integer conditions (B, F), (B, E).

        The one-hot code has a kink at each integer; there it is the central difference, one-sided at the ends.
        """
        real = condition if condition.is_floating_point() else condition.float()
        step = torch.zeros_like(real)
        step[:, factor] = 1
        if self.kinds[factor] != "one-hot":
            return torch.func.jvp(self.forward, (real,), (step,))[1]
        last = self.sizes[factor] - 1
        up, down = real + step, real - step
        up[:, factor].clamp_(max=last)
        down[:, factor].clamp_(min=0)
        return (self(up) - self(down)) / (up - down)[:, factor, None].clamp(min=1)

    def _code(self, value: Tensor, factor: int) -> Tensor:
        """One factor's values (B, 1) -> (B, its share of E)."""
        known = value != NULL
        kind, size = self.kinds[factor], self.sizes[factor]
        if kind == "ramp":
            return torch.where(known, value / max(size - 1, 1), -1.0)
        if kind == "positional":
            powers = 2.0 ** torch.arange(self.settings.num_frequencies, device=value.device, dtype=value.dtype)
            angle = math.pi / size * powers * value
            code = torch.cat([angle.sin(), angle.cos()], dim=1)
        elif kind == "circle":
            angle = 2 * math.pi / size * value
            code = torch.cat([angle.cos(), angle.sin()], dim=1)
        else:
            distance = torch.arange(size, device=value.device, dtype=value.dtype) - value  # (B, size)
            width = self.settings.code_width
            code = torch.exp(-(distance**2) / (2 * width**2)) if kind == "bump" else (1 - distance.abs()).clamp(min=0)
        return torch.where(known, code, 0.0)


def _kind(settings: CodeSettings, closed: bool) -> Kind:
    if settings.encoding != "auto":
        return settings.encoding
    return "circle" if closed else "bump"


def encoding_of(factors: Sequence[Factor], settings: FactorCodeSettings, numbers: Kind = "bump") -> Encoding:
    """The encoding of a task's factors; `auto` depends on whether their values have names.

    Args:
        factors: the factors.
        settings: which code.
        numbers: the code that `auto` has for values that are only numbered.
    """
    found = Encoding([factor.size for factor in factors], settings, [factor.periodic for factor in factors])
    if settings.encoding == "auto":
        found.kinds = tuple("one-hot" if factor.values else "circle" if factor.periodic else numbers for factor in factors)
    return found
