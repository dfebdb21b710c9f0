"""Fits that several runs share: one model for equal (task, seed, budget, precision, fit), kept by content hash.

Whichever run asks first fits it; the others, of any method whose `shared_fit` answers alike, load its weights and report
what the fit cost when it was made.  On a CPU the scores are those of a fit of one's own, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compbench.errors import CompbenchError
from compbench.files import load_tensors, save_tensors

if TYPE_CHECKING:
    from torch import nn

SAMPLING = ("sample_steps", "checkpoint_seconds")
"""Budget entries that a fit does not depend on."""


class SharedFit:
    """The place of one fit in the cache.

    Args:
        cache: folder.
        facts: JSON of everything that the fit depends on.
    """

    def __init__(self, cache: Path, facts: dict[str, Any]) -> None:
        text = json.dumps({**facts, "flow": code_of_flow()}, sort_keys=True, allow_nan=False, default=str)
        self.path = cache / f"fit-{hashlib.sha256(text.encode()).hexdigest()[:24]}.safetensors"

    def load(
        self, build: Callable[[], nn.Module], restore: Callable[[dict[str, Any]], None]
    ) -> tuple[nn.Module, dict[str, Any]] | None:
        """A kept fit, or None if it is yet to be made.

        A file that is damaged, or that does not say what the fit did with the silos, is deleted and made again.

        Args:
            build: the untrained model.
            restore: books what the fit did with the silos; raises CompbenchError where the file's word won't do.

        Returns:
            the model, and what was measured of its fit.
        """
        if not self.path.is_file():
            return None
        try:
            tensors, facts = load_tensors(self.path)
            model = build()
            model.load_state_dict(tensors)
            restore(facts.get("federation", {}))
        except (CompbenchError, RuntimeError):
            self.path.unlink(missing_ok=True)
            return None
        return model.eval(), facts

    def save(self, model: nn.Module, facts: dict[str, Any], *, federation: dict[str, Any]) -> None:
        """Keep a model, what was measured of its fit, and what the fit did with the silos (`Federation.ledger`)."""
        save_tensors(self.path, model.state_dict(), {**facts, "federation": federation})


def facts_of_fit(own: dict[str, Any], *, request: Any, task: Any, budget: Any, source: Any, precision: str, device: str) -> dict:
    """Everything that a fit depends on, as JSON."""
    return {
        "own": own,
        "task": [task.name, task.version, task.settings.model_dump(mode="json")],
        "budget": budget.model_dump(mode="json", exclude=set(SAMPLING)),
        "seed": request.seed,
        "data": [source.kind, source.fingerprint],
        "precision": precision,
        "device": device,
    }


@cache
def code_of_flow() -> str:
    """Hash of `compbench.flow`: a change there makes shared fits anew."""
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parents[1] / "flow").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
