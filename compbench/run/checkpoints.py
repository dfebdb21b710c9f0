"""Checkpoints and weights as safetensors: named tensors and a header of JSON; nothing is pickled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.files import Json, load_tensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor


class FileCheckpoints:
    """The latest checkpoint of a stage in one file, replaced whole; those of its parts lie beside it."""

    def __init__(self, path: Path, *, resume: bool, whole: FileCheckpoints | None = None) -> None:
        self.path, self._resume = path, resume
        self._whole = whole or self
        self.resumed = False

    def load(self) -> tuple[dict[str, Tensor], dict[str, Json]] | None:
        """(tensors, facts) of the last checkpoint if the run resumes and there is one.  Raises CompbenchError."""
        if not self._resume or not self.path.is_file():
            return None
        tensors, facts = load_tensors(self.path)
        self._whole.resumed = True
        return tensors, facts

    def going_on(self) -> FileCheckpoints:
        """The same file, for a fit that goes on where it was stopped on purpose: such a run does not count as resumed."""
        return FileCheckpoints(self.path, resume=True, whole=FileCheckpoints(self.path, resume=True))

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Json]) -> None:
        """Replace the checkpoint; a reader sees the old one or the new one, never half."""
        save_tensors(self.path, tensors, facts)

    def part(self, name: str) -> FileCheckpoints:
        """Checkpoints of one part of the fit, in a file of their own."""
        path = self.path.with_name(f"{self.path.stem}.{re.sub('[^A-Za-z0-9_-]', '_', name)}{self.path.suffix}")
        return FileCheckpoints(path, resume=self._resume, whole=self._whole)

    def clear(self) -> None:
        """Delete the checkpoint and those of all parts."""
        for path in [self.path, *self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}")]:
            path.unlink(missing_ok=True)
