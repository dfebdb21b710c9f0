"""Export records in the formats of the Hugging Face Hub: data sets, models, and community evaluations.

The formats are those of https://huggingface.co/docs/hub/model-cards and https://huggingface.co/docs/hub/eval-results.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Container, Sequence
from pathlib import Path

from compbench.api.interfaces import Score
from compbench.api.schemas import Record
from compbench.store.format import clean
from compbench.store.records import Store
from compbench.store.table import check_destination, export
from compbench.store.trackers import config
from compbench.system.errors import CompbenchError, Unwritable
from compbench.system.files import write_atomically
from compbench.system.home import Home

WEIGHTS, TABLE = "model.safetensors", "records.parquet"


def to_hub(
    records: Sequence[Record],
    folder: Path,
    *,
    store: Store,
    home: Home,
    benchmark: str = "",
    comparable: Container[str] = (),
) -> int:
    """Write a folder in the Hugging Face Hub's format of data sets and models; nothing is uploaded.

        FOLDER/records/   README.md (data card), records.parquet, and the records with their pictures
        FOLDER/models/NAME/   README.md (model card), record.json, model.safetensors

    Each finished run whose weights are on this machine gives a model.

    Args:
        store: the store with the pictures.
        home: the home with the weights.
        benchmark: OWNER/NAME of the Hub's data set that `FOLDER/records` will be.  With it the folder has the files of the Hub's
            community evaluations: `records/eval.yaml` with a task for each board, and `models/NAME/.eval_results/compbench.yaml`.
        comparable: names of the records that such an evaluation may compare.

    Returns:
        number of models.

    Raises:
        CompbenchError: the folder exists already or cannot be made, or pyarrow is not installed.
    """
    check_folder(folder)
    data = folder / "records"
    try:
        data.mkdir(parents=True)
    except OSError as error:
        raise Unwritable.of(data, error) from error
    export(records, data / TABLE)
    write_atomically(data / "README.md", data_card(records).encode())
    ranked = [record for record in records if benchmark and record.name in comparable and _result(record) is not None]
    if ranked:
        write_atomically(data / "eval.yaml", evaluations(ranked).encode())
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
            if record in ranked:
                (place / ".eval_results").mkdir()
                write_atomically(place / ".eval_results" / "compbench.yaml", evaluation_result(record, benchmark).encode())
            models += 1
    return models


def check_folder(folder: Path) -> None:
    """Raise CompbenchError if `to_hub` cannot write this folder: it exists already, or pyarrow is not installed."""
    if folder.exists():
        raise CompbenchError(f"{folder} exists already: name a new folder.")
    check_destination(folder / TABLE)


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


def evaluations(records: Sequence[Record]) -> str:
    """`eval.yaml` of a benchmark's data set: a task for each task, preset and data source, so that no board mixes any of them."""
    tasks = "".join(
        f"  - id: {name}\n    config: default\n    split: train\n" for name in sorted({task_id(one) for one in records})
    )
    return f"""name: compbench
description: Compositional generation; a model is asked for combinations of factors that it never saw.
evaluation_framework: compbench

tasks:
{tasks}"""


def evaluation_result(record: Record, benchmark: str) -> str:
    """A file of a model's `.eval_results`: the ranked score.  The Hub's format has no field for direction: the notes say it."""
    primary = _result(record)
    assert primary is not None
    notes = f"{primary.name}, {primary.direction} is better; seed {record.spec.seed}, n = {primary.n}"
    return f"""- dataset:
    id: {json.dumps(benchmark)}
    task_id: {task_id(record)}
  value: {primary.value!r}
  date: {json.dumps(record.started)}
  evaluation_framework: compbench
  notes: {json.dumps(notes)}
"""


def task_id(record: Record) -> str:
    """Name of the evaluation that a record belongs to."""
    return f"{record.spec.task}-{record.spec.preset}-{record.spec.source}"


def _result(record: Record) -> Score | None:
    """The ranked score of a finished run; None if it has none."""
    primary = record.primary
    return primary if record.status == "ok" and primary is not None and primary.value is not None else None
