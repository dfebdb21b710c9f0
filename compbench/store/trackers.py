"""Export records to trackers: TensorBoard, Weights & Biases, and folders in the format of the Hugging Face Hub.

Exports are made from records after the runs: no code of a tracker runs next to a method or in its sandbox.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.store.format import clean
from compbench.store.records import Store
from compbench.store.table import export
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import remove_tree, write_atomically
from compbench.system.home import Home

NEEDS = "needs {package}, which is not installed: pip install 'compbench[trackers]'."
WEIGHTS = "model.safetensors"


class Point(NamedTuple):
    """One number of a run, at a step of its own count; a single number has step 0."""

    name: str
    value: float
    step: int = 0


def points(record: Record) -> Iterator[Point]:
    """What a record measured: scores with ceiling and floor, rates, stages, curves of loss and throughput, and notes.

    Curves are against steps of the fit; so are lists of notes against their places.
    """
    for score in record.scores:
        for part, value in (("", score.value), ("/ceiling", score.ceiling), ("/floor", score.floor)):
            if value is not None:
                yield Point(f"score/{score.name}{part}", value)
    for name, value in record.profile.model_dump().items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Point(f"cost/{name}", float(value))
    for stage in record.profile.stages:
        yield Point(f"seconds/{stage.name}", stage.seconds)
    for curve in record.losses:
        for step, loss, rate in zip(curve.steps, curve.loss, curve.examples_per_second, strict=True):
            yield Point(f"loss/{curve.name}", loss, step)
            yield Point(f"examples_per_second/{curve.name}", rate, step)
    for name, noted in record.notes.items():
        values = noted if isinstance(noted, tuple) else (noted,)
        yield from (Point(f"notes/{name}", value, step) for step, value in enumerate(values))


def config(record: Record) -> dict[str, str | int | float | bool]:
    """What was run, flat: task, method, seed, preset, and each setting of method, budget and task."""
    spec = record.spec
    flat: dict[str, object] = {name: getattr(spec, name) for name in ("task", "method", "preset", "seed", "precision", "source")}
    flat |= {f"settings.{name}": value for name, value in spec.settings.items()}
    flat |= {f"budget.{name}": value for name, value in spec.budget.model_dump().items()}
    flat |= {f"task.{name}": value for name, value in spec.task_settings.items()}
    flat |= {"status": record.status, "identity": record.identity, "device": spec.device_class}
    return {name: value if isinstance(value, str | int | float | bool) else json.dumps(value) for name, value in flat.items()}


def to_tensorboard(records: Sequence[Record], folder: Path) -> int:
    """Write each record as a run below `folder`, with scalars and (tab HPARAMS) settings; return the number of runs.

    Raises:
        CompbenchError: no TensorBoard, or a folder that has some of these runs already.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import summary_v2 as hparams
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise CompbenchError("--tensorboard " + NEEDS.format(package="tensorboard")) from error
    there = [record.name for record in records if (folder / record.name).exists()]
    if there:
        raise CompbenchError(f"{folder} already contains {there[0]}: name another folder.")
    for record in records:
        writer = EventFileWriter(str(folder / record.name))
        moment = _moment(record)
        for point in points(record):
            value = Summary.Value(tag=point.name, simple_value=point.value)
            writer.add_event(Event(wall_time=moment, step=point.step, summary=Summary(value=[value])))
        writer.add_event(Event(wall_time=moment, summary=hparams.hparams_pb(config(record), trial_id=record.name)))
        writer.close()
    return len(records)


def to_wandb(records: Sequence[Record], project: str) -> int:
    """Write each record as a run of a Weights & Biases project, under an identifier fixed by the record; return their number.

    Raises:
        CompbenchError: no wandb.
    """
    try:
        import wandb
    except ImportError as error:
        raise CompbenchError("--wandb " + NEEDS.format(package="wandb")) from error
    for record in records:
        identifier = f"{record.identity[:16]}-{record.attempt}"
        run = wandb.init(
            project=project, id=identifier, name=record.name, config=config(record), group=record.spec.task, resume="allow"
        )
        by_step: dict[int, dict[str, float]] = {}
        for point in points(record):
            by_step.setdefault(point.step, {})[point.name] = point.value
        for step, values in sorted(by_step.items()):
            run.log(values, step=step)
        run.finish(exit_code=0 if record.status == "ok" else 1)
    return len(records)


