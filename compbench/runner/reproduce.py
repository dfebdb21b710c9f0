"""Run a record's spec again and compare the scores; if they agree, the record's level becomes `reproduced`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record, RunRequest, RunSpec
from compbench.registry.checkout import registry_of
from compbench.registry.meaning import Code, differing_from
from compbench.registry.registry import Registry
from compbench.registry.resolve import COMPBENCH
from compbench.runner.audit import Listener
from compbench.runner.one_run import run
from compbench.store.judges import IN_FEATURES, OTHER, can_be_one
from compbench.store.records import read_result
from compbench.store.verification import RELATIVE, ScorePair, tolerated
from compbench.system.devices import num_cores
from compbench.system.errors import CompbenchError
from compbench.system.home import Home, scratch_folder


class Reproduction(NamedTuple):
    """Two records of one spec.

    Attributes:
        compared: every score that both records have, in the same unit.
        missing: the other scores of the first record, with the reason.
    """

    record: Record
    again: Record
    compared: tuple[ScorePair, ...]
    missing: Mapping[str, str]

    @property
    def differing(self) -> tuple[str, ...]:
        """Parts of the code that differ from today's (`meaning.differing`)."""
        return differing_from(self.record, Code(self.again.spec.code, self.again.code.parts))

    @property
    def same_shots(self) -> bool:
        """Whether both were trained on shots of the same conditions, or on none; pictures are not compared (last bits differ)."""
        one, other = (
            shots and (shots.per_cell, shots.num_cells, [name.partition("#")[0] for name in shots.examples])
            for shots in (self.record.shots, self.again.shots)
        )
        return one == other

    @property
    def agrees(self) -> bool:
        primary = {score.name for score in self.record.scores if score.primary}
        return (
            self.again.status == "ok"
            and self.same_shots
            and primary <= {entry.name for entry in self.compared}
            and all(entry.agrees for entry in self.compared)
        )


def reproduce(
    path: Path,
    home: Home,
    *,
    tolerance: float = RELATIVE,
    threads: int = 0,
    plugins: Sequence[Path] = (),
    listener: Listener = lambda *facts: None,
) -> Reproduction:
    """Run the spec of a record file with today's code in fresh processes and an empty home, and compare.

    The official data in `home` is used; judges, references and fitted models are made again.  Without `threads`, the run uses
    the record's number of threads, if this machine has as many.  `plugins` are files of methods that are not installed.

    Raises:
        CompbenchError: the file is not a record of a successful run, or its spec cannot be run here.
        Unwritable: nothing can be written below `home`.
    """
    record = read_result(path)
    if record.samples_only:
        raise CompbenchError(f"{path.name} holds samples only: compbench saw no training, so there is nothing to run again.")
    registry, files = registry_of(record, plugins), tuple(str(file.resolve()) for file in plugins)
    with scratch_folder(home.root) as empty:
        if home.data.is_dir():
            (empty / "data").symlink_to(home.data.resolve(), target_is_directory=True)
        threads = threads or min(record.environment.threads, num_cores())
        request = request_of(record.spec, empty, threads).model_copy(update={"plugins": files})
        again = run(request, expected=record.spec, listener=listener).record
    return compare(record, again, margin=lambda metric: margin_of(registry, metric), tolerance=tolerance)


def request_of(spec: RunSpec, home: Path, threads: int = 0) -> RunRequest:
    """The request that resolves to a spec, with every setting given explicitly, and the device class by its kind."""
    same = {name: getattr(spec, name) for name in ("task", "method", "preset", "seed", "precision", "source")}
    device = "cpu" if spec.device_class == "cpu" else "cuda"
    known = (entry for entry in Registry().entries("metrics") if entry.distribution != COMPBENCH)
    theirs = tuple(entry.name for entry in known if entry.name in spec.metrics)
    return RunRequest(**same, overrides=spec.overrides(), device=device, threads=threads, metrics=theirs, home=str(home))


def compare(record: Record, again: Record, *, margin: Callable[[str], float], tolerance: float) -> Reproduction:
    """Compare the scores of two records; a score without a value in the first needs none in the second.

    Distances in a judge's features are not compared if training the judge again gave another network, as happens on another type
    of processor.
    """
    found = {(score.name, score.metric_version): score.value for score in again.scores}
    one_judge = can_be_one(record, again)
    compared, missing = [], {}
    for score in record.scores:
        if score.value is None:
            continue
        if (other := found.get((score.name, score.metric_version))) is None:
            missing[score.name] = "not available here"
        elif score.metric in IN_FEATURES and not one_judge:
            missing[score.name] = f"{OTHER}, {score.value:.6g} and now {other:.6g}"
        else:
            allowed = tolerated(score, margin(score.metric), tolerance)
            compared.append(ScorePair(name=score.name, submitted=score.value, found=other, tolerance=allowed))
    return Reproduction(record, again, tuple(compared), missing)


def margin_of(registry: Registry, metric: str) -> float:
    """The margin of a metric; 0 if the metric is not installed."""
    return registry.load("metrics", metric).margin if metric in registry.names("metrics") else 0.0
