"""Captions of a run's pictures, because the pictures of samples themselves have no labels.

Only the pictures of our own tasks have captions: what a task of another package draws is not known here.
"""

from __future__ import annotations

from compbench.api.schemas import Record
from compbench.registry.declared import declared
from compbench.registry.registry import Registry
from compbench.store.cell_picture import FILM, HELDOUT

OWN = "compbench"
"""The distribution of our own tasks."""
PAIRS = "rows in pairs: real samples above, generated samples of the same combinations below"
ANSWERS = "answers: a green frame is valid, a red one breaks as many rules as stand below it"
SAMPLES = {
    "images": PAIRS,
    "drawings": PAIRS,
    "rooms": PAIRS,
    "bumps": PAIRS,
    "silos": PAIRS,
    "radiographs": PAIRS,
    "plane": "densities: real points above, generated ones below; the target, on the left, was never trained on",
    "planning": "executed plans from each source to each destination; a bold frame marks what was never trained on",
    "constraints": ANSWERS,
}
"""Captions of the picture `samples`, by family of the task."""
MODES = "generated points in the colour of the requested mode; a ring lies at 3 sigma around each mode, bold if held out"
OTHERS = {
    HELDOUT: "each held-out combination once: real above generated",
    FILM: "one held-out combination at a step of the training",
    "landscape": "error at each position; those within the outline are held out",
}
"""Captions of other pictures, by the start of their names."""


def caption(record: Record, artifact: str = "samples.png") -> str:
    """What a picture of a record shows, in one line; "" if it is not known.

    Args:
        record: a run.
        artifact: file name of one of its pictures, with or without the record's name.
    """
    part = artifact.removeprefix(f"{record.name}.").removesuffix(".png")
    own = [entry for entry in Registry().entries("tasks") if (entry.name, entry.distribution) == (record.spec.task, OWN)]
    if not own:
        return ""
    if part == "samples":
        return MODES if record.spec.task.startswith("blobs-") else SAMPLES.get(declared(own[0]).family, "")
    return OTHERS.get(part.partition("-")[0], "")
