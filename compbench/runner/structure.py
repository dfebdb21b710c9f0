"""The structure of a fitted network's hidden activations: how additive they are in the holdout's factors, on seen cells only.

Layer: the output of the module that the network names (`NamesHiddenLayer`); otherwise the input of the last linear or convolution
module in a forward pass, which in our networks projects to a sample.  A network is called as `forward(x_t, t, condition)` or
`forward(condition)`.  A network with another signature, or a model that is not a network, has no structure.

Input: initial noise x0 at t = 0, where every condition's path begins, so that cells differ only in the condition.  Each x0 comes
with values of the factors outside the holdout, the same for all cells.  The measurement takes one forward pass of at most
`MOST_ROWS` conditions, after everything that is timed, counted and scored.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from compbench.api.context import generator_of
from compbench.api.schemas import Structure
from compbench.flow.factor_effects import effects
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from compbench.api.interfaces import Problem

MOST_ROWS, MOST_INPUTS = 128, 4
"""Largest number of conditions, and of inputs per cell; if there are more cells than rows, the seed draws some of them."""
ROWS = 64
"""Conditions in one forward pass, as in a request, so that peak memory does not exceed that of the run."""
MOST_UNITS = 2048
"""Largest number of activations per row; if there are more, the seed draws some, which leaves R2 and angles unbiased."""

UNABLE = (CompbenchError, ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of a network whose inputs are not those that its signature suggests; it has no structure, and its run is unaffected."""

Forward = Callable[["Tensor", "Tensor", "Tensor"], object]


def structure_of(model: object, problem: Problem, device: torch.device, seed: int) -> Structure | None:
    """The structure of a fitted model; None if no layer is found, or if the model does not take whole conditions.

    Args:
        model: the model that `fit` returned; it is left unchanged.
        problem: the problem that it was fitted to.
        device: the model's device.
        seed: the run's seed.
    """
    if not isinstance(model, torch.nn.Module) or len(problem.holdout.factors) < 2 or not problem.holdout.cells:
        return None
    forward = forward_of(model)
    if forward is None:
        return None
    try:
        with torch.no_grad(), _evaluating(model):
            return _measured(model, forward, problem, device, generator_of(f"structure {seed}"))
    except UNABLE:
        return None


def forward_of(model: nn.Module) -> Forward | None:
    """The model as a function (x_t, t, condition) -> anything; None for another signature."""
    names = [
        name
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is parameter.empty and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(names) == 3 and names[1:] == ["t", "condition"]:
        return model
    return (lambda x_t, t, condition: model(condition)) if names == ["condition"] else None


def _measured(
    model: nn.Module, forward: Forward, problem: Problem, device: torch.device, generator: Generator
) -> Structure | None:
    holdout = problem.holdout
    cells = torch.tensor(holdout.seen_cells)
    if len(cells) > MOST_ROWS:
        cells = cells[torch.randperm(len(cells), generator=generator)[:MOST_ROWS].sort().values]
    num_inputs = max(1, min(MOST_INPUTS, MOST_ROWS // len(cells)))
    x0 = torch.randn(num_inputs, *problem.event.shape, generator=generator)
    others = problem.space.uniform(num_inputs, generator)
    gram = torch.zeros(len(cells), len(cells), dtype=torch.float64)
    layer, units, kept = "", 0, None
    for number in range(num_inputs):
        conditions = others[number].repeat(len(cells), 1)
        conditions[:, list(holdout.factors)] = cells
        blocks = []
        for first in range(0, len(conditions), ROWS):
            rows = conditions[first : first + ROWS].to(device)
            x_t, t = x0[number].expand(len(rows), *x0.shape[1:]).to(device), torch.zeros(len(rows), device=device)
            with hidden(model, len(rows)) as found:
                forward(x_t, t, rows)
            if not found:
                return None
            layer, activations = found[-1]
            flat = activations.flatten(1)
            if kept is None:
                units = flat.shape[1]
                kept = torch.randperm(units, generator=generator)[:MOST_UNITS].sort().values.to(flat.device)
            blocks.append(flat[:, kept].double().cpu())
        vectors = torch.cat(blocks)  # (M, P)
        if not bool(vectors.isfinite().all()):
            return None
        gram += vectors @ vectors.T
    found_effects = effects(gram, cells, [problem.space.sizes[place] for place in holdout.factors])
    return Structure(
        layer=layer[:200],
        r2=found_effects.r2,
        cosine=found_effects.cosine,
        num_cells=len(cells),
        num_units=units,
        num_effects=found_effects.num_effects,
    )


@contextlib.contextmanager
def hidden(model: nn.Module, num_rows: int) -> Iterator[list[tuple[str, Tensor]]]:
    """Record the hidden layer: each time that it runs, the list gets its name and its activations (B, ...).

    The last entry counts.  Activations with a number of rows other than `num_rows` are skipped.
    """
    from torch import Tensor, nn

    recorded: list[tuple[str, Tensor]] = []

    def keep(name: str, activations: object) -> None:
        if isinstance(activations, Tensor) and activations.ndim > 1 and len(activations) == num_rows:
            recorded[:] = [(name, activations.detach())]

    named: object = getattr(model, "hidden_layer", None)
    if isinstance(named, str):
        handles = [model.get_submodule(named).register_forward_hook(lambda _, given, made: keep(f"output of {named}", made))]
    else:
        projections = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
        handles = [
            module.register_forward_pre_hook(lambda _, given, name=name: keep(f"input of {name}", given[0] if given else None))
            for name, module in model.named_modules()
            if isinstance(module, projections)
        ]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module into evaluation mode while the block runs: no dropout is drawn and no running mean changes."""
    modes = {module: module.training for module in model.modules()}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
