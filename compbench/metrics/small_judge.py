"""A judge small enough to be stored in the repository, so that runs need not train one: 130,000 weights of 16 bits.

    2 x 2 pixels to channels -> 4 x (3x3 convolution, batch norm, ReLU, halved) -> 2 x 2 maxima -> one linear head per factor

The judge is trained on pictures with random shifts, blur, noise and contrast.  A judge trained only on the clean pictures of a
factor grid would be right on exactly these, and wrong on pictures close to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from compbench.metrics.judge import Batches
from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors, save_tensors

STORED = Path(__file__).parent / "judges"
"""Folder of the judges that compbench ships, each named by the first 16 digits of its SHA-256."""
WIDTHS = (24, 48, 64, 96)
LARGEST_SHIFT = 3
"""Largest shift in pixels on images of 64 pixels; on other sizes it is proportional."""


class SmallJudge(nn.Module):
    """Classifies images, once per factor.

    Args:
        sizes: number of values of each factor.
        channels: channels of the images.
    """

    def __init__(self, sizes: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.sizes, self.channels = tuple(sizes), channels
        layers: list[nn.Module] = [nn.PixelUnshuffle(2)]
        before = 4 * channels
        for after in WIDTHS:
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            layers += [nn.MaxPool2d(2)] if after != WIDTHS[-1] else []
            before = after
        self.trunk = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * before, sum(sizes))

    def logits(self, images: Tensor) -> tuple[Tensor, ...]:
        """One (B, size) tensor for each factor, of images (B, C, H, W) in [-1, 1]."""
        x = images[:, : self.channels].contiguous(memory_format=torch.channels_last)
        return self.head(self.trunk(x)).split(self.sizes, dim=1)

    @torch.no_grad()
    def predict(self, images: Tensor, *, batch: int = 256) -> Tensor:
        """The most likely value of each factor of uint8 images, (B, F) long."""
        parts = [self.logits(block.float() / 127.5 - 1) for block in images.split(batch)]
        return torch.cat([torch.stack([one.argmax(1) for one in part], dim=1) for part in parts])


def train_small_judge(
    batches: Batches,
    sizes: tuple[int, ...],
    *,
    num_steps: int,
    channels: int,
    device: torch.device,
    batch_size: int = 96,
    learning_rate: float = 4e-3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> SmallJudge:
    """Train a judge on corrupted real images, always from the same seed: the mean of the factors' cross-entropies.

    Args:
        batches: draws uint8 images and conditions.
        sizes: number of values of each factor.
        num_steps, batch_size, learning_rate: settings of AdamW with one cycle.
        channels: channels of the images.
        device: device on which the judge is trained and stays.
        progress: called as progress(done, total).
    """
    generator = Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        judge = SmallJudge(sizes, channels).to(device).to(memory_format=torch.channels_last).train()
        optimiser = torch.optim.AdamW(judge.parameters(), lr=learning_rate, weight_decay=0.01, fused=True)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, learning_rate, total_steps=num_steps, pct_start=0.15)
        for step in range(num_steps):
            images, conditions = batches(batch_size, generator)
            logits = judge.logits(corrupted(images[:, :channels].float() / 127.5 - 1, generator))
            losses = [functional.cross_entropy(part, conditions[:, k], label_smoothing=0.05) for k, part in enumerate(logits)]
            optimiser.zero_grad(set_to_none=True)
            (sum(losses[1:], losses[0]) / len(losses)).backward()
            optimiser.step()
            cycle.step()
            progress(step + 1, num_steps)
    return judge.half().float().eval().requires_grad_(False)  # rounded as in the stored file


def corrupted(x: Tensor, generator: Generator) -> Tensor:
    """Images (B, C, H, W) in [-1, 1], each shifted, half of them blurred, all with noise and another contrast.

    A shift is up to 3 of 64 pixels and repeats the pixels of the edge; noise has a standard deviation of up to 0.3.
    """
    count, _, height, width = x.shape
    most = max(1, LARGEST_SHIFT * width // 64)
    drawn = torch.rand(4, count, generator=generator).to(x.device)
    offset = torch.randint(-most, most + 1, (2, count), generator=generator).to(x.device)
    rows = (torch.arange(height, device=x.device) + offset[0, :, None]).clamp(0, height - 1)
    columns = (torch.arange(width, device=x.device) + offset[1, :, None]).clamp(0, width - 1)
    x = x[torch.arange(count, device=x.device)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    blurred = functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    share = (drawn[0] * 2 - 1).clamp(min=0).view(-1, 1, 1, 1)
    x = x + share * (blurred - x)
    noise = torch.randn(x.shape, generator=generator).to(x.device) * 0.3 * drawn[1].square().view(-1, 1, 1, 1)
    contrast, brightness = 0.85 + 0.3 * drawn[2], 0.2 * drawn[3] - 0.1
    return (x * contrast.view(-1, 1, 1, 1) + brightness.view(-1, 1, 1, 1) + noise).clamp(-1, 1)


def save_small_judge(judge: SmallJudge, folder: Path) -> Path:
    """Write a judge's weights in 16 bits under the first 16 digits of the file's SHA-256; returns the file."""
    part = folder / "new.safetensors"
    tensors = {name: value.half() if value.is_floating_point() else value for name, value in judge.state_dict().items()}
    save_tensors(part, tensors, {"sizes": judge.sizes, "channels": judge.channels})
    return part.rename(folder / f"{hashlib.sha256(part.read_bytes()).hexdigest()[:16]}.safetensors")


def load_small_judge(path: Path, device: torch.device) -> SmallJudge:
    """Read what `save_small_judge` wrote.

    Raises:
        CompbenchError: the file is missing or damaged, or its hash is not the one in its name.
    """
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest()[:16] != path.stem:
        raise CompbenchError(
            f"{path} is missing or damaged; {'install compbench' if path.parent == STORED else 'delete its folder, run'} again."
        )
    tensors, facts = load_tensors(path)
    judge = SmallJudge(tuple(facts["sizes"]), facts["channels"])
    judge.load_state_dict({name: value.float() if value.is_floating_point() else value for name, value in tensors.items()})
    return judge.to(device).to(memory_format=torch.channels_last).eval().requires_grad_(False)
