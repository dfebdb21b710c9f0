"""Where compbench keeps things: COMPBENCH_HOME, or the user's data folder."""

from __future__ import annotations

import os
from pathlib import Path

FROM_DATA = "data"
"""Folder of a cache for what was made of a task's data alone, with nothing of a referee's in it."""


class Home:
    """The folders under COMPBENCH_HOME.  Nothing is created before something is written."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of_user(cls) -> Home:
        """COMPBENCH_HOME if set, else the platform's data folder for the user."""
        if os.environ.get("COMPBENCH_HOME"):
            return cls(Path(os.environ["COMPBENCH_HOME"]).expanduser().resolve())
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("compbench", appauthor=False)))

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def runs(self) -> Path:
        """Checkpoints, weights, logs and traces, a folder a run (named by identity)."""
        return self.root / "runs"

    @property
    def references(self) -> Path:
        """The referee's: judges, reference statistics, what it made of the data.  Out of a contestant's reach; safe to delete."""
        return self.root / "references"

    @property
    def cache(self) -> Path:
        """The contestants': fitted models that several runs share, a copy of what was made of the data.  Safe to delete."""
        return self.root / "cache"

    @property
    def data(self) -> Path:
        """Official data files."""
        return self.root / "data"

    @property
    def board(self) -> Path:
        return self.root / "board"
