"""Low-rank's matrices read from stored weights: the maps themselves, their rank, and one clear line where there are none."""

from pathlib import Path

import pytest
import torch
from embedding_matrices import Matrices, figure, matrices
from support.sample_records import record

from compbench.flow.low_rank_maps import LowRankDecoder, RankSettings
from compbench.store.records import Store
from compbench.system.errors import CompbenchError
from compbench.system.files import save_tensors
from compbench.system.home import Home


def home_with(path: Path, method: str = "low-rank") -> tuple[Home, str, LowRankDecoder]:
    home = Home(path)
    own = record(task="bump-corner", method=method, settings={"entropy_weight": 0.1, "variance_weight": 0.0})
    Store(home.records).write(own)
    net = LowRankDecoder((6, 6), (1, 6, 6), RankSettings(rank=2))
    folder = home.runs / own.identity
    folder.mkdir(parents=True)
    save_tensors(folder / "model.safetensors", dict(net.state_dict()), {})
    return home, own.name, net


def test_the_matrices_are_the_models_own_maps(tmp_path: Path) -> None:
    home, name, net = home_with(tmp_path)
    found = matrices(name, home)
    assert found.title == "entropy 0.1, variance 0.0"
    torch.testing.assert_close(found.maps, net.maps.all_maps().detach())
    assert max(found.ranks) <= 2.001
    figure([found, found], tmp_path / "matrices.png")
    assert (tmp_path / "matrices.png").read_bytes().startswith(b"\x89PNG")


def test_a_stripe_has_effective_rank_one_and_the_identity_all_of_them() -> None:
    stripe, whole = torch.ones(4, 1) @ torch.tensor([[0.0, 2, 0, 0]]), torch.eye(4)
    assert Matrices("", torch.stack([stripe, whole])).ranks == pytest.approx([1, 4], abs=1e-3)


def test_other_methods_and_missing_weights_are_one_line(tmp_path: Path) -> None:
    home, name, _ = home_with(tmp_path / "other", "mono")
    with pytest.raises(CompbenchError, match="is a run of mono; only low-rank"):
        matrices(name, home)
    home, name, _ = home_with(tmp_path / "gone")
    next(home.runs.glob("*/model.safetensors")).unlink()
    with pytest.raises(CompbenchError, match="are not in .*run it again with --force"):
        matrices(name, home)
