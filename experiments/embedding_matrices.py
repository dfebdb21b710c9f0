"""Draw the matrices that `low-rank` makes of each value of x and y, with and without penalties: forced rendering, figures 3b, 6.

    compbench sweep --file bumps-ablation --preset paper --seed 0
    python experiments/embedding_matrices.py bump-corner.low-rank.paper.s0.A bump-corner.low-rank.paper.s0.B --out matrices.png

Each row is a run, named by its penalties, with five values of x, then five of y, evenly spaced.  Red is positive, blue negative;
each matrix has its own scale.  A stripe (rank 1) is all that one factor determines of a bump.  The runs' weights must be in
COMPBENCH_HOME.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from compbench.api.schemas import Record
from compbench.flow.low_rank_maps import LowRankMaps, RankSettings
from compbench.store.records import Store, read_record
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors
from compbench.system.home import Home

SHOWN = 5
"""Number of values shown of each factor."""


class Matrices(NamedTuple):
    """One run: its penalties in words, and the maps of its values, x before y, (2 N, N, N)."""

    title: str
    maps: Tensor

    @property
    def ranks(self) -> list[float]:
        """Effective rank of each map: exp of the entropy of its squared singular values' shares."""
        square = torch.linalg.svdvals(self.maps).square()
        share = (square / square.sum(-1, keepdim=True)).clamp(min=1e-12)
        return (-(share * share.log()).sum(-1)).exp().tolist()


def weights_of(record: Record, home: Home) -> dict[str, Tensor]:
    """The tensors of a run's model.  Raises CompbenchError if they are not in this home."""
    path = home.runs / record.identity / "model.safetensors"
    if not path.is_file():
        raise CompbenchError(f"the weights of '{record.name}' are not in {path.parent}; run it again with --force.")
    return load_tensors(path)[0]


def matrices(name: str, home: Home) -> Matrices:
    """The maps of a low-rank run on bumps.

    Raises:
        CompbenchError: there is no such record, it has another method, or its weights are not here.
    """
    record = read_record(Store(home.records).find(name))
    if record.spec.method != "low-rank":
        raise CompbenchError(f"'{record.name}' is a run of {record.spec.method}; only low-rank has these matrices.")
    state = {key.removeprefix("maps."): value for key, value in weights_of(record, home).items() if key.startswith("maps.")}
    tokens, rank, side = state["column"].shape
    maps = LowRankMaps((tokens // 2, tokens // 2), (side, state["row"].shape[-1]), RankSettings(rank=rank))
    maps.load_state_dict(state)
    settings = record.spec.settings
    title = f"entropy {settings['entropy_weight']}, variance {settings['variance_weight']}"
    return Matrices(title, maps.all_maps().detach())


def figure(found: list[Matrices], out: Path) -> None:
    """Draw one row per run, with five values of x and five of y."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10, 1.3 * len(found)), layout="constrained")
    grid = drawing.subplots(len(found), 2 * SHOWN, squeeze=False)
    for row, own in zip(grid, found, strict=True):
        size = len(own.maps) // 2
        places = torch.linspace(0, size - 1, SHOWN).round().long()
        for axes, token in zip(row, torch.cat([places, places + size]).tolist(), strict=True):
            most = float(own.maps[token].abs().max()) or 1.0
            axes.imshow(own.maps[token].numpy(), cmap="RdBu_r", vmin=-most, vmax=most)
            axes.set_title(f"{'xy'[token // size]} = {token % size}", fontsize=7)
            axes.set_xticks([])
            axes.set_yticks([])
        row[0].set_ylabel(own.title.replace(", ", "\n"), fontsize=7)
    drawing.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", help="names of low-rank records of a bump task")
    parser.add_argument("--out", type=Path, help="picture")
    asked = parser.parse_args()
    try:
        found = [matrices(name, Home.of_user()) for name in asked.records]
    except CompbenchError as error:
        parser.error(str(error))
    for own in found:
        print(f"{own.title}: mean effective rank {sum(own.ranks) / len(own.ranks):.2f} of {own.maps.shape[-1]}")
    if asked.out:
        figure(found, asked.out)


if __name__ == "__main__":
    main()
