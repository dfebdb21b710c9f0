"""Scores of composed constraints: the share of valid answers, the share of distinct valid answers, and the mean violations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy
import torch
from torch import Tensor

from compbench.api.interfaces import Evaluation, Sampler, Score, TaskContext
from compbench.data.constraint_laws import BlockOracle, laws_of, signs_of, violations
from compbench.data.puzzles import NUM_COLOURS, Puzzle, num_answers

if TYPE_CHECKING:
    from PIL import ImageDraw

NUM_ANSWERS = {"smoke": 40, "quick": 200, "standard": 200, "paper": 500}
"""Number of answers requested for all constraints, by preset; for each group alone, a quarter of it."""
MOST_CHANGES = 200
"""Largest number of changes that greedy repair makes to one answer."""
ENOUGH = 100
"""If there are this many valid answers for each one drawn, almost none is drawn twice."""
NUM_SHOWN, SIDE = 8, 132
COLOURS = ((214, 69, 65), (58, 123, 213), (64, 160, 92), (170, 170, 170))
"""Colours of the vertices; the last is for a vertex with no colour, or with two."""


def evaluate(sampler: Sampler, puzzle: Puzzle, kind: str, ctx: TaskContext) -> Evaluation:
    """Request answers to all constraints at once, and to each group alone; check them."""
    size, count = len(puzzle.groups), NUM_ANSWERS[ctx.preset]
    laws = laws_of(puzzle)
    base, *groups = laws.values()
    answers = signs_of(sampler(torch.ones(count, size, dtype=torch.long), stream="heldout"))
    broken = violations([base, *groups], answers)
    valid = answers[broken == 0]
    oracle, every = BlockOracle(laws, torch.device("cpu")), (1,) * size
    greedy = oracle.repaired(every, count, MOST_CHANGES, ctx.generator("greedy repair"))
    repaired = (violations([base, *groups], greedy) == 0).double().mean().item()
    most_unique = unique_ceiling(puzzle, count)
    scores = [
        _score("heldout_validity", "validity", "heldout", len(valid) / count, count, ceiling=1.0, primary=True),
        _score("heldout_unique", "unique", "heldout", len(valid.unique(dim=0)) / count, count, ceiling=most_unique),
        _score("heldout_violations", "violations", "heldout", broken.double().mean().item(), count, direction="lower", floor=0.0),
        _score("heldout_greedy_repair", "greedy_repair", "heldout", repaired, count, ceiling=1.0),
    ]
    shares = []
    for number, law in enumerate(groups):
        asked = torch.zeros(max(count // 4, 2), size, dtype=torch.long)
        asked[:, number] = 1
        signs = signs_of(sampler(asked, stream=f"seen {number}"))
        shares.append((law.violations(signs) == 0).double().mean().item())
    seen = sum(shares) / size
    scores.append(_score("seen_validity", "validity", "seen", seen, size * max(count // 4, 2), ceiling=1.0))
    return Evaluation(tuple(scores), {"samples": pictures(answers[:NUM_SHOWN], broken[:NUM_SHOWN], puzzle, kind)})


def unique_ceiling(puzzle: Puzzle, count: int) -> float | None:
    """Expected share of distinct answers among `count` answers drawn uniformly from all S valid ones.

        S (1 - (1 - 1 / S)^count) / count

    S is counted up to `ENOUGH` times `count`, above which the share is over 0.99; None if S cannot be counted in time.
    """
    answers = num_answers(puzzle, ENOUGH * count)
    return None if answers is None else min(1.0, -answers * math.expm1(count * math.log1p(-1 / max(answers, 2))) / count)


def _score(name: str, metric: str, split: str, value: float, n: int, *, direction: str = "higher", **known: object) -> Score:
    facts = {"name": name, "metric": metric, "split": split, "value": value, "n": n, "direction": direction}
    return Score.model_validate({**facts, **known})


def pictures(answers: Tensor, broken: Tensor, puzzle: Puzzle, kind: str) -> numpy.ndarray:
    """Answers side by side, framed in green where they are valid and in red with their number of violations, uint8 (H, W, 3)."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (SIDE * len(answers), SIDE + 14), "white")
    draw = ImageDraw.Draw(image)
    for number, (answer, count) in enumerate(zip(answers, broken.tolist(), strict=True)):
        left = number * SIDE
        {"queens": _board, "colours": _graph, "clauses": _bits}[kind](draw, left, answer, puzzle)
        colour = (40, 140, 70) if not count else (200, 60, 60)
        draw.rectangle((left + 1, 1, left + SIDE - 3, SIDE - 3), outline=colour, width=2)
        draw.text((left + 6, SIDE), "valid" if not count else f"{int(count)} violated", fill=colour)
    return numpy.asarray(image)


def _board(draw: ImageDraw.ImageDraw, left: int, answer: Tensor, puzzle: Puzzle) -> None:
    size = math.isqrt(len(answer))
    step = (SIDE - 12) / size
    for place, sign in enumerate(answer.tolist()):
        row, column = divmod(place, size)
        box = (left + 6 + column * step, 6 + row * step, left + 6 + (column + 1) * step, 6 + (row + 1) * step)
        draw.rectangle(box, fill=(238, 232, 213) if (row + column) % 2 else (205, 196, 168))
        if sign > 0:
            draw.ellipse((box[0] + 2, box[1] + 2, box[2] - 2, box[3] - 2), fill=(40, 40, 60))


def _graph(draw: ImageDraw.ImageDraw, left: int, answer: Tensor, puzzle: Puzzle) -> None:
    hot = answer.view(-1, NUM_COLOURS) > 0
    chosen = torch.where(hot.sum(1) == 1, hot.int().argmax(1), NUM_COLOURS).tolist()
    centre, radius = SIDE / 2, SIDE / 2 - 14
    turns = [2 * math.pi * vertex / len(chosen) for vertex in range(len(chosen))]
    places = [(left + centre + radius * math.cos(turn), centre + radius * math.sin(turn)) for turn in turns]
    for one, other in puzzle.edges:
        wrong = chosen[one] == chosen[other]
        draw.line((*places[one], *places[other]), fill=(200, 60, 60) if wrong else (190, 190, 190), width=2 if wrong else 1)
    for (x, y), colour in zip(places, chosen, strict=True):
        draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill=COLOURS[colour])


def _bits(draw: ImageDraw.ImageDraw, left: int, answer: Tensor, puzzle: Puzzle) -> None:
    side = math.ceil(math.sqrt(len(answer)))
    step = (SIDE - 12) / side
    for place, sign in enumerate(answer.tolist()):
        row, column = divmod(place, side)
        box = (left + 6 + column * step, 6 + row * step, left + 4 + (column + 1) * step, 4 + (row + 1) * step)
        draw.rectangle(box, fill=(40, 40, 60) if sign > 0 else (225, 225, 225))
