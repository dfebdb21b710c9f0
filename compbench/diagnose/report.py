"""Figures, numbers and one page of a diagnosis, beside the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compbench.diagnose.diagnosis import Diagnosis
from compbench.diagnose.figures import figures
from compbench.diagnose.page import page
from compbench.diagnose.subject import Subject
from compbench.files import write_atomically


def write_report(subject: Subject, found: Diagnosis, folder: Path) -> Path:
    """Figures as PNG, all numbers as JSON, and one page; returns the page."""
    names = [subject.problem.space.names[position] for position in subject.factors]
    drawn = figures(found, names, subject.heldout)
    for name, content in drawn.items():
        write_atomically(folder / f"{name}.png", content)
    facts = numbers(found)
    write_atomically(folder / "diagnostics.json", (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    write_atomically(folder / "index.html", page(subject.record, names, found, list(drawn)).encode())
    return folder / "index.html"


def numbers(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON."""
    return {
        "derivative": found.derivative,
        "scores": {
            name: {"superposition": each.superposition, **each.alignments._asdict()} for name, each in found.scores.items()
        },
        "layers": [{**layer._asdict(), "factorisation": layer.factorisation._asdict()} for layer in found.layers],
        "effective_rank": {name: ranks.tolist() for name, ranks in found.ranks.items()},
    }
