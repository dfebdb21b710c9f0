"""Export records to trackers: TensorBoard, and Weights & Biases.

Exports are made from records after the runs: no code of a tracker runs next to a method or in its sandbox.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.store.counts import PREFIX
from compbench.store.records import Store
from compbench.system.errors import CompbenchError

NEEDS = "needs {package}, which is not installed: pip install 'compbench[trackers]'."


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
"""First bytes of a PNG; its width and height follow, four bytes each."""
RGB = 3


class Point(NamedTuple):
    """One number of a run at a step of its series; a single number has step 0."""

    name: str
    value: float
    step: int = 0


def points(record: Record) -> Iterator[Point]:
    """The measurements of a record: scores with ceiling and floor, rates, stages, curves of loss and throughput, and notes.

    The x axis of a curve is the step of the fit; scores during training end with the final score.  A list of notes is plotted
    against positions in the list.
    """
    for score in record.scores:
        for part, value in (("", score.value), ("/ceiling", score.ceiling), ("/floor", score.floor)):
            if value is not None:
                yield Point(f"score/{score.name}{part}", value)
    for name in sorted({name for point in record.curve for name in point.scores}):
        yield from (Point(f"curve/{name}", point.scores[name], point.step) for point in record.curve if name in point.scores)
        end = record.score(name)
        if end is not None and end.value is not None:
            yield Point(f"curve/{name}", end.value, record.spec.budget.train_steps)
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
        tag = f"counted/{name.removeprefix(PREFIX)}" if name.startswith(PREFIX) else f"notes/{name}"
        yield from (Point(tag, value, step) for step, value in enumerate(values))


def config(record: Record) -> dict[str, str | int | float | bool]:
    """What was run, flat: task, method, seed, preset, and each setting of method, budget and task."""
    spec = record.spec
    flat: dict[str, object] = {name: getattr(spec, name) for name in ("task", "method", "preset", "seed", "precision", "source")}
    flat |= {f"settings.{name}": value for name, value in spec.settings.items()}
    flat |= {f"budget.{name}": value for name, value in spec.budget.model_dump().items()}
    flat |= {f"task.{name}": value for name, value in spec.task_settings.items()}
    flat |= {"status": record.status, "identity": record.identity, "device": spec.device_class}
    return {name: value if isinstance(value, str | int | float | bool) else json.dumps(value) for name, value in flat.items()}


def to_tensorboard(records: Sequence[Record], folder: Path, *, store: Store) -> int:
    """Write each record as a run below `folder`: scalars, its picture of samples, and (tab HPARAMS) its settings.

    Returns:
        number of runs.

    Raises:
        CompbenchError: TensorBoard is not installed, or the folder already has some of these runs.
    """
    check_tensorboard(records, folder)
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import summary_v2 as hparams
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for record in records:
        writer = EventFileWriter(str(folder / record.name))
        moment = _moment(record)
        for point in points(record):
            value = Summary.Value(tag=point.name, simple_value=point.value)
            writer.add_event(Event(wall_time=moment, step=point.step, summary=Summary(value=[value])))
        if (picture := store.picture(record)) is not None and picture.startswith(PNG):
            width, height = struct.unpack_from(">II", picture, len(PNG))
            image = Summary.Image(height=height, width=width, colorspace=RGB, encoded_image_string=picture)
            step = record.spec.budget.train_steps
            writer.add_event(
                Event(wall_time=moment, step=step, summary=Summary(value=[Summary.Value(tag="samples", image=image)]))
            )
        writer.add_event(Event(wall_time=moment, summary=hparams.hparams_pb(config(record), trial_id=record.name)))
        writer.close()
    return len(records)


def to_wandb(records: Sequence[Record], project: str) -> int:
    """Write each record as a run of a Weights & Biases project, under an identifier fixed by the record; return their number.

    Raises:
        CompbenchError: wandb is not installed.
    """
    check_wandb()
    import wandb

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


def check_tensorboard(records: Sequence[Record], folder: Path) -> None:
    """Raise CompbenchError if TensorBoard is not installed, or if the folder already has some of these runs."""
    try:
        from tensorboard.compat.proto import event_pb2  # noqa: F401
        from tensorboard.summary.writer import event_file_writer  # noqa: F401
    except ImportError as error:
        raise CompbenchError("--tensorboard " + NEEDS.format(package="tensorboard")) from error
    there = [record.name for record in records if (folder / record.name).exists()]
    if there:
        raise CompbenchError(f"{folder} already contains {there[0]}: name another folder.")


def check_wandb() -> None:
    """Raise CompbenchError if wandb is not installed."""
    try:
        import wandb  # noqa: F401
    except ImportError as error:
        raise CompbenchError("--wandb " + NEEDS.format(package="wandb")) from error


def _moment(record: Record) -> float:
    """Start of the run in seconds since the epoch; 0 if its record does not say."""
    return datetime.fromisoformat(record.started).timestamp() if record.started else 0.0
