"""Figures of a diagnosis as PNG bytes: landscape, kernels, layers, units, samples, ranks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from compbench.diagnose.activations import tuning
from compbench.metrics.superposition_error import superposition
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from compbench.diagnose.diagnosis import Diagnosis

COLUMNS = 8
"""Number of held-out cells in the figure of samples."""


def figures(found: Diagnosis, names: Sequence[str], heldout: Tensor) -> dict[str, bytes]:
    """All figures by name.

    Args:
        found: the diagnosis.
        names: names of the two factors.
        heldout: which cells are held out, bool (X, Y).

    Raises:
        CompbenchError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise CompbenchError("figures need packages that are not installed: pip install 'compbench[figures]'") from error
    drawn = {
        "landscape": _landscape(found, names, heldout),
        "kernels": _kernels(found, heldout),
        **({"layers": _layers(found, names), "units": _units(found, names)} if found.layers else {}),
        "samples": _samples(found, heldout),
    }
    if found.ranks:
        drawn["ranks"] = _ranks(found)
    return drawn


def _landscape(found: Diagnosis, names: Sequence[str], heldout: Tensor) -> bytes:
    """Error and share of superposition by cell, with the held-out region outlined."""
    panels: list[tuple[str, Tensor]] = [("cosine with superposed seen outputs", found.explained)]
    if found.error is not None:
        panels.insert(0, ("log10 MSE", found.error.clamp(min=1e-9).log10()))
    figure = _figure(4.6 * len(panels), 4)
    for place, (title, values) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        picture = axes.imshow(values.T.numpy(), origin="lower", aspect="auto", cmap="viridis")
        _outline(axes, heldout)
        axes.set(title=title, xlabel=names[0], ylabel=names[1])
        figure.colorbar(picture, ax=axes)
    return _png(figure)


def _kernels(found: Diagnosis, heldout: Tensor) -> bytes:
    """The outputs' kernels and the binary factorised kernel; a line separates seen cells (first) from held-out cells."""
    figure = _figure(9.2, 8.4)
    border = int((~heldout).sum()) - 0.5
    kernels = {
        "outputs, cosine": found.kernel,
        "binary factorised": found.factorised,
        "outputs, distance": found.distance,
        "outputs, overlap": found.overlap,
    }
    for place, (title, kernel) in enumerate(kernels.items()):
        axes = figure.add_subplot(2, 2, place + 1)
        most = None if title.endswith("distance") else 1
        picture = axes.imshow(kernel.numpy(), vmin=0, vmax=most, cmap="magma", interpolation="nearest")
        axes.axhline(border, color="white", linewidth=0.8)
        axes.axvline(border, color="white", linewidth=0.8)
        axes.set(title=title, xlabel="cell (seen | held out)", ylabel="cell")
        figure.colorbar(picture, ax=axes)
    return _png(figure)


def _layers(found: Diagnosis, names: Sequence[str]) -> bytes:
    """Factorisation, volume and probes layer by layer."""
    figure = _figure(12.5, 4.6)
    ticks = range(len(found.layers))
    curves: list[tuple[str, dict[str, list[float]]]] = [
        (
            "factorisation",
            {kind: [getattr(layer.factorisation, kind) for layer in found.layers] for kind in ("ratio", "normalised")},
        ),
        (
            "mean log10 volume",
            {
                "seen": [layer.log_volume_seen for layer in found.layers],
                "held out": [layer.log_volume_heldout for layer in found.layers],
            },
        ),
        ("probe R2, held out", {name: [layer.probe[k][1] for layer in found.layers] for k, name in enumerate(names)}),
    ]
    for place, (title, lines) in enumerate(curves):
        axes = figure.add_subplot(1, 3, place + 1)
        for label, values in lines.items():
            axes.plot(ticks, values, marker="o", label=label)
        if title == "factorisation":
            axes.set_ylim(0, 1.05)
        if title.startswith("probe"):
            axes.set_ylim(max(-1.0, min(0.0, *axes.get_ylim())), 1.05)
        axes.set_xticks(list(ticks), [layer.name for layer in found.layers], rotation=60, ha="right", fontsize=7)
        axes.set_title(title)
        axes.legend(fontsize=8)
    return _png(figure)


