"""Silos of training data, and the one way to reach them.

A method gets x either pooled (`Federation.pooled`, the centralised setting, noted on the record of a task with several
silos) or, with the functions that issue 5 adds here, inside a function that the federation runs on a silo.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compbench.errors import CompbenchError
from compbench.interfaces import Batch, Silo

if TYPE_CHECKING:
    from torch import Generator


class Federation:
    """The silos of a problem.  Keeps account of whether their data was pooled."""

    def __init__(self, silos: Sequence[Silo]) -> None:
        if not silos or any(silo.size < 1 for silo in silos):
            raise CompbenchError("a problem needs at least one silo, each with at least one example.")
        self._silos = tuple(silos)
        self.was_pooled = False

    def __len__(self) -> int:
        return len(self._silos)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of training examples in each silo."""
        return tuple(silo.size for silo in self._silos)

    def pooled(self) -> Silo:
        """All training data as one silo.  With several silos that is the centralised reference, and recorded as such."""
        self.was_pooled = len(self._silos) > 1
        return self._silos[0] if len(self._silos) == 1 else _Pool(self._silos)


class _Pool:
    """Several silos as one: each example comes from a silo drawn in proportion to its size."""

    name = "pooled"

    def __init__(self, silos: Sequence[Silo]) -> None:
        self._silos = silos
        self.size = sum(silo.size for silo in silos)

    def batch(self, size: int, generator: Generator) -> Batch:
        import torch

        shares = torch.tensor([float(silo.size) for silo in self._silos])
        owner = torch.multinomial(shares, size, replacement=True, generator=generator)
        counts = torch.bincount(owner, minlength=len(self._silos)).tolist()
        parts = [silo.batch(n, generator) for silo, n in zip(self._silos, counts, strict=True) if n]
        return Batch(torch.cat([part.x1 for part in parts]), torch.cat([part.condition for part in parts]))
