from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from compbench.metrics.judge import Judge, JudgeSettings, load_judge, save_judge, train_judge
from compbench.system.errors import CompbenchError

CPU = torch.device("cpu")
SIZES = (3, 2)
FAST = JudgeSettings(width=8, num_steps=60, batch_size=32, learning_rate=5e-3)


def batches(size: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Noisy 16x16 images: the first factor is the channel that shines, the second the half that it shines in."""
    conditions = torch.stack([torch.randint(n, (size,), generator=generator) for n in SIZES], dim=1)
    images = torch.randint(60, (size, 3, 16, 16), generator=generator)
    for image, (channel, half) in zip(images, conditions.tolist(), strict=True):
        image[channel, :, 8 * half : 8 * half + 8] += 150
    return images.to(torch.uint8), conditions


def trained(settings: JudgeSettings = FAST, *, autocast: bool = False, seed: int = 0) -> Judge:
    generator = Generator().manual_seed(seed)
    return train_judge(batches, SIZES, settings=settings, generator=generator, device=CPU, autocast=autocast, shape=(3, 16, 16))


def accuracy(judge: Judge) -> Tensor:
    images, conditions = batches(200, Generator().manual_seed(99))
    return (judge.predict(images, batch=64) == conditions).float().mean(0)  # (F,)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return trained()


@pytest.mark.parametrize("architecture", ["plain", "pooled"])
@pytest.mark.parametrize("autocast", [False, True])
def test_judge_learns_every_factor(architecture, autocast: bool) -> None:
    settings = JudgeSettings(architecture, FAST.width, FAST.num_steps, FAST.batch_size, FAST.learning_rate)
    assert accuracy(trained(settings, autocast=autocast)).min() > 0.95


def test_judge_returns_one_row_of_logits_a_factor(judge: Judge) -> None:
    images, _ = batches(5, Generator().manual_seed(1))
    assert [tuple(part.shape) for part in judge.logits(images)] == [(5, 3), (5, 2)]


def test_judge_features_are_float32_whatever_the_block(judge: Judge) -> None:
    images, _ = batches(5, Generator().manual_seed(1))
    assert judge.embed_all(images).dtype == torch.float32
    assert torch.allclose(judge.embed_all(images, batch=2), judge.features(images), atol=1e-5)


def test_judge_with_one_seed_is_one_judge(judge: Judge) -> None:
    again = trained()
    assert all(torch.equal(a, b) for a, b in zip(judge.state_dict().values(), again.state_dict().values(), strict=True))


def test_train_judge_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained(JudgeSettings("pooled", 4, 2, 4))
    assert torch.equal(torch.rand(3), expected)


def test_train_judge_reports_every_step() -> None:
    seen: list[tuple[int, int]] = []
    train_judge(
        batches,
        SIZES,
        settings=JudgeSettings(width=4, num_steps=3, batch_size=4),
        generator=Generator().manual_seed(0),
        device=CPU,
        autocast=False,
        shape=(3, 16, 16),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("architecture", ["plain", "pooled"])
def test_judge_survives_the_round_trip_bit_by_bit(architecture, tmp_path: Path) -> None:
    judge = trained(JudgeSettings(architecture, 4, 3, 8))
    save_judge(judge, tmp_path / "judge.safetensors")
    loaded = load_judge(tmp_path / "judge.safetensors", CPU)
    images, _ = batches(8, Generator().manual_seed(1))
    assert loaded.settings == judge.settings
    assert loaded.sizes == judge.sizes
    assert all(torch.equal(a, b) for a, b in zip(judge.logits(images), loaded.logits(images), strict=True))


def test_save_judge_leaves_nothing_but_the_judge(judge: Judge, tmp_path: Path) -> None:
    save_judge(judge, tmp_path / "judge.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["judge.safetensors"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_load_judge_refuses_a_truncated_file(judge: Judge, tmp_path: Path, share: float) -> None:
    path = tmp_path / "judge.safetensors"
    save_judge(judge, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CompbenchError, match="delete it"):
        load_judge(path, CPU)


def test_load_judge_refuses_tensors_of_something_else(tmp_path: Path) -> None:
    from compbench.system.files import save_tensors

    save_tensors(tmp_path / "other.safetensors", {"weight": torch.zeros(3)}, {"epoch": 1})
    with pytest.raises(CompbenchError, match="does not hold a judge"):
        load_judge(tmp_path / "other.safetensors", CPU)
