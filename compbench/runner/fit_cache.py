"""Fits that several runs share: runs with equal (task, seed, budget, precision, fit) use one model, kept by content hash.

The first run that needs the model fits it.  The other runs, of any method of the same distribution whose `shared_fit` returns
the same value, load its weights and are charged what the fit cost.  On a CPU the scores equal those of a separate fit, bit
for bit; the number of threads and the version of torch are the same.  Only the parent writes here: a contestant states what its
fit depends on and leaves the weights in its folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from compbench.api.interfaces import Budget, Task
from compbench.api.schemas import Frozen, RunRequest
from compbench.registry.meaning import CPU
from compbench.runner.messages import FitCost, Open
from compbench.store.counts import FIT, fit_excess
from compbench.system.errors import CompbenchError
from compbench.system.files import Json, file_sha256, held, read_json, write_atomically
from compbench.system.home import Home
from compbench.system.plugin_folder import PluginFolder

SAMPLING = ("sample_steps", "checkpoint_seconds")
"""Budget entries that a fit does not depend on."""
FIT_FILE = "fit.safetensors"
"""File in which a contestant leaves the weights of a fit that other runs may share."""
MAX_COST_BYTES = 2**20


class KeptFit(Frozen):
    """What a fit cost, and the hash of its weights."""

    cost: FitCost
    sha256: str


class SharedFit:
    """The cache entry of one fit, keyed by the `facts` that it depends on and the `scope` of its code; locked during the fit.

    The lock is kept with the leases, because a contestant that could open it could hold it as long as it lives.  `alarm` is
    called while another run holds the lock; an exception from it ends the waiting.
    """

    def __init__(self, home: Home, facts: dict[str, Json], scope: str, alarm: Callable[[], None]) -> None:
        text = json.dumps({"facts": facts, "scope": scope}, sort_keys=True, allow_nan=False)
        self.path = home.cache / f"fit-{hashlib.sha256(text.encode()).hexdigest()[:24]}.safetensors"
        self.lock = held(home.leases / self.path.name, waiting=alarm)

    def cost(self) -> FitCost | None:
        """The cost of the kept fit; None if no fit is kept, if its costs were not counted, or if its weights have changed."""
        try:
            kept = read_json(self.path.with_suffix(".json"), KeptFit, MAX_COST_BYTES, "fit")
            return kept.cost if kept.cost.counts and kept.sha256 == file_sha256(self.path) else None
        except (CompbenchError, OSError):
            return None

    def keep(self, folder: PluginFolder, cost: FitCost, *, limit: int = 2**33) -> None:
        """Publish the weights in a contestant's folder, and the cost of their fit.

        Nothing is kept if the weights are not a regular file of at most `limit` bytes, or if the fit exceeded its budget.
        """
        if fit_excess({**dict.fromkeys(FIT, 0.0), **cost.counts}):
            return
        try:
            folder.publish(FIT_FILE, self.path, limit=limit)
            kept = KeptFit(cost=cost, sha256=file_sha256(self.path))
            write_atomically(self.path.with_suffix(".json"), kept.model_dump_json(indent=1).encode())
        except (CompbenchError, OSError):
            self.path.unlink(missing_ok=True)


def facts_of_fit(
    own: dict[str, Json], *, request: RunRequest, task: Task, budget: Budget, order: Open, device_class: str
) -> dict[str, Json]:
    """Everything that a fit depends on, as JSON; called in the contestant's process."""
    import torch  # the parent imports this module and no torch

    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads() if device_class == CPU else 0,
        "own": own,
        "task": [task.name, task.version, task.settings.model_dump(mode="json")],
        "budget": budget.model_dump(mode="json", exclude=set(SAMPLING)),
        "seed": request.seed,
        "data": [order.source.kind, order.source.fingerprint],
        "precision": order.precision,
        "device": device_class,
    }
