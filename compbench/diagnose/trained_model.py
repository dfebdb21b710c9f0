"""The object of a diagnosis: the trained model of a record, the grid of two factors, its outputs and its layers there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Problem, Request
from compbench.api.schemas import Record
from compbench.diagnose.geometry import Layers, Metric, metrics_by_differences, metrics_by_jvp, tapped
from compbench.notebook.stored_model import StoredModel, rebuild
from compbench.registry.checkout import registry_of
from compbench.system.errors import CompbenchError

Derivative = Literal["auto", "jvp", "differences"]
ROWS = 49
"""Number of conditions in one forward pass."""


class NoLayers(CompbenchError):
    """The layers of a model are not available; the message says why."""


class LayerGeometry(NamedTuple):
    """Layers on the grid: activations (X * Y, ...), metric tensors, kind of derivative, and why there are no layers, or ""."""

    activations: Layers
    metrics: dict[str, Metric]
    derivative: Literal["jvp", "differences"]
    why_none: str = ""


@dataclass(frozen=True)
class Subject(StoredModel):
    """A trained model on a grid of two factors; every other factor has its middle value.

    Attributes:
        factors: positions of the two factors.
        grid: conditions of all cells, the second factor fastest, (X * Y, F).
        heldout: which cells are held out, bool (X, Y).
        x0: one initial noise for all cells, (*D).
    """

    factors: tuple[int, int]
    grid: Tensor
    heldout: Tensor
    x0: Tensor

    @property
    def sizes(self) -> tuple[int, int]:
        """(X, Y)."""
        return self.heldout.shape[0], self.heldout.shape[1]

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Samples of all cells from the same noise, (X * Y, *D)."""
        context = Context(torch.device("cpu"), "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
        parts = []
        for rows in self.grid.split(ROWS):
            asked = Request(rows, self.x0.expand(len(rows), *self.x0.shape).contiguous())
            parts.append(self.method.sample(self.settings, self.model, asked, context).float())
        return torch.cat(parts)

    def inside(self, derivative: Derivative) -> LayerGeometry:
        """Activations and metric tensors of all layers; none if the model cannot be called here.

        Raises:
            CompbenchError: "jvp" was requested for a model that takes only integer conditions.
        """
        differentiable = hasattr(self.model, "encoding") and hasattr(self.model, "render")
        name = self.method.name
        if derivative == "jvp" and not differentiable:
            raise CompbenchError(
                f"the model of '{name}' is not differentiable in its condition: it has no `encoding` and `render(code)`; "
                "use --derivative differences."
            )
        with tapped(self.model) as recorded:
            if not differentiable:
                try:
                    activations = self._stepwise(lambda rows: self._velocity_layers(rows, recorded))
                except NoLayers as error:
                    return LayerGeometry({}, {}, "differences", str(error))
                return LayerGeometry(activations, metrics_by_differences(activations, self.sizes), "differences")
            model: Any = self.model

            def layers(code: Tensor) -> Layers:
                output = model.render(code)
                return {"code": code, **recorded(len(code)), "output": output}

            activations = self._stepwise(lambda rows: layers(model.encoding(rows)))
            if derivative == "differences":
                return LayerGeometry(activations, metrics_by_differences(activations, self.sizes), "differences")
            code = model.encoding(self.grid)
            tangents = torch.stack([model.encoding.tangent(self.grid, factor) for factor in self.factors])
            return LayerGeometry(activations, metrics_by_jvp(layers, code, tangents), "jvp")

    def _velocity_layers(self, rows: Tensor, recorded: Callable[[int], Layers]) -> Layers:
        """Layers of a velocity network at x0 and time 0, where every condition's path begins."""
        x0 = self.x0.expand(len(rows), *self.x0.shape).contiguous()
        try:
            output = self.model(x0, torch.zeros(len(rows)), rows)
        except (TypeError, RuntimeError, NotImplementedError) as error:  # experts over parts of the state, a mixture of models
            message = " ".join(str(error).split())[:100]
            raise NoLayers(
                f"the layers of '{self.method.name}' are not available: its model is called neither as model(x_t, t, condition) "
                f"nor by `encoding` and `render(code)` ({type(error).__name__}: {message})."
            ) from error
        return {**recorded(len(rows)), "velocity at x0": output}

    @torch.no_grad()
    def _stepwise(self, layers: Callable[[Tensor], Layers]) -> Layers:
        parts = [layers(rows) for rows in self.grid.split(ROWS)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0] if all(name in part for part in parts)}


def load_subject(record: Record, folder: Path, *, home: Path, plugins: tuple[Path, ...] = (), factors: str = "") -> Subject:
    """The model of a record with its stored weights, on the CPU.

    Args:
        record: record of a finished run.
        folder: folder with its weights (`model.safetensors`) and processed data (`cache`).
        home: home with the official data.
        plugins: files of methods that are not installed.
        factors: names of two factors, "x,y"; "" takes the factors of the holdout.

    Raises:
        CompbenchError: the method has changed or cannot be rebuilt, or there is no grid.
    """
    stored = rebuild(record, folder, home=home, registry=registry_of(record, plugins))
    problem = stored.problem
    positions = _positions(problem, factors)
    grid = _grid(problem, positions)
    sizes = [problem.space.sizes[position] for position in positions]
    x0 = torch.randn(problem.event.shape, generator=torch.Generator().manual_seed(record.spec.seed))
    heldout = problem.holdout.contains(grid).unflatten(0, sizes)
    if not heldout.any() or heldout.all():
        raise CompbenchError(f"on the grid of {' and '.join(problem.space.names[p] for p in positions)} nothing is held out.")
    return Subject(**vars(stored), factors=positions, grid=grid, heldout=heldout, x0=x0)


def _positions(problem: Problem, factors: str) -> tuple[int, int]:
    names = factors.split(",") if factors else [problem.space.names[position] for position in problem.holdout.factors]
    positions = [problem.space.index(name.strip()) for name in names]
    if len(set(positions)) != 2:
        raise CompbenchError(f"diagnose takes a grid of two factors, got {factors or len(positions)}; --factors A,B names them.")
    return positions[0], positions[1]


def _grid(problem: Problem, positions: tuple[int, int]) -> Tensor:
    sizes = problem.space.sizes
    axes = [torch.arange(size) if place in positions else torch.tensor([size // 2]) for place, size in enumerate(sizes)]
    order = [*(place for place in range(len(sizes)) if place not in positions), *positions]
    grid = torch.cartesian_prod(*(axes[place] for place in order)).view(-1, len(sizes))
    return grid[:, torch.tensor(order).argsort()]
