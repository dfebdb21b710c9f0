"""Load and examine a record's model; `compbench diagnose` does this in a separate process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from compbench.diagnose.diagnosis import diagnose
from compbench.diagnose.figures import figures
from compbench.diagnose.summary import Explained, Factorised, Layer, Summary
from compbench.diagnose.trained_model import Derivative, load_subject
from compbench.store.records import read_record
from compbench.system.files import write_atomically


def summarised(
    progress: object, *, folder: str, name: str, home: str, plugins: Sequence[str], factors: str, derivative: Derivative
) -> Iterator[Summary]:
    """Examine the model of a record and draw its figures; this runs in a separate process.

    Args:
        folder: folder with the record's file and its weights; figures and processed data are written there.
        name: name of the record.
        home: home with the official data.
        plugins: files of methods that are not installed.
        factors: names of two factors, "x,y"; "" takes the factors of the holdout.
        derivative: as for `Subject.inside`.
    """
    # Torch's forward mode compiles its decompositions with `torch.jit.script`, and newer releases of torch warn about that.
    warnings.filterwarnings("ignore", message=r"`torch\.jit\.script` is deprecated", category=FutureWarning)
    place = Path(folder)
    # If matplotlib's list of fonts does not exist yet, matplotlib writes it; release 3.8 stops if the sandbox forbids that.
    os.environ.setdefault("MPLCONFIGDIR", folder)
    record = read_record(place / f"{name}.json")
    subject = load_subject(record, place, home=Path(home), plugins=tuple(map(Path, plugins)), factors=factors)
    found = diagnose(subject, derivative=derivative)
    names = [subject.problem.space.names[position] for position in subject.factors]
    drawn = figures(found, names, subject.heldout)
    for title, content in drawn.items():
        write_atomically(place / f"{title}.png", content)
    scores = {key: Explained(superposition=each.superposition, **each.alignments._asdict()) for key, each in found.scores.items()}
    layers = (Layer(**{**one._asdict(), "factorisation": Factorised(**one.factorisation._asdict())}) for one in found.layers)
    yield Summary(
        derivative=found.derivative,
        scores=scores,
        layers=tuple(layers),
        why_no_layers=found.why_no_layers,
        effective_rank={factor: tuple(ranks.tolist()) for factor, ranks in found.ranks.items()},
        factors=(names[0], names[1]),
        has_truth=found.truth is not None,
        figures=tuple(drawn),
    )
