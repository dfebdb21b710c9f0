"""Checkpoints and weights as safetensors: named tensors and a header of JSON; nothing is pickled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.runner.counted import Tally
from compbench.system.errors import CompbenchError
from compbench.system.files import Json, load_tensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.store.loss_curves import LossCurves


CURVES, TAKEN, EMPTIED = "compbench.curves", "compbench.taken", "compbench.emptied"
"""Keys of the harness's own data in a checkpoint: the loss curves, the counts so far, and whether nothing else is left of it."""


class FileCheckpoints:
    """The latest checkpoint of a stage, in one file that is replaced as a whole; checkpoints of the stage's parts are next to it.

    Attributes:
        name: name of the part, with a dot before each nested part; "" for the whole fit.
        resumed: whether any part loaded a checkpoint.
        earlier: counts of the earlier processes of a resumed run, from the latest checkpoint that was loaded.
    """

    def __init__(
        self,
        path: Path,
        *,
        resume: bool,
        curves: LossCurves | None = None,
        tally: Tally | None = None,
        whole: FileCheckpoints | None = None,
        name: str = "",
    ) -> None:
        self.path, self.name, self._resume, self._curves = path, name, resume, curves
        self._whole, self._tally = whole or self, tally
        self.resumed, self.earlier = False, Tally()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Json]] | None:
        """(tensors, facts) of the last checkpoint if the run resumes and has one that was not emptied.

        Raises:
            CompbenchError: the file is damaged.
        """
        if not self._resume or not self.path.is_file():
            return None
        try:
            tensors, facts = load_tensors(self.path)
        except CompbenchError as error:  # whose path is that of a temporary copy
            raise CompbenchError(f"the run's {self.path.name} is damaged; run it again without --resume.") from error
        if EMPTIED in facts:
            return None
        self._whole.resumed = True
        curves, taken = facts.pop(CURVES, None), facts.pop(TAKEN, None)
        if self._tally is not None:
            self._whole._take(taken)
        if self._curves is not None:
            self._curves.restore(curves)
        return tensors, facts

    def going_on(self) -> FileCheckpoints:
        """The same file, for a fit that continues after a planned stop, which does not count as resumed."""
        whole = FileCheckpoints(self.path, resume=True)
        return FileCheckpoints(self.path, resume=True, curves=self._curves, whole=whole, name=self.name)

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Json]) -> None:
        """Replace the checkpoint; a reader sees either the old one or the new one."""
        own: dict[str, Json] = {} if self._curves is None else {CURVES: self._curves.state()}
        if self._tally is not None:
            whole = self._tally.copy()
            whole.add(self._whole.earlier)
            own[TAKEN] = list(whole.values)
        save_tensors(self.path, tensors, {**facts, **own})

    def _take(self, taken: object) -> None:
        """Add a checkpoint's counts of earlier processes; each part's checkpoint has the total at the time of writing."""
        if isinstance(taken, list) and len(taken) == 3 and all(isinstance(number, int) for number in taken):
            self.earlier = Tally(*map(max, self.earlier.values, taken))

    def part(self, name: str) -> FileCheckpoints:
        """Checkpoints of one part of the fit, in a separate file."""
        path = self.path.with_name(f"{self.path.stem}.{re.sub('[^A-Za-z0-9_-]', '_', name)}{self.path.suffix}")
        name = f"{self.name}.{name}"
        return FileCheckpoints(path, resume=self._resume, curves=self._curves, tally=self._tally, whole=self._whole, name=name)

    def empty(self) -> None:
        """Free the space of the checkpoint and of all parts.

        A run's parent copies files that change, and does not notice deleted ones.  So each file stays, with 100 bytes.
        """
        for path in self._files():
            save_tensors(path, {}, {EMPTIED: True})

    def clear(self) -> None:
        """Delete the checkpoint and the checkpoints of all parts."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        own = [self.path, *self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}")]
        return [path for path in own if path.is_file()]
