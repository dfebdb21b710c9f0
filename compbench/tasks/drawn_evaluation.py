"""How drawings are scored: a stored judge, the true picture of a combination, and distances in fixed features.

compbench ships a trained judge for the data that a task knows.  For other data (another font) the referee trains the same network
once and caches it with its reference data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy
import torch
from torch import Generator, Tensor

from compbench.api.interfaces import Evaluation, Metric, SamplePair, Sampler, Score, TaskContext
from compbench.flow.transfer import send
from compbench.metrics.small_judge import STORED, SmallJudge, load_small_judge, save_small_judge, train_small_judge
from compbench.metrics.true_picture import truth_scores
from compbench.registry.meaning import of_definitions
from compbench.system.errors import MetricUnavailable
from compbench.system.files import held
from compbench.tasks.image_evaluation import grid, to_uint8
from compbench.tasks.split_scores import count_cells, distance

if TYPE_CHECKING:
    from compbench.api.factors import FactorSpace
    from compbench.data.lattices import Images
    from compbench.metrics.efficientnet import ImageNetFeatures
    from compbench.tasks.lattice_images import Lattices

BLOCK = 512
"""Number of pictures rendered at a time."""
PURPOSES = {"generated": "asked", "real": "real", "floor": "floor"}
"""Each set of pictures -> the purpose of the generator of its conditions."""


class Referee(NamedTuple):
    """How a task's drawings are scored.

    Attributes:
        stored: fingerprint of the data -> name of the stored judge.
        judge_steps: training steps of a judge for other data.
        per_split: number of samples requested for each split, spread evenly over its cells.
        added: the factor that an extension task adds, whose accuracy then ranks; "" if none is added.
    """

    stored: Mapping[str, str]
    judge_steps: int
    per_split: int
    added: str = ""


class DrawnEvaluation:
    """The judge and scores of one task.

    Args:
        images: fine combinations (B, F') -> uint8 pictures (B, C, H, W).
        lattices: the factor grids of pictures and of conditions.
        referee: how samples are scored.
        ctx: context of the run.
    """

    def __init__(self, images: Images, lattices: Lattices, referee: Referee, ctx: TaskContext) -> None:
        self.images, self.lattices, self.referee, self.ctx = images, lattices, referee, ctx

    @property
    def space(self) -> FactorSpace:
        return self.lattices.space

    def prepare(self) -> None:
        """Find the judge, or train it."""
        self.judge  # noqa: B018

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Scores of every split, and the sample grid."""
        holdout, scores, pictures = self.lattices.holdout, list[Score](), {}
        for split in ("heldout", "seen") if holdout.cells else ("all",):
            asked = self._asked(split)
            generated = to_uint8(sampler(asked, stream=split)).to(self.ctx.device)
            real = self._real(asked, f"ceiling {split}")
            scores += self._accuracies(split, asked, generated, real)
            if self.lattices.deterministic:
                scores += self._against_truth(split, asked, generated)
            scores += self._distances(split, generated)
            if split != "seen":
                pictures["samples"] = grid(real.expand(-1, 3, -1, -1), generated.expand(-1, 3, -1, -1))
        return Evaluation(tuple(scores), pictures)

    def _asked(self, split: str, purpose: str = "asked") -> Tensor:
        """Conditions: equally many for each cell of the split (at least one), other factors at random, (N, F).

        Requests and the real pictures that distances compare with are drawn alike, each from the generator of its purpose.
        """
        generator, holdout = self.ctx.generator(f"{purpose} {split}"), self.lattices.holdout
        if split == "all":
            return self.space.uniform(self.referee.per_split, generator)
        cells = torch.tensor(holdout.cells if split == "heldout" else holdout.seen_cells)
        per_cell = max(1, round(self.referee.per_split / len(cells)))
        asked = self.space.uniform(per_cell * len(cells), generator)
        asked[:, list(holdout.factors)] = cells.repeat(per_cell, 1)
        return asked

    def _real(self, condition: Tensor, purpose: str) -> Tensor:
        """A random real picture of each condition, uint8 (N, C, H, W) on the device."""
        return self._pictures(self.lattices.refined(condition, self.ctx.generator(purpose)))

    def _pictures(self, fine: Tensor) -> Tensor:
        return send(torch.cat([self.images(block) for block in fine.split(BLOCK)]), self.ctx.device)

    def _accuracies(self, split: str, asked: Tensor, generated: Tensor, real: Tensor) -> list[Score]:
        """The joint accuracy over the holdout's factors (all factors if there is no holdout), and the accuracy of each factor."""
        with torch.autocast(self.ctx.device.type, enabled=False):
            right, ceiling = (self.judge.predict(block).cpu() == asked for block in (generated, real))
        positions, added = list(self.lattices.holdout.factors) or list(range(len(self.space))), self.referee.added
        name, n = f"{split}_accuracy", len(asked)
        joint = right[:, positions].all(1)
        values: list[tuple[str, Tensor, Tensor, bool]] = [
            (name, joint, ceiling[:, positions].all(1), split != "seen" and not added),
            *((f"{name}_{own}", right[:, k], ceiling[:, k], own == added) for k, own in enumerate(self.space.names)),
        ]
        metric = self.ctx.metrics.get("accuracy")
        scores = [
            Score(
                name=which,
                metric="accuracy",
                metric_version=metric.version if metric else 1,
                split=split,
                value=share.float().mean().item(),
                n=n,
                direction="higher",
                ceiling=best.float().mean().item(),
                primary=primary,
            )
            for which, share, best, primary in values
        ]
        if self.lattices.holdout.factors:
            scores[0] = scores[0].model_copy(update={"by_cell": count_cells(asked[:, positions], joint)})
        return scores

    def _against_truth(self, split: str, asked: Tensor, generated: Tensor) -> list[Score]:
        space, holdout = self.space, self.lattices.holdout
        every = torch.cartesian_prod(*(torch.arange(size) for size in space.sizes))  # (M, F), the last factor fastest
        places = torch.tensor([int(numpy.prod(space.sizes[k + 1 :])) for k in range(len(space))])
        found = truth_scores(
            generated,
            (asked.cpu() * places).sum(1).to(generated.device),
            self._every,
            (~holdout.contains(every)).to(generated.device),
        )
        return [
            _score(f"{split}_{name}", name, split, value, len(asked), **known)
            for name, value, known in (
                ("psnr", found.psnr, {"direction": "higher", "unit": "dB"}),
                ("r2", found.r2, {"direction": "higher", "ceiling": 1.0}),
                ("true_rank", found.rank, {"direction": "lower", "floor": 1.0}),
                ("true_first", found.first, {"direction": "higher", "ceiling": 1.0}),
                ("copied", found.copied, {"direction": "lower", "floor": 0.0}),
            )
        ]

    @cached_property
    def _every(self) -> Tensor:
        """All pictures of a grid that has one picture for each combination, uint8 (M, C, H, W) on the device."""
        every = torch.cartesian_prod(*(torch.arange(size) for size in self.space.sizes))
        return self._real(every, "every")

    def _distances(self, split: str, generated: Tensor) -> list[Score]:
        """The task's distance metrics against real pictures of the split, each with its noise floor (real against real).

        Details that no condition names are drawn from a random stream of their own.
        """
        real, floor = (self._real(self._asked(split, which), f"{which} pictures {split}") for which in ("real", "floor"))
        pair = SamplePair(real, generated, floor, _Features({"real": real, "generated": generated, "floor": floor}))
        return [
            distance(metric, split, self._compared(metric, split, pair), self.ctx)
            for metric in self.ctx.metrics.values()
            if metric.compute is not None
        ]

    def _compared(self, metric: Metric, split: str, pair: SamplePair) -> SamplePair:
        """The pictures, as one metric gets them."""
        return pair

    @cached_property
    def judge(self) -> SmallJudge:
        """The stored judge of this data; otherwise one from the cache, or a new one.  Parallel runs train it once."""
        name = self.referee.stored.get(self.ctx.source.fingerprint)
        if name:
            return load_small_judge(STORED / f"{name}.safetensors", self.ctx.device)
        facts = [self.ctx.source.fingerprint, self.space.sizes, self.referee.judge_steps]
        facts.append(of_definitions(SmallJudge, train_small_judge))
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        folder = self.ctx.cache / f"small-judge-{digest}"
        with held(folder.with_suffix(".judge")):
            known = sorted(folder.glob("*.safetensors"))
            if known:
                return load_small_judge(known[0], self.ctx.device)
            judge = self.trained_judge(self.referee.judge_steps)
            folder.mkdir(parents=True, exist_ok=True)
            save_small_judge(judge, folder)
            return judge

    def trained_judge(self, num_steps: int) -> SmallJudge:
        """A new judge, trained on all pictures."""
        channels = self._pictures(self.lattices.fine.uniform(1, Generator().manual_seed(0))).shape[1]

        def batches(size: int, generator: Generator) -> tuple[Tensor, Tensor]:
            fine = self.lattices.draw(size, generator, seen_only=False)
            return self._pictures(fine), send(self.lattices.condition(fine), self.ctx.device)

        return train_small_judge(
            batches,
            self.space.sizes,
            num_steps=num_steps,
            channels=channels,
            device=self.ctx.device,
            progress=lambda done, total: self.ctx.progress("judge", done, total),
        )


class PairedEvaluation(DrawnEvaluation):
    """The judge and scores of one task; joint metrics also get conditions, and those that declare `judge` get its features.

    The conditions are drawn again from the generators of the pictures, which give the same numbers for the same purpose.
    """

    def _compared(self, metric: Metric, split: str, pair: SamplePair) -> SamplePair:
        if "judge" in metric.features:
            images = {"real": pair.real, "generated": pair.generated, "floor": pair.floor}
            return pair._replace(features=lambda extractor, which: self._features(images[which]))
        return pair._replace(conditions=self._conditions(split)) if metric.joint else pair

    @torch.no_grad()
    def _features(self, images: Tensor) -> numpy.ndarray:
        """What the judge's heads read of uint8 images (N, C, H, W), float (N, D)."""
        with torch.autocast(self.ctx.device.type, enabled=False):
            blocks = (block[:, : self.judge.channels].float() / 127.5 - 1 for block in images.split(BLOCK))
            parts = [self.judge.trunk(block.contiguous(memory_format=torch.channels_last)) for block in blocks]
        return torch.cat(parts).cpu().numpy()

    def _conditions(self, split: str) -> dict[str, Tensor]:
        return {which: self._asked(split, purpose) for which, purpose in PURPOSES.items()}


class _Features:
    """features("imagenet", which): computed once for each set of pictures; equal pictures in a set are computed once."""

    _network: ImageNetFeatures | None = None

    def __init__(self, images: Mapping[str, Tensor]) -> None:
        self._images = images
        self._known: dict[str, numpy.ndarray] = {}

    def __call__(self, extractor: str, which: str) -> numpy.ndarray:
        if extractor != "imagenet":
            raise MetricUnavailable(f"drawings have no features '{extractor}', only 'imagenet'")
        if which not in self._known:
            self._known[which] = self._embedded(self._images[which])
        return self._known[which]

    def _embedded(self, images: Tensor) -> numpy.ndarray:
        from compbench.metrics.efficientnet import ImageNetFeatures

        if self._network is None:
            self._network = ImageNetFeatures(images.device)
        unique, inverse = images.flatten(1).unique(dim=0, return_inverse=True)
        return self._network(unique.view(-1, *images.shape[1:]))[inverse].cpu().numpy()


def _score(name: str, metric: str, split: str, value: float, n: int, **known: object) -> Score:
    return Score.model_validate({"name": name, "metric": metric, "split": split, "value": value, "n": n, **known})
