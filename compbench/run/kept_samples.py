"""The samples of a run that keeps them (`--keep-samples`), with all that was asked of its contestant."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compbench.files import write_atomically
from compbench.interfaces import Request

if TYPE_CHECKING:
    import numpy
    from torch import Tensor

SAMPLES, CONDITIONS = "samples", "conditions"
KEPT = (SAMPLES, CONDITIONS)
SAMPLES_FILE = "samples.npz"
"""What a run's folder keeps under `--keep-samples`."""


class Recorder:
    """Keeps what was asked and what was answered, request by request."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = defaultdict(list)

    def note(self, request: Request, stream: str, samples: Tensor) -> None:
        """One request, its stream, and its checked samples (B, *D)."""
        import torch

        known = torch.full_like(request.x0, torch.nan)
        if request.known is not None and request.known_mask is not None:
            known = torch.where(request.known_mask, request.known, known)
        for name, value in ((CONDITIONS, request.condition), (SAMPLES, samples), ("x0", request.x0), ("known", known)):
            self._parts[name].append(value.detach().cpu().numpy())
        self._parts["stream"] += [stream] * len(samples)

    def arrays(self, *names: str) -> dict[str, numpy.ndarray]:
        """All requests one after the other: "conditions", "samples", "x0", "known" (NaN where free), "stream"."""
        import numpy

        return {
            name: numpy.array(self._parts[name]) if name == "stream" else numpy.concatenate(self._parts[name]) for name in names
        }


def write_pool(path: Path, arrays: dict[str, numpy.ndarray]) -> None:
    """Write an npz file, whole or not at all.  Raises Unwritable."""
    import numpy

    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **cast(Any, arrays))
    write_atomically(path, buffer.getvalue())
