"""Count conditions by their number of factors with a value: those that a fit regresses on, and those that a sampler requests.

n_k = #{rows of a batch whose condition has values of k of F factors},  k = 0 (NULL), ..., F (the whole condition)

A loss reports the conditions that it compares with data: `regressed(condition)`.  A condition that only a penalty uses is not
regressed on, and neither is what a loss compares without any condition, as a silo's energy does.  The statement computes nothing
that the loss uses, so a run's identity does not depend on it (`registry.syntax`).
Counts stay on the device until they are read, so no step waits for a GPU.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class ConditionCounts:
    """Counts n_0 ... n_F of the conditions that were added, for each F.  Several threads may add at once."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, str], tuple[Tensor, Tensor]] = {}

    def add(self, condition: Tensor, kind: Tensor | None = None) -> None:
        """Count the rows of a batch of conditions.

        Args:
            condition: (..., F); a negative value is an open factor.
            kind: (B,), if only a part of each whole condition (B, F) was used: 0 means all of it, 1 nothing, 2 + k only factor k
                (the order of `flow.masking.sub_conditions`).
        """
        import torch

        num_factors, device = condition.shape[-1], condition.device
        num_given = (condition >= 0).sum(-1).flatten()  # (B,)
        if kind is not None:
            num_given = torch.where(kind == 0, num_given, (kind > 1).to(num_given.dtype))
        place = threading.get_ident(), num_factors, str(device)
        if place not in self._found:
            sizes = torch.arange(num_factors + 1, device=device)
            self._found[place] = torch.zeros_like(sizes), sizes
        counts, sizes = self._found[place]
        counts += (num_given[:, None] == sizes).sum(0)

    def of(self, num_factors: int) -> tuple[int, ...]:
        """n_0 ... n_F of the conditions on F factors; () if there were none."""
        own = [counts.tolist() for place, (counts, _) in self._found.items() if place[1] == num_factors]
        return tuple(map(sum, zip(*own, strict=True)))


_open: list[ConditionCounts] = []


@contextlib.contextmanager
def counting() -> Iterator[ConditionCounts]:
    """Count the conditions that losses of this process report with `regressed` while the block runs."""
    counts = ConditionCounts()
    _open.append(counts)
    try:
        yield counts
    finally:
        _open.remove(counts)


def regressed(condition: Tensor, kind: Tensor | None = None) -> None:
    """Report the conditions that a loss compares with data; see `ConditionCounts.add`.

    A loss that is compiled as a whole is not counted.
    """
    import torch

    if torch.compiler.is_compiling():
        return
    for counts in _open:
        counts.add(condition, kind)


def experts_regressed(condition: Tensor, base: Sequence[int]) -> None:
    """Report the whole conditions (B, F) of a batch on which F + 1 experts regress, each on its own part.

    Around a base each expert regresses on the rows of its own source.  Otherwise (()) the first regresses on NULL and the k-th on
    factor k alone, on all rows.
    """
    import torch

    if base:
        regressed(condition)
    elif not torch.compiler.is_compiling():
        for k in range(condition.shape[1] + 1):
            regressed(condition, condition.new_full((len(condition),), 1 + k))