def _units(found: Diagnosis, names: Sequence[str]) -> bytes:
    """For each layer, maps over the grid of the units that vary most, each next to its tuning curves."""
    across = 2 * max(len(maps) for maps in found.units.values())
    figure = _figure(1.9 * across, 1.7 * len(found.units))
    for down, (layer, maps) in enumerate(found.units.items()):
        for unit, (grid, *curves) in enumerate(zip(maps, *tuning(maps), strict=True)):
            axes = figure.add_subplot(len(found.units), across, down * across + 2 * unit + 1)
            axes.imshow(grid.T.numpy(), origin="lower", aspect="auto", cmap="viridis")
            axes.set_title(layer if unit == 0 else "", fontsize=8, loc="left")
            beside = figure.add_subplot(len(found.units), across, down * across + 2 * unit + 2)
            for name, curve, style in zip(names, curves, ("-", "--"), strict=True):
                beside.plot(range(len(curve)), curve.numpy(), style, label=name)
            for own in (axes, beside):
                own.tick_params(labelsize=6)
            if (down, unit) == (0, 0):
                axes.set(xlabel=names[0], ylabel=names[1])
                beside.legend(fontsize=6)
    return _png(figure)


def _samples(found: Diagnosis, heldout: Tensor) -> bytes:
    """Held-out cells: the truth if there is one, the model's output, and superposed seen outputs (scaled to their peak)."""
    cells = heldout.nonzero()
    chosen = cells[torch.linspace(0, len(cells) - 1, min(COLUMNS, len(cells))).long()]
    shape = found.outputs.shape[2:]
    superposed = superposition(found.outputs.flatten(2), heldout)
    superposed = (superposed / superposed.amax(-1, keepdim=True).clamp(min=1e-9)).unflatten(2, shape)
    rows = [("made", found.outputs), ("superposed", superposed)]
    if found.truth is not None:
        rows.insert(0, ("true", found.truth))
    figure = _figure(1.3 * len(chosen), 1.45 * len(rows))
    for down, (label, images) in enumerate(rows):
        for across, cell in enumerate(chosen.tolist()):
            axes = figure.add_subplot(len(rows), len(chosen), down * len(chosen) + across + 1)
            _show(axes, images[tuple(cell)])
            axes.set_xticks([])
            axes.set_yticks([])
            if down == 0:
                axes.set_title(str(tuple(cell)), fontsize=8)
            if across == 0:
                axes.set_ylabel(label, fontsize=8)
    return _png(figure)


def _ranks(found: Diagnosis) -> bytes:
    """Effective rank of each value's map."""
    figure = _figure(6, 3.4)
    axes = figure.add_subplot(1, 1, 1)
    for name, ranks in found.ranks.items():
        axes.plot(range(len(ranks)), ranks.numpy(), marker=".", label=name)
    axes.set(title="effective rank of the rendered maps", xlabel="value", ylim=(0, None))
    axes.legend(fontsize=8)
    return _png(figure)


def _show(axes: Axes, sample: Tensor) -> None:
    """Show an image (C, H, W) as a picture, and anything else as a curve."""
    if sample.ndim == 3:
        image = sample.clamp(0, 1).permute(1, 2, 0).numpy()
        axes.imshow(image if image.shape[2] == 3 else image[:, :, 0], vmin=0, vmax=1, cmap="gray", origin="upper")
    else:
        axes.plot(numpy.asarray(sample.flatten()))


def _outline(axes: Axes, region: Tensor) -> None:
    """White lines around the held-out region: on each side of a held-out cell whose neighbour is not held out."""
    held = torch.nn.functional.pad(region, (1, 1, 1, 1))
    for x, y in region.nonzero().tolist():
        sides = {
            ((x - 0.5, x - 0.5), (y - 0.5, y + 0.5)): held[x, y + 1],
            ((x + 0.5, x + 0.5), (y - 0.5, y + 0.5)): held[x + 2, y + 1],
            ((x - 0.5, x + 0.5), (y - 0.5, y - 0.5)): held[x + 1, y],
            ((x - 0.5, x + 0.5), (y + 0.5, y + 0.5)): held[x + 1, y + 2],
        }
        for (across, up), joined in sides.items():
            if not joined:
                axes.plot(across, up, color="white", linewidth=1.5)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()
