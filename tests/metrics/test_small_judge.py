"""The small judge: what is written and read, and what to do about a damaged file."""

from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from compbench.metrics.small_judge import STORED, SmallJudge, load_small_judge, save_small_judge, train_small_judge
from compbench.system.errors import CompbenchError

CPU = torch.device("cpu")
SIZES = (3, 2)


def batches(size: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Pictures of 32 x 32: the first factor is the channel that shines, the second the half that it shines in."""
    conditions = torch.stack([torch.randint(n, (size,), generator=generator) for n in SIZES], dim=1)
    images = torch.zeros(size, 3, 32, 32, dtype=torch.uint8)
    for image, (channel, half) in zip(images, conditions.tolist(), strict=True):
        image[channel, :, 16 * half : 16 * half + 16] = 200
    return images, conditions


@pytest.fixture(scope="module")
def judge() -> SmallJudge:
    return train_small_judge(batches, SIZES, num_steps=40, channels=3, device=CPU)


def test_a_judge_learns_every_factor_and_is_the_same_after_it_is_read(judge: SmallJudge, tmp_path: Path) -> None:
    images, conditions = batches(100, Generator().manual_seed(7))
    assert (judge.predict(images) == conditions).float().mean(0).min() > 0.95
    path = save_small_judge(judge, tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    read = load_small_judge(path, CPU).state_dict()
    assert all(torch.equal(read[name], value) for name, value in judge.state_dict().items())


def test_a_damaged_judge_that_a_run_trained_is_to_be_deleted(judge: SmallJudge, tmp_path: Path) -> None:
    folder = tmp_path / "small-judge-1"
    folder.mkdir()
    path = save_small_judge(judge, folder)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CompbenchError, match=r"safetensors is missing or damaged; delete its folder, run again\.$"):
        load_small_judge(path, CPU)


def test_a_missing_judge_of_compbench_is_to_be_installed() -> None:
    with pytest.raises(CompbenchError, match="install compbench again"):
        load_small_judge(STORED / "0000000000000000.safetensors", CPU)


@pytest.mark.parametrize("path", sorted(STORED.glob("*.safetensors")), ids=lambda path: path.stem)
def test_a_stored_judge_is_under_300_kb_and_has_the_hash_of_its_name(path: Path) -> None:
    assert path.stat().st_size < 300_000
    assert load_small_judge(path, CPU).channels in (1, 3)
