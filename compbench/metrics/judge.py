"""The judge: a CNN with one head per factor that classifies what an image shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from compbench.system.errors import CompbenchError
from compbench.system.files import load_tensors, save_tensors

Batches = Callable[[int, Generator], tuple[Tensor, Tensor]]
"""(size, generator) -> uint8 images (B, C, H, W) and conditions (B, F), both on the device."""


@dataclass(frozen=True)
class JudgeSettings:
    """A judge's network and training.

    Attributes:
        architecture: "plain" is four strided convolutions; "pooled" adds batch norm, max pooling and dropout.
        width: channels of the first layer.
        num_steps, batch_size, learning_rate: settings of the training (AdamW, one cycle).
    """

    architecture: Literal["plain", "pooled"] = "plain"
    width: int = 32
    num_steps: int = 600
    batch_size: int = 128
    learning_rate: float = 2e-3


class Judge(nn.Module):
    """Classifies images, once per factor.

    Args:
        sizes: number of values of each factor.
        settings: architecture and width.
        channels, side: the images' channels and side; a side that is not a multiple of 16 is padded with black.
    """

    def __init__(self, sizes: tuple[int, ...], settings: JudgeSettings, *, channels: int = 3, side: int = 64) -> None:
        super().__init__()
        self.sizes, self.settings, self.channels, self.side = tuple(sizes), settings, channels, side
        self._margin = -side % 16
        width = settings.width
        widths = [width, 2 * width, 4 * width, 4 * width]
        layers: list[nn.Module] = [nn.PixelUnshuffle(2)]
        before = 4 * channels
        for stage, after in enumerate(widths):
            layers += _stage(settings.architecture, before, after, shrink=stage > 0)
            before = after
        self.trunk = nn.Sequential(*layers, nn.Flatten())
        self.embed = nn.Linear(before * ((side + self._margin) // 16) ** 2, 256)
        self.dropout = nn.Dropout(0.2 if settings.architecture == "pooled" else 0.0)
        self.heads = nn.ModuleList(nn.Linear(256, size) for size in sizes)

    def features(self, images: Tensor) -> Tensor:
        """The penultimate layer, (B, 256) float32, of uint8 images (B, C, H, W)."""
        if self._margin:
            images = functional.pad(images, (self._margin // 2, self._margin - self._margin // 2) * 2)
        x = images.float().div(127.5).sub(1).contiguous(memory_format=torch.channels_last)
        return functional.relu(self.embed(self.trunk(x))).float()

    def logits(self, images: Tensor) -> tuple[Tensor, ...]:
        """One (B, size) tensor for each factor."""
        embedded = self.dropout(self.features(images))
        return tuple(head(embedded) for head in self.heads)

    @torch.no_grad()
    def predict(self, images: Tensor, *, batch: int = 256) -> Tensor:
        """The most likely value of each factor, (B, F) long."""
        blocks = [images[first : first + batch] for first in range(0, len(images), batch)]
        return torch.cat([torch.stack([part.argmax(1) for part in self.logits(block)], dim=1) for block in blocks])

    @torch.no_grad()
    def embed_all(self, images: Tensor, *, batch: int = 256) -> Tensor:
        """`features` of any number of images, (B, 256), in blocks."""
        return torch.cat([self.features(images[first : first + batch]) for first in range(0, len(images), batch)])


def train_judge(
    batches: Batches,
    sizes: tuple[int, ...],
    *,
    settings: JudgeSettings,
    generator: Generator,
    device: torch.device,
    autocast: bool,
    shape: tuple[int, int, int] = (3, 64, 64),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Judge:
    """Train a judge on real images: the sum of the factors' cross-entropies.

    Args:
        batches: draws training images.
        sizes: number of values of each factor.
        settings: network and training.
        generator: source of initial weights and data order; torch's global generator is not changed.
        device: device on which the judge is trained and stays.
        autocast: bf16 autocast.
        shape: (C, H, W) of the images.
        progress: called as progress(done, total).
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
        judge = Judge(sizes, settings, channels=shape[0], side=shape[1]).to(device).to(memory_format=torch.channels_last)
        optimiser = torch.optim.AdamW(judge.parameters(), lr=settings.learning_rate, weight_decay=0.01, fused=True)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, settings.learning_rate, total_steps=settings.num_steps, pct_start=0.15
        )
        for step in range(settings.num_steps):
            images, conditions = batches(settings.batch_size, generator)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
                logits = judge.logits(images)
            first, *others = [functional.cross_entropy(part.float(), conditions[:, k]) for k, part in enumerate(logits)]
            loss = sum(others, first)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            cycle.step()
            progress(step + 1, settings.num_steps)
    return judge.eval().requires_grad_(False)


def save_judge(judge: Judge, path: Path) -> None:
    """Write a judge to a safetensors file, whole or not at all."""
    facts = {**dataclasses.asdict(judge.settings), "sizes": judge.sizes, "channels": judge.channels, "side": judge.side}
    save_tensors(path, judge.state_dict(), facts)


def load_judge(path: Path, device: torch.device) -> Judge:
    """Read what `save_judge` wrote.  Raises CompbenchError if the file is damaged."""
    tensors, facts = load_tensors(path)
    try:
        sizes, channels, side = tuple(facts.pop("sizes")), facts.pop("channels"), facts.pop("side")
        judge = Judge(sizes, JudgeSettings(**facts), channels=channels, side=side)
        judge.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError) as error:
        raise CompbenchError(f"{path} does not hold a judge; delete the file, and the judge is trained again.") from error
    return judge.to(device).to(memory_format=torch.channels_last).eval().requires_grad_(False)


def _stage(architecture: str, before: int, after: int, *, shrink: bool) -> list[nn.Module]:
    if architecture == "plain":
        return [nn.Conv2d(before, after, 3, stride=2 if shrink else 1, padding=1), nn.ReLU()]
    layers = [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)] if shrink else layers
