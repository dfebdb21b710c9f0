"""Submit records: check them, and copy them into the folders of a pull request.

Everything is checked before anything is written, and existing files are never changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.registry.meaning import differing
from compbench.registry.registry import NOTEBOOK, Registry
from compbench.store import sealed, verification
from compbench.store.cell_picture import PNG
from compbench.store.format import MAX_RECORD_BYTES
from compbench.store.records import Store, read_artifact, read_record
from compbench.store.validate import check_costs, check_known, check_shots
from compbench.system.errors import CompbenchError
from compbench.system.files import read_limited, write_atomically

RESULTS = ("ok", "failed", "timeout", "oom")
"""Statuses that count as a result; a run that was killed or refused says nothing about its method."""


class Submission(NamedTuple):
    """One checked record with its files, and the parts of its code that differ today."""

    path: Path
    record: Record
    files: dict[str, bytes]
    differing: tuple[str, ...] = ()


class LaidOut(NamedTuple):
    """The result of a submission: the files written, and the files that existed already."""

    written: tuple[Path, ...]
    known: tuple[Path, ...]


def checked(path: Path, registry: Registry) -> Submission:
    """The record in a file, if it may be submitted.  Raises CompbenchError with the file's name, the reason and what to do."""
    try:
        files = {path.name: read_limited(path, MAX_RECORD_BYTES)}
        record = read_record(path)
        check_costs(record)
        check_known(record)
        sealed.check(record)
        check_shots(record)
        _check_run(record)
        _check_plugin(record, registry)
        _check_protocol(record, registry)
        files |= _artifacts(record, path.parent)
    except CompbenchError as error:
        raise CompbenchError(f"{path.name} {error}") from error
    return Submission(path, record, files, differing(record, registry))


def gathered(paths: Iterable[Path], registry: Registry) -> tuple[list[Submission], list[CompbenchError]]:
    """All attempts at some records' runs that may be submitted, and the reasons why other attempts may not.

    An attempt that may not be submitted (made before the plugin was committed, for example) is left out if another may.

    Raises:
        CompbenchError: a run has no attempt that may be submitted.
    """
    found: dict[str, list[Submission]] = {}
    refused: dict[str, list[CompbenchError]] = {}
    for path in with_other_attempts(paths):
        run = path.stem.rpartition(".")[0]  # a name ends with the number of its attempt
        try:
            found.setdefault(run, []).append(checked(path, registry))
        except CompbenchError as error:
            refused.setdefault(run, []).append(error)
    for run, errors in refused.items():
        if not found.get(run):
            raise errors[-1]
    return [one for own in found.values() for one in own], [error for errors in refused.values() for error in errors]


def with_other_attempts(paths: Iterable[Path]) -> list[Path]:
    """The paths, and all other attempts at the same runs next to them that are results: failures are published too."""
    found = set(paths)
    for path in list(found):
        with contextlib.suppress(CompbenchError):
            record = read_record(path)
            others = Store(path.parent).attempts(record.spec, record.identity)
            found.update(path.with_name(f"{one.name}.json") for one in others if one.status in RESULTS)
    return sorted(found)


def lay_out(
    submissions: Sequence[Submission], leaderboards: Path, *, training_data: verification.TrainingData, note: str = ""
) -> LaidOut:
    """Copy records and pictures to leaderboards/records, and declare their training data in leaderboards/levels.

    Raises CompbenchError: there is no such folder, or another record or declaration has that name; nothing is written then.
    """
    store, folder = leaderboards / "records", leaderboards / "levels"
    if not store.is_dir():
        raise CompbenchError(f"{leaderboards} has no folder 'records'; --to needs the repository's folder 'leaderboards'.")
    wanted = {store / name: content for one in submissions for name, content in one.files.items()}
    known = tuple(path for path in wanted if path.exists())
    for path in known:
        if path.read_bytes() != wanted[path]:
            raise CompbenchError(
                f"{path} exists already with other content, and records never change: someone ran the same spec before. "
                "To confirm that record, use `compbench reproduce`."
            )
    for one in submissions:
        verification.declaration(one.path, folder, training_data=training_data, note=note)
    for path, content in sorted(wanted.items(), key=lambda item: item[0].suffix == ".json"):  # a record comes after its pictures
        if path not in known:
            write_atomically(path, content)
    declared = [verification.declare(one.path, folder, training_data=training_data, note=note) for one in submissions]
    return LaidOut((*(path for path in wanted if path not in known), *declared), known)