def to_hub(records: Sequence[Record], folder: Path, *, store: Store, home: Home) -> int:
    """Write a folder in the Hugging Face Hub's format of data sets and models; nothing is uploaded.

        FOLDER/records/   README.md (data card), records.parquet, and the records with their pictures
        FOLDER/models/NAME/   README.md (model card), record.json, model.safetensors

    Each finished run whose weights are on this machine gives a model.

    Returns:
        number of models.

    Raises:
        CompbenchError: the folder is there already or cannot be made, or there is no pyarrow.
    """
    if folder.exists():
        raise CompbenchError(f"{folder} exists already: name a new folder.")
    data = folder / "records"
    try:
        data.mkdir(parents=True)
    except OSError as error:
        raise Unwritable.of(data, error) from error
    try:
        export(records, data / "records.parquet")
    except CompbenchError:  # a second try is no second folder
        remove_tree(folder)
        raise
    write_atomically(data / "README.md", data_card(records).encode())
    models = 0
    for record in records:
        path = store.folder / f"{record.name}.json"
        for name in [path.name, *(artifact.name for artifact in record.artifacts)]:
            if (store.folder / name).is_file():
                shutil.copyfile(store.folder / name, data / name)
        weights = home.runs / record.identity / WEIGHTS
        if record.status == "ok" and weights.is_file():
            place = folder / "models" / record.name
            place.mkdir(parents=True)
            shutil.copyfile(weights, place / WEIGHTS)
            shutil.copyfile(path, place / "record.json")
            write_atomically(place / "README.md", model_card(record).encode())
            models += 1
    return models


def data_card(records: Sequence[Record]) -> str:
    """The README of a data set of records."""
    tasks, methods = sorted({r.spec.task for r in records}), sorted({r.spec.method for r in records})
    return f"""---
license: mit
pretty_name: compbench records
tags: [compositional-generation, benchmark, compbench]
configs:
- config_name: default
  data_files: records.parquet
---

# Records of compbench

{len(records)} runs of {len(methods)} methods on {len(tasks)} tasks, failed ones included.
`records.parquet` has one row per score; each JSON file is one run, as it was written.

Tasks: {", ".join(tasks)}. Methods: {", ".join(methods)}.

    pandas.read_parquet("records.parquet")
    compbench board --records . --output board
"""


def model_card(record: Record) -> str:
    """The README of a model: what it is, how it was trained, and its scores as the Hub's `model-index` has them."""
    spec = record.spec
    metrics = [
        f"    - type: {score.metric}\n      name: {score.name}\n      value: {score.value!r}"
        for score in record.scores
        if score.value is not None and math.isfinite(score.value)
    ]
    facts = "\n".join(f"| {name} | {clean(str(value))} |" for name, value in config(record).items())
    return f"""---
license: mit
library_name: compbench
tags: [compositional-generation, compbench, {spec.task}, {spec.method}]
model-index:
- name: {spec.method}
  results:
  - task:
      type: compositional-generation
      name: {spec.task}
    dataset:
      type: {spec.task}
      name: {spec.task} ({spec.source}, {spec.fingerprint})
    metrics:
{chr(10).join(metrics) or "    []"}
---

# {spec.method} on {spec.task}

Trained and scored by compbench (`record.json`; preset {spec.preset}, seed {spec.seed}).
The scores cover seen and held-out combinations.

    model = compbench.load("record.json")      # with model.safetensors in runs/{record.identity[:12]}... of COMPBENCH_HOME

| | |
| --- | --- |
{facts}
"""


def _moment(record: Record) -> float:
    """When the run began, in seconds of the epoch; 0 if its record does not say."""
    return datetime.fromisoformat(record.started).timestamp() if record.started else 0.0
