"""The questions that the board's first screen answers: each is one task, or a few tasks that ask the same thing.

A task of the suite that no question names gets its own question, so a third-party task is answered too.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PICTURES = Path(__file__).with_name("questions")
"""Folder of the questions' pictures; `experiments/question_pictures.py` draws them."""


class Asked(NamedTuple):
    """A question.

    Attributes:
        title: a few words.
        about: what was seen in training, and what is requested.
        tasks: name of each task with a few words; a single task needs no words.
        picture: stem of its picture's file; "" without one.
    """

    title: str
    about: str
    tasks: tuple[tuple[str, str], ...]
    picture: str = ""


QUESTIONS = (
    Asked(
        "Emoji: skin tones",
        "A role that is new to a skin tone or person.",
        (
            ("emoji-light", "¼ unseen"),
            ("emoji-medium", "½ unseen"),
            ("emoji-heavy", "¾ unseen"),
            ("emoji-person", "role and person"),
        ),
        "emoji",
    ),
    Asked(
        "Shapes: ¼ of pairs unseen",
        "A shape in a hue that it never had.",
        (("shapes3d-light", ""),),
        "shapes-quarter",
    ),
    Asked(
        "Shapes: ½ unseen",
        "A shape in a hue that it never had.",
        (("shapes3d-medium", ""),),
        "shapes-half",
    ),
    Asked(
        "Shapes: ¾ unseen",
        "A shape in a hue that it never had.",
        (("shapes3d-heavy", ""),),
        "shapes-three-quarters",
    ),
    Asked(
        "Letters: letter and typeface",
        "A letter in a typeface that it never had.",
        (("glyph-light", "¼ of pairs unseen"), ("glyph-heavy", "¾ unseen, of four factors")),
        "letters",
    ),
    Asked("Sprites", "A shape in an orientation new to it.", (("dsprites-light", ""),), "sprites"),
    Asked(
        "Plane: target near",
        "Two changes of a cloud of points at once, whose result stays within the training data.",
        (("gauss2d-fact-id", "one axis each"), ("gauss2d-nonfact-id", "both axes"), ("gmm-id", "clusters")),
        "plane-near",
    ),
    Asked(
        "Plane: target far",
        "Two changes of a cloud of points at once, whose result leaves the training data.",
        (("gauss2d-fact-ood", "one axis each"), ("gauss2d-nonfact-ood", "both axes"), ("gmm-ood", "clusters")),
        "plane-far",
    ),
    Asked(
        "Moving bump",
        "A bump at a new place.",
        (("bump-center", "centre unseen"), ("bump-corner", "corner unseen")),
        "bump",
    ),
    Asked(
        "Digits in ten silos",
        "A digit in a colour that it has at none of ten sites, which keep their images.",
        (("cmnist-noniid", ""),),
        "digits",
    ),
    Asked("Points in two silos", "A corner that both sites lack, which keep their points.", (("blobs-noniid", ""),), "blobs"),
    Asked(
        "Plans in two silos",
        "A diagonal move that both sites lack, which keep their robot data.",
        (("planning-noniid", ""),),
        "plans",
    ),
    Asked(
        "Puzzles: all rules at once",
        "Answers that keep all of a puzzle's rules, each learnt alone.",
        (("queens-8", "8 queens"), ("queens-10", "10 queens"), ("colour-er", "graph colouring"), ("sat-20", "clauses")),
        "queens",
    ),
)
"""The questions, in the order of the page."""

LABELS = {
    "¼ unseen": "a quarter of the pairs is held out",
    "½ unseen": "half of the pairs is held out",
    "¾ unseen": "three quarters of the pairs are held out",
    "¼ of pairs unseen": "a quarter of the pairs of a letter and a typeface is held out",
    "¾ unseen, of four factors": "three quarters of the combinations of letter, typeface, weight and slant are held out",
    "8 queens": "eight queens on a chessboard, of which none attacks another",
    "10 queens": "ten queens on a board of ten by ten squares, of which none attacks another",
    "graph colouring": "three colours for the 20 vertices of a random graph, such that neighbours differ",
    "clauses": "20 true or false variables that satisfy all clauses of a random formula",
    "role and person": "pairs of a role and a person are held out, in every skin tone",
    "one axis each": "the changes are independent: each alters the spread of one coordinate and leaves the other alone",
    "both axes": "each change alters the spread of both coordinates, so they interact",
    "clusters": "the cloud has several clusters, and each change keeps some of them",
    "centre unseen": "the middle of the picture is held out",
    "corner unseen": "a corner of the picture is held out",
}
"""Explanations of the few words that name a task within a question."""