def _check_run(record: Record) -> None:
    if record.status not in RESULTS:
        raise CompbenchError(f"belongs to a run that was {record.status}, which is not a result.")
    if record.in_process:
        raise CompbenchError("was run with --in-process, where nothing is protected; run it again without this option.")
    if record.environment.sandbox == "off":
        raise CompbenchError("was run with COMPBENCH_SANDBOX=off; run it again in the sandbox.")
    if record.status == "ok" and not any(score.primary and score.value is not None for score in record.scores):
        raise CompbenchError("went well, but has no primary score.")


def _check_plugin(record: Record, registry: Registry) -> None:
    """Check that others can get the method's code as it ran; the board says whether the code has changed since."""
    plugin, name = record.plugin, record.spec.method
    if record.samples_only and not plugin.distribution:
        return
    if plugin.distribution == NOTEBOOK:
        raise CompbenchError(f"belongs to a method from a notebook; make a plugin from it: compbench new {name}.")
    if not plugin.distribution or plugin.version == "file":
        if plugin.version == "file" and name in registry.names("methods"):
            raise CompbenchError("belongs to a method from a file (--plugin), which is installed now: run it again.")
        how = f"make a plugin of it (compbench new {name}), install that, and run it again"
        raise CompbenchError(f"belongs to a method from a file (--plugin); {how}.")
    if name not in registry.names("methods"):
        raise CompbenchError(f"belongs to method '{name}' of {plugin.distribution}, which is not installed here: install it.")
    entry = registry.entry("methods", name)
    if entry.problem:
        raise CompbenchError(f"belongs to method '{name}', which is broken here: {entry.problem}")
    if entry.distribution != plugin.distribution:
        raise CompbenchError(f"belongs to '{name}' from {plugin.distribution}; the installed one is from {entry.distribution}.")
    for what, checkout in ((plugin.distribution, record.code.plugin), ("compbench", record.code.compbench)):
        if checkout.clean is False:
            raise CompbenchError(
                f"was made by {what} with changes that are not committed: commit them and run it again with --force."
            )
    if record.has_meaning and not record.code.plugin.commit:
        raise CompbenchError(
            f"was made by {plugin.distribution}, whose code is not in a git repository, so others cannot get the same code: "
            "commit it to one, install it from there with `pip install -e`, and run it again with --force."
        )


def _check_protocol(record: Record, registry: Registry) -> None:
    """Check that the task and the metrics have today's versions; otherwise the scores do not belong on today's board."""
    spec = record.spec
    task = registry.load("tasks", spec.task)
    if spec.task_version != task.version:
        raise CompbenchError(f"has version {spec.task_version} of '{spec.task}', which is at {task.version} now; run it again.")
    for name, version in spec.metrics.items():
        if name in registry.names("metrics") and registry.load("metrics", name).version != version:
            raise CompbenchError(f"has version {version} of metric '{name}', which has another version now; run it again.")


def _artifacts(record: Record, folder: Path) -> dict[str, bytes]:
    files = {}
    for artifact in record.artifacts:
        try:
            content = read_artifact(folder, artifact)
        except CompbenchError as error:
            raise CompbenchError(f"names {artifact.name}, which {error}") from error
        if not artifact.name.endswith(".png") or not content.startswith(PNG):
            raise CompbenchError(f"names {artifact.name}, which is not a PNG file.")
        files[artifact.name] = content
    return files
