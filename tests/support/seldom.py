"""Which cases of a parametrised test run with every change, and which in `.ci/slow` alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest


def seldom(cases: Iterable[object], *, but: Collection[object]) -> list[object]:
    """All cases; those not in `but` are marked slow.  Raises ValueError if a case of `but` is none of them."""
    found = list(cases)
    if unknown := [case for case in but if case not in found]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in but else slow(case) for case in found]


def slow(case: object) -> object:
    """A case (a tuple has several arguments) for `.ci/slow`."""
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.slow)
