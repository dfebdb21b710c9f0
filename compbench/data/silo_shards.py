"""Data sets in memory, as a whole or spread over silos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor

from compbench.api.context import Batch
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.api.factors import FactorSpace


class TensorSilo:
    """A silo whose examples lie on the device.

    Args:
        name: the silo's name.
        x1: examples, (N, *D), float32 or what `decode` takes.
        condition: (N, F) long.
        decode: stored examples -> x1 float32, if they are stored in fewer bytes (uint8 images).
    """

    def __init__(self, name: str, x1: Tensor, condition: Tensor, decode: Callable[[Tensor], Tensor] | None = None) -> None:
        self.name, self.size = name, len(x1)
        self._x1, self.condition, self._decode = x1, condition, decode

    def batch(self, size: int, generator: Generator) -> Batch:
        """`size` examples drawn uniformly with replacement."""
        rows = send(torch.randint(self.size, (size,), generator=generator), self._x1.device)
        x1 = self._x1[rows]
        return Batch(x1 if self._decode is None else self._decode(x1), self.condition[rows])


def iid_owners(count: int, silos: int, generator: Generator) -> Tensor:
    """A silo for each of `count` examples, uniformly drawn: long (count,)."""
    return torch.randint(silos, (count,), generator=generator)


def dirichlet_owners(cell: Tensor, silos: int, concentration: float, generator: Generator) -> Tensor:
    """A silo for each example, by shares that each cell draws from Dirichlet(concentration).

    Args:
        cell: the cell of each example, long (N,).
        silos: number of silos.
        concentration: alpha; a small alpha gives most of a cell to one silo.
        generator: on the CPU.

    Returns:
        long (N,).
    """
    num_cells = int(cell.max()) + 1
    gamma = torch._standard_gamma(torch.full((num_cells, silos), concentration, dtype=torch.float64), generator=generator)
    shares = gamma / gamma.sum(1, keepdim=True)
    return torch.multinomial(shares[cell], 1, replacement=True, generator=generator)[:, 0]


def check_marginals(conditions: Sequence[Tensor], space: FactorSpace) -> None:
    """Make sure that some silo has each value of each factor; DCFM's full marginal coverage.

    Args:
        conditions: conditions of each silo's examples, (N, F).
        space: the lattice.

    Raises:
        CompbenchError: no silo has some value; the message names the first one.
    """
    together = torch.cat(list(conditions))
    for k, factor in enumerate(space.factors):
        missing = sorted(set(range(factor.size)) - set(together[:, k].unique().tolist()))
        if missing:
            value = factor.values[missing[0]] if factor.values else str(missing[0])
            raise CompbenchError(
                f"no silo has '{factor.name}' = {value}: full marginal coverage fails, and no method could draw it; "
                "change the split or the holdout."
            )
