"""The contract of a method, checked on a tiny problem of vectors.  Runs in a process of its own: it runs plugin code.

python -m compbench.gates.contract NAME [FILE]...   prints one JSON list of findings
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compbench.factors import NULL, Factor, FactorSpace, Holdout

if TYPE_CHECKING:
    from torch import Generator

    from compbench.interfaces import Batch, Method, Problem

SPACE = FactorSpace([Factor("a", 2), Factor("b", 3)])
HOLDOUT = Holdout.by_rule(SPACE, ["a", "b"], lambda a, b: (a, b) == (1, 2))
ROWS = 8


class _Silo:
    """x = (a, b) - 0.5 + 0.1 e, (B, 2)."""

    name, size = "tiny", 64

    def batch(self, size: int, generator: Generator) -> Batch:
        import torch

        from compbench.interfaces import Batch

        condition = HOLDOUT.draw(size, generator, heldout=False)
        return Batch(condition.float() - 0.5 + 0.1 * torch.randn(size, 2, generator=generator), condition)


def check(method: Method) -> list[dict[str, str]]:
    """Findings of every check: name, status ("ok" or "failed"), and for a failure what was expected and found."""
    import torch

    from compbench.interfaces import Request

    found: list[dict[str, str]] = []

    def expect(name: str, held: bool, message: str) -> None:
        found.append({"check": name, "status": "ok" if held else "failed", "message": "" if held else message})

    bare = [name for name, field in method.settings.model_fields.items() if not field.description]
    expect("settings", not bare, f"every setting needs Field(description=...); missing for: {', '.join(bare)}.")
    before = _globals()
    settings, runs = method.settings(), []
    for _ in range(2):
        torch.manual_seed(0)
        model = method.fit(settings, _problem(), _context(1))
        condition = torch.zeros(ROWS, 2, dtype=torch.long)
        x0 = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(2))

        def ask(condition: Any, x0: Any, model: Any = model) -> Any:
            return method.sample(settings, model, Request(condition, x0), _context(3))

        runs.append(ask(condition, x0))
    first = runs[0]
    expect("shape", tuple(first.shape) == (ROWS, 2), f"samples must have shape {(ROWS, 2)}, got {tuple(first.shape)}.")
    expect("dtype", first.dtype == torch.float32, f"samples must be float32, got {first.dtype}.")
    expect("finite", bool(first.isfinite().all()), "samples must be finite; lower the learning rate or check for division by 0.")
    expect("determinism", torch.equal(*runs), "two fits and samples of one seed differ; draw only from ctx.generator.")
    for column, name in enumerate(SPACE.names):
        other = condition.clone()
        other[:, column] = 1
        expect(f"condition {name}", not torch.equal(ask(other, x0), first), f"factor '{name}' does not change the samples.")
    expect("null", not torch.equal(ask(condition * 0 + NULL, x0), first), "NULL is answered as the value 0; leave it open.")
    expect("x0", not torch.equal(ask(condition, -x0), first), "other noise gives the same samples; start from request.x0.")
    expect("globals", _globals() == before, "global state (default dtype, threads, cuDNN flags) changed; put it back.")
    expect("cancellation", _cancels(method), "fit went on though ctx.cancelled() is true; raise Cancelled in its loop.")
    return found


def _problem() -> Problem:
    from compbench.federation import Federation
    from compbench.interfaces import Budget, Event, Problem

    budget = Budget(train_steps=20, batch_size=16, width=16, learning_rate=1e-2, sample_steps=4)
    return Problem(SPACE, Event("vector", (2,)), Federation([_Silo()]), budget, HOLDOUT, composed=(0, 1))


def _context(seed: int, *, cancelled: bool = False) -> Any:
    import torch

    from compbench.checkpoints import NoCheckpoints
    from compbench.interfaces import Context

    generator = torch.Generator().manual_seed(seed)
    return Context(torch.device("cpu"), "fp32", generator, NoCheckpoints(), cancelled=lambda: cancelled)


def _globals() -> tuple[Any, ...]:
    import torch

    flags = torch.backends.cudnn
    return torch.get_default_dtype(), torch.get_num_threads(), flags.benchmark, flags.deterministic, torch.is_grad_enabled()


def _cancels(method: Method) -> bool:
    from compbench.errors import Cancelled

    try:
        method.fit(method.settings(), _problem(), _context(1, cancelled=True))
    except Cancelled:
        return True
    return False


def main(name: str, *files: str) -> None:
    from compbench.registry import Registry

    report = check(Registry(tuple(Path(file) for file in files)).load("methods", name))
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
