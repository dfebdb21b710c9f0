"""How digits in any colour but one are scored: shares of outcomes against the exact shares, and whether each sample conforms.

    outcomes    wrong digit, right digit in the excluded colour, right digit in colour d + k for k = 0 ... 9
    exact       0, 0, 1/10 each: colour d + k is excluded in one of ten requests, and has share 1/9 in the nine others

TV = 1/2 sum_o |judged share of o - exact share of o|.  The floor is the TV of equally many real images of the exact distribution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compbench.api.factors import excluding
from compbench.api.interfaces import Evaluation, Sampler, Score
from compbench.metrics.shares import total_variation
from compbench.tasks.image_evaluation import ImageEvaluation, grid, to_uint8
from compbench.tasks.split_scores import count_cells


def outcomes(found: Tensor, digit: Tensor, excluded: Tensor, num_colours: int) -> list[float]:
    """Share of each outcome: wrong digit, excluded colour, and each other colour counted from the digit.

    Args:
        found: judged digit and colour, (N, 2).
        digit, excluded: the requested digit and the excluded colour, (N,).
        num_colours: K.

    Returns:
        K + 2 shares, whose sum is 1.
    """
    offset = 2 + (found[:, 1] - digit) % num_colours
    outcome = torch.where(found[:, 1] == excluded, 1, offset).masked_fill(found[:, 0] != digit, 0)
    return (torch.bincount(outcome, minlength=num_colours + 2) / len(found)).tolist()


class NotEvaluation(ImageEvaluation):
    """Judge and scores of digits in any colour but one, under one preset."""

    def prepare(self) -> None:
        """Train the judge, or load it from the cache."""
        self._judge(seen_only=False)

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Shares and conformity for NOT requests, accuracies for plain requests of seen pairs, and distances."""
        judge = self._judge(seen_only=False)
        pairs = torch.cartesian_prod(*map(torch.arange, self.space.sizes))
        pairs = pairs.repeat(self.sizes.per_cell or max(1, round(self.sizes.per_split / len(pairs))), 1)
        generated = to_uint8(sampler(torch.stack([pairs[:, 0], excluding(pairs[:, 1])], 1), stream="all"))
        real = self._real(self._allowed(pairs, "ceiling all"), "ceiling all")
        judged = [judge.predict(images.to(self.ctx.device)).cpu() for images in (generated, real)]
        scores = [self._variation(judged, pairs), *self._conformity(judged, pairs)]
        scores += self._distances("all", generated, judge)
        seen = self._conditions("seen")
        images = to_uint8(sampler(seen, stream="seen"))
        scores += self._accuracies("seen", "", judge, seen, images, self._real(seen, "ceiling seen"))
        return Evaluation(tuple(scores), {"samples": grid(real, generated)})

    def _allowed(self, pairs: Tensor, purpose: str) -> Tensor:
        """Conditions drawn from the exact distribution: the digit, and a colour uniform among the others, (N, 2)."""
        count = self.space.sizes[1]
        steps = torch.randint(1, count, (len(pairs),), generator=self.ctx.generator(f"colours {purpose}"))
        return torch.stack([pairs[:, 0], (pairs[:, 1] + steps) % count], 1)

    def _variation(self, judged: list[Tensor], pairs: Tensor) -> Score:
        """Total variation between the judged and the exact shares."""
        count = self.space.sizes[1]
        exact = [0.0, 0.0, *[1 / count] * count]
        value, floor = (total_variation(outcomes(found, pairs[:, 0], pairs[:, 1], count), exact) for found in judged)
        return self.ctx.metrics["total_variation"].score("all", value, n=len(pairs), floor=floor, primary=True)

    def _conformity(self, judged: list[Tensor], pairs: Tensor) -> list[Score]:
        """Accuracy of digit and colour together, by cell, and of each: the digit is right, the colour is not the excluded one."""
        digit, colour = zip(*((found[:, 0] == pairs[:, 0], found[:, 1] != pairs[:, 1]) for found in judged), strict=True)
        right, ceiling = (one & other for one, other in zip(digit, colour, strict=True))
        joint = self._score("all_accuracy", "accuracy", "all", right, ceiling)
        return [
            joint.model_copy(update={"by_cell": count_cells(pairs, right)}),
            self._score("all_accuracy_digit", "accuracy", "all", *digit),
            self._score("all_accuracy_colour", "accuracy", "all", *colour),
        ]

    def _drawn(self, split: str, count: int, purpose: str) -> Tensor:
        """Conditions drawn evenly over all pairs: the distribution of NOT requests averaged over the excluded colours."""
        return self.space.uniform(count, self.ctx.generator(f"{purpose} {split}"))
