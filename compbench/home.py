"""Where compbench keeps things: COMPBENCH_HOME, or the user's data folder."""

from __future__ import annotations

import os
from pathlib import Path


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
    def cache(self) -> Path:
        """Judges, reference statistics and renderer buffers, named by content hash; safe to delete."""
        return self.root / "cache"

    @property
    def data(self) -> Path:
        """Official data files."""
        return self.root / "data"

    @property
    def board(self) -> Path:
        return self.root / "board"
